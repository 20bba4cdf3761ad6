"""What values must satisfy together: within one section, and across the whole tree."""

from __future__ import annotations

import difflib
import fnmatch
import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import urlsplit

from stratacache.settings.observe import OtelSettings
from stratacache.settings.section import Section
from stratacache.settings.semantic import SemanticSettings
from stratacache.settings.source import Path, Problem
from stratacache.settings.store_urls import ONE_PROCESS, scheme_of, store_problem
from stratacache.settings.tree import (
    EMBEDDED_MODEL,
    AuthSettings,
    EmbeddedSettings,
    ExactSettings,
    MatchSettings,
    OpenAISettings,
    RemoteSettings,
    SceneSettings,
    Settings,
    TiersSettings,
    UpstreamBase,
)

MAX_SCENES = 64
MAX_REPLICAS = 64
MAX_CONDITIONS = 64
MAX_MARKERS = 64
MAX_DEFAULT_ANSWER = 10_000
_HEADER_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CREDENTIALS = frozenset({"authorization", "proxy-authorization", "cookie", "x-api-key"})
_SCENE_NAME = re.compile(r"[a-z0-9_-]{1,32}")
_ALIAS_NAME = re.compile(r"[^\s*?\[\]]{1,256}")
# Upper case only: a key pasted here by mistake (they hold '-' or lower case) is refused without being shown.
_ENV_NAME = re.compile(r"[A-Z_][A-Z0-9_]{0,127}")
_GLOB = re.compile(r"[*?\[\]]")

Found = Iterator[tuple[Path, str]]


def is_pattern(model: str) -> bool:
    """True when ``model`` is a pattern rather than one model's name."""
    return _GLOB.search(model) is not None


def is_loopback(host: str) -> bool:
    """True for ``localhost`` and loopback addresses: nothing outside this machine can connect there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_section(section: Section) -> Found:
    """What is wrong within one section: (path below the section, message)."""
    if isinstance(section, AuthSettings):
        yield from _auth(section)
    elif isinstance(section, UpstreamBase):
        yield from _upstream(section)
    elif isinstance(section, TiersSettings):
        yield from _tiers(section)
    elif isinstance(section, ExactSettings):
        yield from _exact(section)
    elif isinstance(section, SemanticSettings):
        yield from _semantic(section)
    elif isinstance(section, MatchSettings):
        yield from _match(section)
    elif isinstance(section, OtelSettings):
        yield from _otel(section)


def check_tree(settings: Settings) -> Iterator[Problem]:
    """What is wrong across sections that are each right."""
    if settings.auth is None and not is_loopback(settings.server.host):
        yield Problem(
            ("server", "host"),
            f"{settings.server.host!r} can be reached from other machines, and without auth.keys anybody "
            "there could use your models: add auth.keys or listen on 127.0.0.1",
        )
    yield from _upstreams(settings)
    yield from _aliases(settings)
    yield from _judge(settings)
    yield from _store(settings)
    yield from _workers(settings)
    yield from _scenes(settings.scenes)


def _auth(auth: AuthSettings) -> Found:
    if not auth.keys:
        yield ("keys",), "names no key, so nobody could call; leave 'auth' out for loopback without keys"
    if auth.secret_env is not None and not _ENV_NAME.fullmatch(auth.secret_env):
        yield ("secret_env",), "must be the NAME of an environment variable, never the secret"
    seen: dict[str, int] = {}
    for index, key in enumerate(auth.keys):
        if key.key_hash in seen:
            yield ("keys", index, "key_hash"), f"the same key as keys[{seen[key.key_hash]}]"
        seen.setdefault(key.key_hash, index)
        if not key.rights:
            yield ("keys", index, "rights"), "names no right; use [chat], [admin] or both"


def _otel(otel: OtelSettings) -> Found:
    try:
        parts = urlsplit(otel.endpoint)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        yield ("endpoint",), "must be an http(s) URL with a host, such as http://127.0.0.1:4318"
    elif parts.username or parts.password or parts.query:
        yield (
            ("endpoint",),
            "must hold no credentials: give them in the environment variable OTEL_EXPORTER_OTLP_HEADERS",
        )


def _upstream(upstream: UpstreamBase) -> Found:
    if not upstream.models:
        yield ("models",), "names no model; use ['*'] for all"
    if isinstance(upstream, EmbeddedSettings) and set(upstream.models) - {EMBEDDED_MODEL}:
        yield ("models",), f"the embedded engine serves {EMBEDDED_MODEL} only; 'aliases' gives it other names"
    if not isinstance(upstream, RemoteSettings):
        return
    wrong = list(_addresses(upstream))
    yield from wrong
    if wrong:
        return
    if upstream.api_key_env is not None and not _ENV_NAME.fullmatch(upstream.api_key_env):
        yield (
            ("api_key_env",),
            "must be the NAME of an environment variable (upper-case letters, digits and '_'), never the key",
        )
    own = [
        upstream.api_key_env,
        upstream.api_key_file,
        "@" if any("@" in urlsplit(url).netloc for url in addresses(upstream)) else None,
    ]
    if sum(one is not None for one in own) > 1:
        yield (), "give one of api_key_env, api_key_file or user-info in the URL, not several"


def addresses(upstream: RemoteSettings) -> tuple[str, ...]:
    """The base URLs of all its servers."""
    replicas = upstream.replicas if isinstance(upstream, OpenAISettings) else ()
    return replicas or (upstream.base_url,)


def _addresses(upstream: RemoteSettings) -> Found:
    if not isinstance(upstream, OpenAISettings) or not upstream.replicas:
        problem = base_url_problem(upstream.base_url)
        if not upstream.base_url:
            yield (), "the key 'base_url' is missing, or 'replicas'"
        elif problem:
            yield ("base_url",), problem
        replicas: tuple[str, ...] = ()
    else:
        replicas = upstream.replicas
        if upstream.base_url:
            yield (), "give either base_url or replicas"
    if len(replicas) > MAX_REPLICAS:
        yield ("replicas",), f"at most {MAX_REPLICAS} (they are labels of metrics)"
    seen: dict[str, int] = {}
    for index, url in enumerate(replicas):
        problem = base_url_problem(url)
        if problem:
            yield ("replicas", index), problem
        elif url.rstrip("/") in seen:
            yield ("replicas", index), f"is the same as replicas[{seen[url.rstrip('/')]}]"
        seen.setdefault(url.rstrip("/"), index)
    if (
        isinstance(upstream, OpenAISettings)
        and upstream.reset_on
        and upstream.engine not in ("vllm", "sglang")
    ):
        yield ("reset_on",), "needs engine: vllm or sglang, whose prefix caches can be emptied"


def base_url_problem(url: str) -> str | None:
    """Why ``url`` cannot be a base URL, without repeating it (it may hold a password), or None."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "is not a valid URL"
    if parts.scheme not in ("http", "https"):
        return "must start with http:// or https://"
    if not host:
        return "names no host"
    if "?" in url or "#" in url:
        return "must have no query (?) and no fragment (#)"
    if re.search(r"\s|\\", url):
        return "must not contain spaces or backslashes"
    return None


def _tiers(tiers: TiersSettings) -> Found:
    if len(set(tiers.order)) != len(tiers.order):
        yield ("order",), "names a tier twice"
    if tiers.exact.enabled and "exact" not in tiers.order:
        yield ("order",), "must name exact, or set tiers.exact.enabled to false"


def _exact(exact: ExactSettings) -> Found:
    if exact.default_answer is not None and not 1 <= len(exact.default_answer) <= MAX_DEFAULT_ANSWER:
        yield ("default_answer",), f"must be a text of 1 to {MAX_DEFAULT_ANSWER} characters"
    if len(set(exact.negative_on)) != len(exact.negative_on):
        yield ("negative_on",), "names one case twice"
    if len(exact.negative_markers) > MAX_MARKERS:
        yield ("negative_markers",), f"at most {MAX_MARKERS} texts, as every answer is searched for each"


_EMBEDDERS = (
    "default, sentence-transformers:FOLDER, or the http(s):// URL of a server, up to and including /v1"
)
_INDEXES = ("auto", "ivfpq", "redis://", "rediss://", "milvus://")


def _semantic(semantic: SemanticSettings) -> Found:
    yield from _embedder(semantic)
    if not semantic.verifier.strip():
        yield ("verifier",), "must be default or a folder"
    if semantic.calibration is not None and not semantic.calibration.strip():
        yield ("calibration",), "must be a file; leave it out for the verifier's own calibration"
    if semantic.index not in _INDEXES[:2] and not semantic.index.startswith(_INDEXES[2:]):
        yield ("index",), f"must be one of {', '.join(_INDEXES)}{_did_you_mean(semantic.index, _INDEXES)}"
    if semantic.verify > semantic.candidates:
        yield ("verify",), f"is more than the {semantic.candidates} candidates that there are"


def _embedder(semantic: SemanticSettings) -> Found:
    embedder = semantic.embedder
    served = embedder.startswith(("http://", "https://"))
    if served:
        problem = base_url_problem(embedder)
        if problem:
            yield ("embedder",), problem
        if semantic.embedder_model is None:
            yield ("embedder_model",), "is missing: name the model that the embeddings server is to use"
    elif embedder != "default" and not re.fullmatch(r"sentence-transformers:\S.*", embedder):
        yield (
            ("embedder",),
            f"must be {_EMBEDDERS}{_did_you_mean(embedder, ('default', 'sentence-transformers:'))}",
        )
    if served and semantic.embedder_dimension is None:
        yield ("embedder_dimension",), "is missing: say how many numbers the server's vectors have"
    elif not served and semantic.embedder_dimension is not None:
        yield ("embedder_dimension",), "is only for an embedder that is a server"
    if not served and semantic.embedder_key_env is not None:
        yield ("embedder_key_env",), "is only for an embedder that is a server"
    elif semantic.embedder_key_env is not None and not _ENV_NAME.fullmatch(semantic.embedder_key_env):
        yield ("embedder_key_env",), "must be the NAME of an environment variable, never the key"


def _did_you_mean(given: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(
        given.partition("//")[0], [name.partition("//")[0] for name in known], n=1
    )
    return f"; did you mean {near[0]!r}?" if near else ""


def _match(match: MatchSettings) -> Found:
    kinds = (match.headers, match.routes, match.models, match.tags)
    if not any(kinds):
        yield (), "names no condition; leave 'match' out for a scene that callers name themselves"
    if sum(map(len, kinds)) > MAX_CONDITIONS:
        yield (), f"at most {MAX_CONDITIONS} conditions"
    for name, pattern in match.headers.items():
        if not _HEADER_NAME.fullmatch(name):
            yield ("headers", name), "is not the name of a header"
        elif name.lower() in _CREDENTIALS:
            yield ("headers", name), "carries a secret, which must not stand in the configuration"
        elif not 1 <= len(pattern) <= 256:
            yield ("headers", name), "must be a value or pattern of 1 to 256 characters"


def _upstreams(settings: Settings) -> Iterator[Problem]:
    if not settings.upstreams:
        yield Problem(("upstreams",), "names no upstream; leave it out for the embedded engine")
    seen: dict[str, int] = {}
    for index, upstream in enumerate(settings.upstreams):
        if upstream.name in seen:
            message = f"{upstream.name!r} is already the name of upstreams[{seen[upstream.name]}]"
            yield Problem(("upstreams", index, "name"), message)
        seen.setdefault(upstream.name, index)


def _aliases(settings: Settings) -> Iterator[Problem]:
    served = [model for upstream in settings.upstreams for model in upstream.models]
    for alias in settings.aliases:
        where = ("aliases", alias)
        if not _ALIAS_NAME.fullmatch(alias):
            yield Problem(where, "an alias is 1 to 256 characters without spaces and * ? [ ]")
            continue
        chain = alias_chain(alias, settings.aliases)
        model = chain[-1]
        if model in chain[:-1]:
            yield Problem(where, f"the aliases go in a circle: {' → '.join(chain)}")
        elif is_pattern(model):
            yield Problem(where, f"must be one model, not the pattern {model!r}")
        elif not any(matches(model, pattern) for pattern in served):
            near = difflib.get_close_matches(model, [m for m in served if not is_pattern(m)], n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            yield Problem(where, f"no upstream serves {model!r}{hint}")


def _judge(settings: Settings) -> Iterator[Problem]:
    judge = settings.tiers.semantic.judge
    served = [model for upstream in settings.upstreams for model in upstream.models]
    if judge is not None and not any(
        matches(alias_chain(judge, settings.aliases)[-1], one) for one in served
    ):
        yield Problem(("tiers", "semantic", "judge"), f"no upstream serves {judge!r}")


def alias_chain(name: str, aliases: Mapping[str, str]) -> list[str]:
    """``name`` and what it stands for, step by step; in a circle the last one repeats an earlier one."""
    chain = [name]
    while chain[-1] in aliases:
        chain.append(aliases[chain[-1]])
        if chain[-1] in chain[:-1]:
            break
    return chain


def matches(model: str, pattern: str) -> bool:
    """Shell-style match (``*``, ``?``, ``[…]``), case-sensitive; a plain name matches itself only."""
    return fnmatch.fnmatchcase(model, pattern) if is_pattern(pattern) else model == pattern


def _store(settings: Settings) -> Iterator[Problem]:
    problem = store_problem(settings.store)
    if problem:
        yield Problem(("store",), problem)
    if settings.tiers.exact.max_entry > settings.store_max_bytes:
        yield Problem(
            ("store_max_bytes",), "is smaller than tiers.exact.max_entry: such an entry would never fit"
        )


def _workers(settings: Settings) -> Iterator[Problem]:
    scheme = scheme_of(settings.store)
    if settings.server.workers > 1 and scheme in ONE_PROCESS:
        yield Problem(
            ("server", "workers"),
            f"must be 1 with {scheme}://, which only one process can use; for more workers choose a store that "
            "they can share, such as sqlite:///path or redis://host",
        )


def _scenes(scenes: Mapping[str, SceneSettings]) -> Iterator[Problem]:
    if len(scenes) > MAX_SCENES:
        yield Problem(
            ("scenes",), f"at most {MAX_SCENES} scenes (they are labels of metrics); got {len(scenes)}"
        )
    for name in scenes:
        if not _SCENE_NAME.fullmatch(name):
            yield Problem(
                ("scenes", name), "a scene's name is 1 to 32 lower-case letters, digits, '_' or '-'"
            )
