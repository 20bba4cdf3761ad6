"""Settings that are wrong: each is refused with its place, its key and what to do, all of them at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratacache.errors import SettingsError
from stratacache.settings import load

HASH = "sha256:" + "0" * 64
OPENAI = "name: a, kind: openai, models: ['*']"


def refusal(tmp_path: Path, text: str | bytes, **environ: str) -> str:
    file = tmp_path / "c.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SettingsError) as caught:
        load(file, environ)
    return str(caught.value).replace(str(file), "FILE")


# (yaml, what every word of the refusal must contain)
REFUSED = [
    ("server:\n  prot: 1", ["FILE:2: server.prot:", "did you mean 'port'?", "drain_timeout, host"]),
    ("sever: {}", ["FILE:1: sever:", "did you mean 'server'?"]),
    ("zzzzzz: {}", ["unknown key; valid keys: aliases, audit, auth"]),
    ("server: 5", ["server: must be a mapping with the keys", "got 5"]),
    ("server: {port: many}", ["server.port: must be a port from 0 to 65535; got 'many'"]),
    ("server: {port: 70000}", ["server.port:", "got 70000"]),
    ("server: {port: true}", ["server.port:", "got true"]),
    ("server: {port: '80'}", ["server.port:", "got '80'"]),
    ("server: {port: null}", ["server.port:", "got nothing"]),
    ("server: {workers: 0}", ["server.workers: must be a whole number from 1 to 64; got 0"]),
    ("server: {workers: 65}", ["server.workers: must be a whole number from 1 to 64; got 65"]),
    (
        "server: {workers: 2}\nstore: 'memory://'",
        ["FILE:1: server.workers: must be 1 with memory://, which only one process", "sqlite:///path"],
    ),
    ("server: {workers: 2}\nstore: 'rocksdb:///x'", ["server.workers: must be 1 with rocksdb://"]),
    ("server: {max_body: 10 pounds}", ["server.max_body: must be a size such as 64MiB"]),
    ("server: {max_body: 0}", ["server.max_body:"]),
    ("server: {max_body: .inf}", ["server.max_body:"]),
    ("server: {drain_timeout: -1}", ["server.drain_timeout: must be a duration such as"]),
    ("server: {drain_timeout: 3 weeks}", ["server.drain_timeout:"]),
    ("server: {drain_timeout: .nan}", ["server.drain_timeout:"]),
    ("server: {host: 'http://x'}", ["server.host: must be a host name or an IP address"]),
    ('server: {host: "a\\nb"}', ["server.host: must not contain line breaks"]),
    ("server: {host: 0.0.0.0}", ["server.host: '0.0.0.0' can be reached from other machines", "auth.keys"]),
    ("auth: {}", ["auth: the key 'keys' is missing"]),
    ("auth: {keys: []}", ["auth.keys: names no key"]),
    ("auth: {keys: {a: b}}", ["auth.keys: must be a list"]),
    (
        f"auth: {{keys: [{{key_hash: '{HASH}'}}, {{key_hash: '{HASH}'}}]}}",
        ["auth.keys[1].key_hash: the same"],
    ),
    (f"auth: {{keys: [{{key_hash: '{HASH}', rights: [root]}}]}}", ["rights[0]: must be one of chat, admin"]),
    (f"auth: {{keys: [{{key_hash: '{HASH}', rights: []}}]}}", ["names no right"]),
    (f"auth: {{keys: [{{key_hash: '{HASH}', tenant: 'a b'}}]}}", ["tenant: must be 1 to 64 letters"]),
    ("upstreams: []", ["upstreams: names no upstream"]),
    ("upstreams: [local]", ["upstreams[0]: must be a mapping with name, kind"]),
    (
        "upstreams: [{name: a, models: [m]}]",
        ["upstreams[0]: kind must be one of embedded, openai, anthropic; it is missing"],
    ),
    ("upstreams: [{name: a, kind: opena, models: [m]}]", ["upstreams[0].kind: kind must be one of"]),
    ("upstreams: [{name: a, kind: anthropic, models: [m]}]", ["upstreams[0]: the key 'base_url' is missing"]),
    (
        "upstreams: [{name: a, kind: anthropic, models: [m], base_url: 'http://h', max_tokens: 0}]",
        ["max_tokens: must be a whole number from 1 to 1000000"],
    ),
    ("upstreams: [{kind: embedded, models: [smollm2-135m]}]", ["upstreams[0]: the key 'name' is missing"]),
    ("upstreams: [{name: a, kind: embedded}]", ["the key 'models' is missing"]),
    ("upstreams: [{name: a, kind: embedded, models: []}]", ["models: names no model"]),
    ("upstreams: [{name: a, kind: embedded, models: ['*']}]", ["embedded engine serves smollm2-135m only"]),
    ("upstreams: [{name: a, kind: embedded, models: m}]", ["models: must be a list; got 'm'"]),
    ("upstreams: [{name: a, kind: embedded, models: ['']}]", ["models[0]: must be a model name or pattern"]),
    (
        "upstreams: [{name: A B, kind: embedded, models: [smollm2-135m]}]",
        ["name: must be 1 to 32 lower-case"],
    ),
    (
        "upstreams:\n" + "- {name: a, kind: embedded, models: [smollm2-135m]}\n" * 2,
        ["FILE:3: upstreams[1].name: 'a' is already the name of upstreams[0]"],
    ),
    (
        "upstreams: [{name: a, kind: embedded, models: [smollm2-135m], base_url: x}]",
        ["base_url: not a key of this kind"],
    ),
    (
        "upstreams: [{name: a, kind: embedded, models: [smollm2-135m], dtype: f64}]",
        ["dtype: must be one of float32, bfloat16"],
    ),
    (
        "upstreams: [{name: a, kind: embedded, models: [smollm2-135m], block_size: 8}]",
        ["must be one of 16, 32; got 8"],
    ),
    (f"upstreams: [{{{OPENAI}}}]", ["the key 'base_url' is missing"]),
    (f"upstreams: [{{{OPENAI}, threads: 2}}]", ["threads: not a key of this kind of upstream", "embedded"]),
    (f"upstreams: [{{{OPENAI}, replicas: []}}]", ["the key 'base_url' is missing, or 'replicas'"]),
    (
        f"upstreams: [{{{OPENAI}, base_url: 'http://h', replicas: ['http://h']}}]",
        ["upstreams[0]: give either base_url or replicas"],
    ),
    (
        f"upstreams: [{{{OPENAI}, replicas: ['http://h/v1', 'ftp://h/v1']}}]",
        ["replicas[1]: must start with http"],
    ),
    (
        f"upstreams: [{{{OPENAI}, replicas: ['http://h/v1', 'http://h/v1/']}}]",
        ["replicas[1]: is the same as replicas[0]"],
    ),
    (
        f"upstreams: [{{{OPENAI}, base_url: 'http://h', reset_on: [a]}}]",
        ["reset_on: needs engine: vllm or sglang"],
    ),
    (f"upstreams: [{{{OPENAI}, base_url: 'http://h', engine: vlm}}]", ["engine: must be one of vllm"]),
    (f"upstreams: [{{{OPENAI}, base_url: 'http://h', retries: 11}}]", ["retries: must be a whole number"]),
    (f"upstreams: [{{{OPENAI}, base_url: 'ftp://h/v1'}}]", ["base_url: must start with http"]),
    (f"upstreams: [{{{OPENAI}, base_url: '/v1'}}]", ["base_url: must start with http"]),
    (f"upstreams: [{{{OPENAI}, base_url: 'http:///v1'}}]", ["base_url: names no host"]),
    (f"upstreams: [{{{OPENAI}, base_url: 'http://h:99999/v1'}}]", ["base_url: is not a valid URL"]),
    (f"upstreams: [{{{OPENAI}, base_url: 'http://h/v1?a=b'}}]", ["base_url: must have no query"]),
    (f"upstreams: [{{{OPENAI}, base_url: 'http://h/v1#x'}}]", ["base_url: must have no query"]),
    (
        f"upstreams: [{{{OPENAI}, base_url: 'http://h/v1', api_key_env: NOPE}}]",
        ["api_key_env:", "NOPE is not set"],
    ),
    (
        f"upstreams: [{{{OPENAI}, base_url: 'http://h/v1', api_key_file: /no/such}}]",
        ["/no/such: cannot be read"],
    ),
    (
        f"upstreams: [{{{OPENAI}, base_url: 'http://u:p@h/v1', api_key_env: NOPE}}]",
        ["upstreams[0]: give one of api_key_env, api_key_file or user-info"],
    ),
    (
        "aliases: {a: smolm2-135m}",
        ["aliases.a: no upstream serves 'smolm2-135m'; did you mean 'smollm2-135m'?"],
    ),
    ("aliases: {a: b, b: a}", ["aliases.a: the aliases go in a circle: a → b → a"]),
    ("aliases: {a: a}", ["aliases.a: the aliases go in a circle"]),
    ("aliases: {a: 'smol*'}", ["aliases.a: must be one model, not the pattern"]),
    ("aliases: {'a*': smollm2-135m}", ["aliases.a*: an alias is"]),
    ("aliases: {a: 5}", ["aliases.a: must be text; got 5"]),
    ("store: 'mysql://h'", ["store: unknown kind of store; known: memory://, sqlite://, rocksdb://"]),
    ("store: 'redsi://h'", ["store: unknown kind of store; did you mean redis://? known:"]),
    ("store: 'redis+clusters://h'", ["store: unknown kind of store; did you mean redis+cluster://?"]),
    ("store: cache.db", ["store: must be a URL"]),
    ("store: 'sqlite://cache.db'", ["store: must name a file"]),
    ("store: 'sqlite:///'", ["store: must name a file"]),
    ("store: 'rocksdb://x'", ["store: must name a folder: rocksdb:///relative/path"]),
    ("store: 'memory://x'", ["store: memory:// takes nothing"]),
    ("store_max_bytes: 2MiB\ntiers: {exact: {max_entry: 4MiB}}", ["store_max_bytes: is smaller than"]),
    ("tiers: {semantic: {max_error: 0}}", ["tiers.semantic.max_error: must be a number from 0.0001 to 0.2"]),
    ("tiers: {semantic: {max_errors: .1}}", ["semantic.max_errors: unknown key; did you mean 'max_error'?"]),
    ("tiers: {semantic: {mode: shadwo}}", ["tiers.semantic.mode: must be one of serve, shadow, off"]),
    ("tiers: {semantic: {judge: m}}", ["tiers.semantic.judge: no upstream serves 'm'"]),
    ("tiers: {semantic: {candidates: 0}}", ["candidates: must be a whole number from 1 to 50; got 0"]),
    ("tiers: {semantic: {candidates: 2}}", ["tiers.semantic.verify: is more than the 2 candidates"]),
    ("tiers: {semantic: {floor: 2}}", ["tiers.semantic.floor: must be a number from 0 to 1; got 2"]),
    ("tiers: {semantic: {budget: 0}}", ["tiers.semantic.budget: must be a duration"]),
    ("tiers: {semantic: {embedder: defualt}}", ["semantic.embedder: must be default", "mean 'default'?"]),
    ("tiers: {semantic: {embedder: 'http:///v1'}}", ["tiers.semantic.embedder: names no host"]),
    (
        "tiers: {semantic: {embedder: 'http://h/v1', embedder_key_env: NOPE}}",
        ["tiers.semantic.embedder_model: is missing", "tiers.semantic.embedder_dimension: is missing"],
    ),
    (
        "tiers: {semantic: {embedder: 'http://h/v1', embedder_model: m, embedder_dimension: 8, "
        "embedder_key_env: NOPE}}",
        ["tiers.semantic.embedder_key_env: the environment variable NOPE is not set"],
    ),
    (
        "tiers: {semantic: {embedder_dimension: 8}}",
        ["embedder_dimension: is only for an embedder that is a"],
    ),
    ("tiers: {semantic: {embedder_key_env: KEY}}", ["embedder_key_env: is only for an embedder that is a"]),
    ("tiers: {semantic: {index: rediss}}", ["tiers.semantic.index: must be one of auto", "mean 'rediss:'?"]),
    ("tiers: {semantic: {verifier: ' '}}", ["tiers.semantic.verifier: must be default or a folder"]),
    ("tiers: {prompt: {rules: /no/such/file}}", ["tiers.prompt.rules: cannot be used:", "cannot be read"]),
    (
        "upstreams: [{name: a, kind: openai, base_url: 'http://h/v1', models: ['*'], provider: antropic}]",
        ["upstreams[0].provider: must be one of anthropic, ", "did you mean 'anthropic'?"],
    ),
    ("tiers: {exact: {history_window: 0}}", ["tiers.exact.history_window: must be all or a whole number"]),
    ("tiers: {exact: {enabled: sometimes}}", ["tiers.exact.enabled: must be true or false; got 'sometimes'"]),
    ("tiers: {order: [exact, exact]}", ["tiers.order: names a tier twice"]),
    ("tiers: {order: [semantic]}", ["tiers.order: must name exact"]),
    ("tiers: {order: [exacd]}", ["tiers.order[0]: must be one of exact, semantic"]),
    ("tiers: {exact: {near_cache_bytes: -1}}", ["tiers.exact.near_cache_bytes: must be a size such as"]),
    ("tiers: {exact: {negative_ttl: 2d}}", ["tiers.exact.negative_ttl: must be a duration"]),
    (
        "tiers: {exact: {negative_on: [429]}}",
        ["negative_on[0]: must be one of empty, 404, 410, 422; got 429"],
    ),
    ("tiers: {exact: {negative_on: ['404']}}", ["negative_on[0]: must be one of empty, 404, 410, 422"]),
    ("tiers: {exact: {negative_on: [empty, empty]}}", ["negative_on: names one case twice"]),
    ("tiers: {exact: {negative_markers: ['']}}", ["negative_markers[0]: must be a text of 1 to 1000"]),
    (
        "tiers: {exact: {negative_markers: [" + "x, " * 64 + "x]}}",
        ["tiers.exact.negative_markers: at most 64 texts"],
    ),
    ("tiers: {exact: {admission: shut}}", ["admission: must be one of open, shed, closed; got 'shut'"]),
    ("tiers: {exact: {default_answer: ''}}", ["default_answer: must be a text of 1 to 10000 characters"]),
    ("tiers: {exact: {shed_above: 0}}", ["shed_above: must be a whole number from 1 to 100000; got 0"]),
    ("tiers: {exact: {filter_error: 0}}", ["filter_error: must be a number from 0.000001 to 0.5; got 0"]),
    ("tiers: {exact: {filter_capacity: 10}}", ["filter_capacity: must be a whole number from 1000"]),
    ("versions: {grace: 2h}", ["versions.grace: must be a duration", "to 3600 s; got '2h'"]),
    ("versions: {grase: 1s}", ["versions.grase: unknown key; did you mean 'grace'?"]),
    ("audit: {path: 5}", ["audit.path: must be text; got 5"]),
    ("scenes: {a: {semantic: maybe}}", ["scenes.a.semantic: must be true or false; got 'maybe'"]),
    ("scenes: {a: {max_error: 1}}", ["scenes.a.max_error: must be a number from 0.0001 to 0.2; got 1"]),
    ("scenes: {a: {early_refresh: -1}}", ["scenes.a.early_refresh: must be a number from 0 to 100; got -1"]),
    ("scenes: {a: {stale_if_error: 8d}}", ["scenes.a.stale_if_error: must be a duration"]),
    ("scenes: {a: {match: {}}}", ["scenes.a.match: names no condition"]),
    (
        "scenes: {a: {match: {header: {x: y}}}}",
        ["scenes.a.match.header: unknown key; did you mean 'headers'?"],
    ),
    ("scenes: {a: {match: {headers: {x: 5}}}}", ["scenes.a.match.headers.x: must be text; got 5"]),
    ("scenes: {a: {match: {headers: {x: ''}}}}", ["match.headers.x: must be a value or pattern of 1 to 256"]),
    ("scenes: {a: {match: {headers: {'a b': c}}}}", ["match.headers.a b: is not the name of a header"]),
    ("scenes: {a: {match: {headers: {Cookie: c}}}}", ["match.headers.Cookie: carries a secret"]),
    ("scenes: {a: {match: {routes: /v1}}}", ["scenes.a.match.routes: must be a list; got '/v1'"]),
    ("scenes: {a: {match: {tags: ['']}}}", ["match.tags[0]: must be a value or pattern of 1 to 256"]),
    ("scenes: {a: {match: {tags: [" + "x, " * 64 + "x]}}}", ["scenes.a.match: at most 64 conditions"]),
    ("scenes: {'A B': {}}", ["scenes.A B: a scene's name is"]),
    ("scenes: {a: {ttl: 0}}", ["scenes.a.ttl: must be a duration"]),
    ("scenes: {a: {jitter: 1}}", ["scenes.a.jitter: must be a number from 0 to below 1; got 1"]),
    ("scenes: {" + ", ".join(f"s{i}: {{}}" for i in range(65)) + "}", ["scenes: at most 64 scenes"]),
    (
        "server: {port: 1}\nstore: 'memory://'\nserver: {port: 2}",
        ["server: line 3 gives this key again", "line 1"],
    ),
    ("server:\n  port: 1\n  port: 1", ["server.port: line 3 gives this key again (first on line 2)"]),
    ("1: x", ["the key '1' is not text; quote it"]),
    ("? [a]\n: x", ["a key is not text"]),
    ("[a, b]", ["must be a mapping"]),
    ("just text", ["must be a mapping"]),
    ("server: {port: 1", ["FILE:", "not valid YAML"]),
    ("a: b: c", ["FILE:1: not valid YAML"]),
    ("--- {}\n--- {}", ["not valid YAML"]),
    ("server: !!python/object/apply:os.system [ls]", ["must be a mapping"]),
    ("store: !!python/name:os.system x", ["not valid YAML"]),
    ("store: 2024-13-45", ["FILE:1: a value that looks like a date"]),
    ("x: &x [*x]", ["too many or too deeply nested"]),
    ("x: " + "[" * 100_000, ["too many or too deeply nested values"]),
    ("x: [" + "1," * 50_000 + "1]", ["too many or too deeply nested values"]),
    ("#" + "x" * 2**20, ["larger than 1048576 bytes"]),
    (b"server: \xff", ["not UTF-8 text (byte 8)"]),
    (b"server: \x00", ["a character that YAML does not allow"]),
]


@pytest.mark.parametrize(("text", "parts"), REFUSED, ids=[str(row[0])[:50] for row in REFUSED])
def test_a_wrong_value_is_refused_with_place_key_and_remedy(
    tmp_path: Path, text: str | bytes, parts: list[str]
) -> None:
    message = refusal(tmp_path, text)
    for part in parts:
        assert part in message
    assert len(message) < 1000


def test_an_alias_bomb_is_stopped(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    assert "aliases count each time" in refusal(tmp_path, "\n".join(lines))


def test_all_problems_are_reported_together_each_on_its_line(tmp_path: Path) -> None:
    text = "server:\n  port: x\n  hots: y\ntiers:\n  prompt: {enabled: perhaps}\nscenes:\n  a: {ttl: soon}"
    lines = refusal(tmp_path, text).splitlines()
    assert [line.split(": ")[0] for line in lines] == ["FILE:3", "FILE:2", "FILE:5", "FILE:7"]


def test_all_problems_across_sections_are_reported_together(tmp_path: Path) -> None:
    lines = refusal(tmp_path, "server: {host: '::'}\naliases: {a: nope}\nstore: nope").splitlines()
    assert [line.split(": ")[1] for line in lines] == ["server.host", "aliases.a", "store"]


@pytest.mark.parametrize(
    "text",
    [
        "auth: {keys: [{key_hash: hunter2}]}",
        "auth: {keys: [hunter2]}",
        "auth: {keys: hunter2}",
        f"upstreams: [{{{OPENAI}, base_url: 'http://h/v1', api_key: hunter2}}]",
        f"upstreams: [{{{OPENAI}, base_url: 'http://h/v1', api_key_env: hunter2}}]",
        f"upstreams: [{{{OPENAI}, base_url: 'http://h/v1', api_key_env: [hunter2]}}]",
        f"upstreams: [{{{OPENAI}, base_url: 'ftp://u:hunter2@h/v1'}}]",
        f"upstreams: [{{{OPENAI}, base_url: 'http://u:hunter2@h/v1?x'}}]",
        "store: 'redis://:hunter2@h,h2'",
        "store: 'redis://u:hunter2@'",
        "store: 'redis://u:hunter2@h:x'",
        "store: 'redis://u:hunter2/x@h'",
        "store: 'redis://u:x#hunter2@h'",
        "store: 'redis://u:x@hunter2@h'",
        "store: 'redis://u:x?hunter2@h'",
        "store: 'redis://u:hunter2'",
        "store: 'redis://h/hunter2'",
        "store: 'redis://h?password=hunter2'",
        "store: 'redis://h?hunter2=x'",
        "store: 'redis://h?sentinel_password=hunter2'",
        "store: 'redis:hunter2@h'",
        "store: 'memcached://u:hunter2@h'",
        "store: 'hunter2://h'",
        "store: 'memory://hunter2'",
        "scenes: {a: {match: {headers: {authorization: hunter2}}}}",
        "server: {host: 'redis://:hunter2@h'}",
    ],
)
def test_a_refusal_never_repeats_a_secret(tmp_path: Path, text: str) -> None:
    assert "hunter2" not in refusal(tmp_path, text)


@pytest.mark.parametrize(
    ("name", "value", "parts"),
    [
        ("SERVER__PROT", "1", ["environment variable STRATACACHE__SERVER__PROT: server.prot:", "'port'"]),
        (
            "SERVER__PORT",
            "x",
            ["environment variable STRATACACHE__SERVER__PORT: server.port: must be a port"],
        ),
        ("SERVER__PORT", "[", ["server.port: not valid YAML"]),
        ("SERVER__PORT__X", "1", ["server.port is no mapping"]),
        ("SERVER__", "1", ["an empty name part"]),
        (
            "UPSTREAMS",
            "[{name: a}]",
            ["environment variable STRATACACHE__UPSTREAMS: upstreams[0]: kind must be"],
        ),
        ("UPSTREAMS__0__NAME", "a", ["upstreams: must be a list; got a mapping"]),
        ("TIERS", "{exact: {}, exact: {}}", ["gives this key again"]),
        ("STORE", "x" * 2_000_000, ["store: must be a URL"]),
        ("TIERS", "x" * 2_000_000, ["tiers: longer than 1 MiB"]),
    ],
)
def test_a_wrong_environment_variable_is_named(
    tmp_path: Path, name: str, value: str, parts: list[str]
) -> None:
    text = "server: {port: 1}" if name == "SERVER__PORT__X" else ""
    message = refusal(tmp_path, text, **{"STRATACACHE__" + name: value})
    for part in parts:
        assert part in message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        load(tmp_path / "none.yaml", {})
