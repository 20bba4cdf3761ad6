"""Settings that are right: defaults, the file, the environment over it, masking and the schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stratacache.errors import SettingsError
from stratacache.settings import (
    EmbeddedSettings,
    OpenAISettings,
    SceneSettings,
    Settings,
    api_key,
    json_schema,
    load,
    mask_url,
    store_problem,
)

HASH = "sha256:" + "0123456789abcdef" * 4
FULL = f"""
server: {{host: 0.0.0.0, port: 9000, workers: 1, max_body: 1MB, drain_timeout: 90}}
auth:
  keys:
    - {{key_hash: "{HASH}", tenant: acme, rights: [chat, admin], profile: gold, namespace: shop}}
upstreams:
  - {{name: local, kind: embedded, models: [smollm2-135m], threads: 2, kv_memory: 64MiB, dtype: bfloat16}}
  - {{name: remote, kind: openai, base_url: "https://models.example/v1", api_key_env: REMOTE_KEY,
      models: ["gpt-*"], timeout: 2m, connect_timeout: 500ms, idle_timeout: 1.5}}
aliases: {{fast: smollm2-135m, best: fast}}
store: memory://
store_max_bytes: 100MiB
tiers:
  order: [exact, semantic]
  exact: {{enabled: true, budget: 10ms, max_entry: 64KiB}}
  semantic: {{enabled: false}}
  kv: {{enabled: false}}
scenes:
  realtime: {{ttl: 2m, jitter: 0}}
"""


def loaded(tmp_path: Path, text: str, **environ: str) -> Settings:
    file = tmp_path / "conf.yaml"
    file.write_text(text, encoding="utf-8")
    return load(file, environ)


@pytest.fixture
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_without_a_file_the_embedded_defaults_hold(in_empty_folder: Path) -> None:
    settings = load(None, {})
    assert (settings.server.host, settings.server.port, settings.auth) == ("127.0.0.1", 8900, None)
    (local,) = settings.upstreams
    assert isinstance(local, EmbeddedSettings)
    assert (local.name, local.models) == ("local", ("smollm2-135m",))
    assert {name: scene.ttl for name, scene in settings.scenes.items()} == {
        "default": 3600.0, "small_talk": 600.0, "knowledge": 3600.0, "realtime": 120.0, "business": 1800.0,
        "general": 86400.0,
    }  # fmt: skip
    assert all(scene.jitter == 1 / 6 and scene.match is None for scene in settings.scenes.values())


def test_the_file_in_the_working_folder_is_found(in_empty_folder: Path) -> None:
    (in_empty_folder / "stratacache.yaml").write_text("server: {port: 1}")
    assert load(None, {}).server.port == 1


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    assert loaded(tmp_path, "# nothing yet\n") == load(None, {})


def test_every_section_is_read(tmp_path: Path) -> None:
    settings = loaded(tmp_path, FULL, REMOTE_KEY="k")
    assert (settings.server.max_body, settings.server.drain_timeout) == (10**6, 90.0)
    assert settings.auth is not None
    key = settings.auth.keys[0]
    assert (key.tenant, key.rights, key.profile, key.namespace) == ("acme", ("chat", "admin"), "gold", "shop")
    local, remote = settings.upstreams
    assert isinstance(local, EmbeddedSettings)
    assert (local.threads, local.kv_memory, local.dtype) == (2, 64 * 2**20, "bfloat16")
    assert isinstance(remote, OpenAISettings)
    assert (remote.timeout, remote.connect_timeout, remote.idle_timeout) == (120.0, 0.5, 1.5)
    assert settings.aliases == {"fast": "smollm2-135m", "best": "fast"}
    assert (settings.store, settings.store_max_bytes) == ("memory://", 100 * 2**20)
    assert (settings.tiers.exact.budget, settings.tiers.kv.enabled) == (0.01, False)
    assert settings.scenes["realtime"] == SceneSettings(ttl=120.0, jitter=0.0, semantic=False)
    assert settings.scenes["default"] == SceneSettings()


def test_the_tree_is_frozen() -> None:
    with pytest.raises(AttributeError):
        load(None, {}).server.port = 1  # type: ignore[misc]


def test_the_default_scene_can_be_overridden(tmp_path: Path) -> None:
    assert loaded(tmp_path, "scenes: {default: {ttl: 5m}}").scenes["default"].ttl == 300.0


def test_what_is_said_of_a_built_in_scene_changes_no_more_than_that(tmp_path: Path) -> None:
    """A scene that were replaced as a whole would let realtime answers live an hour for want of a ttl."""
    scenes = loaded(tmp_path, "scenes: {realtime: {stale_if_error: 5m}}").scenes
    assert scenes["realtime"] == SceneSettings(ttl=120.0, stale_if_error=300.0, semantic=False)
    assert load(None, {"STRATACACHE__SCENES__SMALL_TALK__JITTER": "0"}).scenes["small_talk"].ttl == 600.0


def test_configured_scenes_come_first_and_in_their_order(tmp_path: Path) -> None:
    scenes = loaded(tmp_path, "scenes: {zebra: {match: {tags: [z]}}, general: {}, ant: {}}").scenes
    assert list(scenes)[:3] == ["zebra", "general", "ant"]
    assert len(scenes) == 8


def test_the_example_of_the_interface_contract_loads_where_its_code_exists(tmp_path: Path) -> None:
    text = """
tiers: {exact: {enabled: true, history_window: all, near_cache_bytes: 64MiB, negative_ttl: 2m, admission: open}}
scenes: {knowledge: {ttl: 1h, jitter: 0.16, max_error: 0.01}, realtime: {ttl: 2m, semantic: off}}
versions: {grace: 30s}
"""
    settings = loaded(tmp_path, text)
    assert not settings.scenes["realtime"].semantic
    assert (settings.versions.grace, settings.tiers.exact.near_cache_bytes) == (30.0, 64 * 2**20)
    assert settings.tiers.exact.negative_on == ("empty", 404, 422)


def test_workers_may_share_a_store_that_processes_can_share(tmp_path: Path) -> None:
    for store in ("sqlite:///x.db", "redis://h", "memcached://h"):
        assert loaded(tmp_path, f"server: {{workers: 64}}\nstore: '{store}'").server.workers == 64


@pytest.mark.parametrize(
    "url",
    [
        "redis://h", "redis://h/", "redis://h:6379/15", "rediss://user:p%2Fw@h.example:6380/0?ca=/etc/ca.pem",
        "redis://:p@[::1]:6379?prefix=a:b.c", "redis+cluster://a:1,b:2,c", "rediss://user@h",
        "rediss+cluster://u:p@a:1,b:2/?cert=c.pem&key=k.pem", "redis+sentinel://a:1,b:2/mymaster",
        "rediss+sentinel://:p@a/my-master/3?prefix=x", "memcached://a:11211,b?prefix=x", "memcached://a/",
        "rocksdb:///a/b", "rocksdb:////var/lib/x", "sqlite:///ä b.db",
    ],
)  # fmt: skip
def test_stores_that_have_the_right_shape(url: str) -> None:
    assert store_problem(url) is None


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis://", "names no host"),
        ("redis://h:0", "must name hosts as host:port"),
        ("redis://h:65536", "must name hosts as host:port"),
        ("redis://h,", "must name hosts as host:port"),
        ("redis://a,b", "names several hosts; use redis+cluster:// or redis+sentinel://"),
        ("rediss://a,b", "use rediss+cluster://"),
        ("redis://h/db", "nothing but the number of a database"),
        ("redis+cluster://h/1", "takes no path"),
        ("redis+sentinel://h", "must name the master"),
        ("redis+sentinel://h/a/b", "must name the master"),
        ("memcached://h/x", "takes no path"),
        ("memcached://u@h", "takes no user or password"),
        ("redis://a:b:c@h", "holds more than user:password"),
        ("redis://u:p/w@h", "write %23, %40, %2F and %3F"),
        ("redis://h?prefx=a", "did you mean prefix? known: prefix"),
        ("memcached://h?tls_name=h", "unknown option; known: prefix"),
        ("redis://h?ca=x", "which is for TLS: use rediss://"),
        ("redis+sentinel://h/m?ca=x", "use rediss+sentinel://"),
        ("rediss://h?cert=x", "needs cert and key together"),
        ("redis://h?prefix=a&prefix=b", "gives the option prefix twice"),
        ("redis://h?prefix={a}", "prefix whose value is none: 1 to 64 letters"),
        ("redis+sentinel://h/m?sentinel_password=", "a password, percent-encoded"),
        ("redis://h/ x", "must not contain spaces"),
        ("memcached://hö", "percent-encode"),
    ],
)
def test_stores_of_the_wrong_shape(url: str, told: str) -> None:
    assert told in (store_problem(url) or "")


def test_yaml_anchors_work(tmp_path: Path) -> None:
    text = "scenes: {a: &slow {ttl: 1d}, b: *slow}"
    assert loaded(tmp_path, text).scenes["b"].ttl == 86400.0


@pytest.mark.parametrize(
    ("name", "text", "picked"),
    [
        ("SERVER__PORT", "7", lambda s: s.server.port == 7),
        ("SERVER__HOST", "::1", lambda s: s.server.host == "::1"),
        ("SERVER__DRAIN_TIMEOUT", "2m", lambda s: s.server.drain_timeout == 120.0),
        ("SERVER__MAX_BODY", "2MiB", lambda s: s.server.max_body == 2 * 2**20),
        ("TIERS__EXACT__ENABLED", "false", lambda s: not s.tiers.exact.enabled),
        ("TIERS__ORDER", "[semantic, exact]", lambda s: s.tiers.order == ("semantic", "exact")),
        ("TIERS", '{"kv": {"enabled": false}}', lambda s: not s.tiers.kv.enabled),
        ("ALIASES__FAST", "smollm2-135m", lambda s: s.aliases == {"fast": "smollm2-135m"}),
        ("SCENES__NEWS__TTL", "1m", lambda s: s.scenes["news"].ttl == 60.0),
        ("STORE", "memory://", lambda s: s.store == "memory://"),
        ("AUTH", "", lambda s: s.auth is None),
        (
            "UPSTREAMS",
            '[{"name": "x", "kind": "openai", "models": ["*"], "base_url": "http://h/v1"}]',
            lambda s: s.upstreams[0].base_url == "http://h/v1",
        ),
    ],
)
def test_the_environment_sets_any_key(name: str, text: str, picked: Any) -> None:
    assert picked(load(None, {"STRATACACHE__" + name: text}))


def test_the_environment_wins_over_the_file_and_leaves_its_neighbours(tmp_path: Path) -> None:
    settings = loaded(tmp_path, "server: {port: 1, host: localhost}", STRATACACHE__SERVER__PORT="2")
    assert (settings.server.port, settings.server.host) == (2, "localhost")


def test_a_section_and_a_key_in_it_can_both_come_from_the_environment() -> None:
    environ = {"STRATACACHE__SERVER__PORT": "2", "STRATACACHE__SERVER": "{port: 1, host: localhost}"}
    settings = load(None, environ)
    assert (settings.server.port, settings.server.host) == (2, "localhost")


def test_other_variables_are_ignored() -> None:
    assert load(None, {"STRATACACHE_CONFIG": "x", "PATH": "y"}) == load(None, {})


def test_masked_settings_show_no_secret(tmp_path: Path) -> None:
    text = f"""
auth: {{keys: [{{key_hash: "{HASH}"}}]}}
upstreams:
  - {{name: a, kind: openai, models: ["*"], base_url: "https://user:hunter2@h.example/v1"}}
  - {{name: b, kind: openai, models: ["*"], base_url: "https://h.example/v1", api_key_env: REMOTE_KEY}}
"""
    masked = loaded(tmp_path, text, REMOTE_KEY="sk-very-secret").masked()
    shown = json.dumps(masked)
    for secret in (HASH, HASH[7:], "hunter2", "user:", "sk-very-secret"):
        assert secret not in shown
    assert masked["upstreams"][0]["base_url"] == "https://****@h.example/v1"
    assert masked["upstreams"][1]["api_key_env"] == "REMOTE_KEY"
    assert masked["auth"]["keys"][0]["tenant"] == "default"


@pytest.mark.parametrize(
    "url", ["redis://me:hunter2@h:1/0", "redis+sentinel://:hunter2@a:1,b:2/m", "rediss://hunter2@h"]
)
def test_masked_settings_hide_who_logs_in_to_the_store(tmp_path: Path, url: str) -> None:
    masked = loaded(tmp_path, f"store: '{url}'").masked()["store"]
    assert masked == url.replace(url.split("://")[1].split("@")[0], "****")
    assert mask_url(f"cannot reach {url}: refused") == f"cannot reach {masked}: refused"


@pytest.mark.parametrize("url", ["redis://me:hun/ter2@h", "redis://me:hun@ter2@h", "redis://me:hun?ter2@h"])
def test_a_mask_covers_a_password_that_was_not_encoded(url: str) -> None:
    assert mask_url(url) == "redis://****@h"


def test_masked_defaults_load_again_as_the_same_settings(tmp_path: Path) -> None:
    defaults = load(None, {})
    assert loaded(tmp_path, json.dumps(defaults.masked())) == defaults


def test_an_api_key_comes_from_a_variable_or_a_file(tmp_path: Path) -> None:
    base = {"name": "a", "models": ("*",), "base_url": "http://h/v1"}
    file = tmp_path / "key"
    file.write_text("sk-file\n")
    assert api_key(OpenAISettings(**base), {}) is None
    assert api_key(OpenAISettings(**base, api_key_env="K"), {"K": "sk-env"}) == "sk-env"
    assert api_key(OpenAISettings(**base, api_key_file=str(file)), {}) == "sk-file"


@pytest.mark.parametrize("content", ["", "  \n", "two words", "sk-a\nsk-b", "schlüssel"])
def test_an_unusable_api_key_is_refused_without_showing_it(content: str) -> None:
    upstream = OpenAISettings(name="a", models=("*",), base_url="http://h/v1", api_key_env="K")
    with pytest.raises(SettingsError) as caught:
        api_key(upstream, {"K": content})
    assert "K" in str(caught.value)
    assert not content.strip() or content not in str(caught.value)


def test_the_schema_knows_every_key_and_the_text_forms() -> None:
    schema = json_schema()
    server = schema["$defs"]["ServerSettings"]["properties"]
    assert server["drain_timeout"]["type"] == ["number", "string"]
    assert set(schema["$defs"]["Settings"]["properties"]) == set(Settings.__struct_fields__)
    assert msgspec.json.decode(msgspec.json.encode(schema)) == schema


def test_the_guide_names_every_key() -> None:
    guide = (Path(__file__).parents[2] / "docs/guide/configuration.md").read_text(encoding="utf-8")
    sections = json_schema()["$defs"].values()
    missing = {
        key for section in sections for key in section.get("properties", {}) if f"`{key}`" not in guide
    }
    assert not missing
