"""The settings tree: every key that this version honours, with type, default, bounds and meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from stratacache.settings.mask import masked
from stratacache.settings.units import DURATION_FORM, SIZE_FORM
from stratacache.types import Right, TierName

_KIB, _MIB, _GIB = 2**10, 2**20, 2**30
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0

EMBEDDED_MODEL = "smollm2-135m"


def _meta(text: str, expect: str, **bounds: Any) -> Meta:
    """``expect`` completes the sentence "must be …" in an error message."""
    return Meta(description=text, extra={"expect": expect}, **bounds)


def _duration(text: str, low: float, high: float = 366 * _DAY) -> Meta:
    # The bounds are checked after the text form became a number of seconds.
    schema = {"examples": ["30s", "10m", 2.5]}
    expect = f"{DURATION_FORM}, from {low:g} s to {high:g} s"
    extra = {"unit": "seconds", "expect": expect}
    return Meta(description=f"{text} (seconds)", ge=low, le=high, extra=extra, extra_json_schema=schema)


def _size(text: str, low: int, high: int = 2**50) -> Meta:
    schema = {"examples": ["64MiB", "1GB", 1048576]}
    extra = {"unit": "bytes", "expect": f"{SIZE_FORM}, from {low} to {high} bytes"}
    return Meta(description=f"{text} (bytes)", ge=low, le=high, extra=extra, extra_json_schema=schema)


_WORD = "1 to 64 letters, digits, '.', '_' or '-'"
_WORD_PATTERN = r"^[A-Za-z0-9._-]{1,64}$"
_MAYBE_WORD_PATTERN = r"^[A-Za-z0-9._-]{0,64}$"
_MODEL = "a model name or pattern: 1 to 256 characters, no spaces"
_MODEL_PATTERN = r"^\S{1,256}$"


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A mapping of the configuration file. Unknown keys are refused by ``settings.decode``."""


class ServerSettings(Section, frozen=True, kw_only=True):
    """Where the gateway listens."""

    host: Annotated[
        str,
        _meta("address to listen on", "a host name or an IP address", pattern=r"^[A-Za-z0-9.:_-]{1,255}$"),
    ] = "127.0.0.1"
    port: Annotated[int, _meta("0 takes a free port", "a port from 0 to 65535", ge=0, le=65535)] = 8900
    workers: Annotated[int, _meta("processes that serve", "a whole number from 1 to 64", ge=1, le=64)] = 1
    max_body: Annotated[int, _size("largest request body", _KIB, 2 * _GIB)] = 8 * _MIB
    drain_timeout: Annotated[
        float, _duration("answers in flight may take this long at shutdown", 0, _DAY)
    ] = 30.0


class AuthKey(Section, frozen=True, kw_only=True):
    """One caller's API key and what it may do."""

    key_hash: Annotated[
        str,
        _meta(
            "SHA-256 of the key", "'sha256:' and 64 lower-case hex digits", pattern=r"^sha256:[0-9a-f]{64}$"
        ),
    ]
    tenant: Annotated[str, _meta("whose entries this key sees", _WORD, pattern=_WORD_PATTERN)] = "default"
    rights: Annotated[tuple[Right, ...], Meta(description="what the key may do")] = ("chat",)
    profile: Annotated[
        str, _meta("separates answers within a tenant", _WORD, pattern=_MAYBE_WORD_PATTERN)
    ] = ""
    namespace: Annotated[
        str, _meta("separates entries within a tenant", _WORD, pattern=_MAYBE_WORD_PATTERN)
    ] = ""


class AuthSettings(Section, frozen=True, kw_only=True):
    """Who may call. Without this section only loopback may."""

    keys: Annotated[tuple[AuthKey, ...], Meta(description="the accepted API keys")]


class UpstreamBase(Section, frozen=True, kw_only=True):
    """What every kind of upstream has."""

    name: Annotated[
        str,
        _meta("unique name", "1 to 32 lower-case letters, digits, '_' or '-'", pattern=r"^[a-z0-9_-]{1,32}$"),
    ]
    models: Annotated[
        tuple[Annotated[str, _meta("model", _MODEL, pattern=_MODEL_PATTERN)], ...],
        Meta(description="model names or patterns with * ? [] that it serves"),
    ]
    timeout: Annotated[float, _duration("a whole answer may take this long", 0.001, _DAY)] = 600.0
    connect_timeout: Annotated[float, _duration("connecting may take this long", 0.001, _HOUR)] = 5.0
    idle_timeout: Annotated[float, _duration("longest silence within a body", 0.001, _DAY)] = 120.0


class EmbeddedSettings(UpstreamBase, frozen=True, kw_only=True, tag_field="kind", tag="embedded"):
    """The engine that comes with Stratacache, started and supervised by the gateway."""

    threads: Annotated[int, _meta("CPU threads", "a whole number from 1 to 256", ge=1, le=256)] = 1
    dtype: Annotated[Literal["float32", "bfloat16"], Meta(description="number format of weights and KV")] = (
        "float32"
    )
    kv_memory: Annotated[int, _size("memory for attention keys and values", _MIB)] = 512 * _MIB
    max_context: Annotated[
        int, _meta("longest prompt + answer in tokens", "a whole number from 64 to 1048576", ge=64, le=2**20)
    ] = 4096
    block_size: Annotated[Literal[16, 32], Meta(description="tokens per KV block")] = 16
    model_dir: Annotated[
        str | None, Meta(description="a converted model folder; null is the packaged model")
    ] = None
    start_timeout: Annotated[float, _duration("requests wait this long for a starting engine", 0, _HOUR)] = (
        60.0
    )


class OpenAISettings(UpstreamBase, frozen=True, kw_only=True, tag_field="kind", tag="openai"):
    """Any server that speaks the OpenAI API."""

    base_url: Annotated[str, Meta(description="http(s) URL up to and including /v1")]
    api_key_env: Annotated[
        str | None,
        _meta(
            "environment variable that holds its key; without a key the caller's own is passed on",
            "the NAME of an environment variable: upper-case letters, digits and '_'",
        ),
    ] = None
    api_key_file: Annotated[str | None, Meta(description="file that holds its key")] = None


UpstreamSettings = EmbeddedSettings | OpenAISettings


class ExactSettings(Section, frozen=True, kw_only=True):
    """L1: the whole request repeats."""

    enabled: Annotated[bool, Meta(description="answer exact repeats")] = True
    history_window: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)] | Literal["all"],
        _meta("turns of a conversation that a key holds", "all or a whole number of turns from 1 to 10000"),
    ] = "all"
    budget: Annotated[float, _duration("a lookup that takes longer is a miss", 0.001, 60)] = 0.05
    max_entry: Annotated[int, _size("larger answers are not stored", _KIB, _GIB)] = _MIB
    near_cache_bytes: Annotated[
        int, _size("memory of each process for copies of a shared store's entries; 0 for none", 0)
    ] = 64 * _MIB
    negative_ttl: Annotated[float, _duration("'no answer' is remembered this long; 0 for not", 0, _DAY)] = (
        120.0
    )
    negative_on: Annotated[
        tuple[Literal["empty", 404, 410, 422], ...],
        Meta(description="what counts as 'no answer': an empty answer, and statuses of the upstream"),
    ] = ("empty", 404, 422)
    negative_markers: Annotated[
        tuple[
            Annotated[str, _meta("text", "a text of 1 to 1000 characters", min_length=1, max_length=1000)],
            ...,
        ],
        Meta(description="an answer that contains one of these texts counts as 'no answer'"),
    ] = ()
    admission: Annotated[
        Literal["open", "shed", "closed"],
        Meta(description="whether questions that were never seen before may reach the upstream"),
    ] = "open"
    default_answer: Annotated[
        str | None,
        Meta(description="what is said instead of asking the upstream; null: refused with status 429"),
    ] = None
    shed_above: Annotated[
        int,
        _meta(
            "calls in flight to one upstream from which on it counts as saturated",
            "a whole number from 1 to 100000",
            ge=1,
            le=100_000,
        ),
    ] = 64
    filter_capacity: Annotated[
        int,
        _meta(
            "questions that the filter of questions seen has room for",
            "a whole number from 1000 to 1000000000",
            ge=1000,
            le=10**9,
        ),
    ] = 1_000_000
    filter_error: Annotated[
        float,
        _meta(
            "share of new questions that the filter may take for seen ones",
            "a number from 0.000001 to 0.5",
            ge=1e-6,
            le=0.5,
        ),
    ] = 0.01


class SemanticSettings(Section, frozen=True, kw_only=True):
    """L2: the meaning repeats. Not available in this version."""

    enabled: Annotated[bool, Meta(description="only false in this version")] = False


class PromptSettings(Section, frozen=True, kw_only=True):
    """L3: the prefix repeats at a provider. Not available in this version."""

    enabled: Annotated[bool, Meta(description="only false in this version")] = False


class KvSettings(Section, frozen=True, kw_only=True):
    """L4: the prefix repeats in the embedded engine."""

    enabled: Annotated[bool, Meta(description="reuse keys and values of shared prefixes")] = True


class TiersSettings(Section, frozen=True, kw_only=True):
    """The cache's layers."""

    order: Annotated[
        tuple[TierName, ...], Meta(description="answering tiers in the order that they are asked")
    ] = ("exact",)
    exact: ExactSettings = ExactSettings()
    semantic: SemanticSettings = SemanticSettings()
    prompt: PromptSettings = PromptSettings()
    kv: KvSettings = KvSettings()


_Patterns = tuple[
    Annotated[
        str, _meta("pattern", "a value or pattern of 1 to 256 characters", min_length=1, max_length=256)
    ],
    ...,
]


class MatchSettings(Section, frozen=True, kw_only=True):
    """Which requests belong to a scene: all kinds of conditions that are given must hold. Patterns have * ? []."""

    headers: Annotated[
        Mapping[str, str], Meta(description="header names and patterns of their values; all hold")
    ] = {}
    routes: Annotated[
        _Patterns, Meta(description="paths such as /v1/chat/completions; one of them holds")
    ] = ()
    models: Annotated[_Patterns, Meta(description="models, aliases resolved; one of them holds")] = ()
    tags: Annotated[
        _Patterns, Meta(description="tags of the request; one of them holds for one of its tags")
    ] = ()


class SceneSettings(Section, frozen=True, kw_only=True):
    """How the answers of one kind of traffic are cached."""

    ttl: Annotated[float, _duration("life of an answer", 1)] = _HOUR
    jitter: Annotated[
        float,
        _meta("the ttl varies by this part either way", "a number from 0 to below 1", ge=0, lt=1),
    ] = 1 / 6
    exact: Annotated[bool, Meta(description="the exact tier answers and stores")] = True
    semantic: Annotated[bool, Meta(description="only off in this version")] = False
    stale_if_error: Annotated[
        float,
        _duration("an expired answer still serves this long when the upstream fails; 0 for not", 0, 7 * _DAY),
    ] = 0.0
    early_refresh: Annotated[
        float,
        _meta(
            "how eagerly an entry that is asked for is renewed before it expires; 0 for never",
            "a number from 0 to 100",
            ge=0,
            le=100,
        ),
    ] = 1.0
    match: Annotated[
        MatchSettings | None, Meta(description="which requests it is for; null: only those that name it")
    ] = None


DEFAULT_SCENE = "default"
BUILT_IN_SCENES: Mapping[str, SceneSettings] = {
    DEFAULT_SCENE: SceneSettings(),
    "small_talk": SceneSettings(ttl=10 * _MINUTE),
    "knowledge": SceneSettings(ttl=_HOUR),
    "realtime": SceneSettings(ttl=2 * _MINUTE),
    "business": SceneSettings(ttl=30 * _MINUTE),
    "general": SceneSettings(ttl=_DAY),
}
"""There without configuration. What a configuration says of one of them changes these values, and leaves the rest."""


class VersionsSettings(Section, frozen=True, kw_only=True):
    """Invalidation by versions of tags."""

    grace: Annotated[
        float,
        _duration("answers that are under way when their tag is invalidated get this long to end", 0, _HOUR),
    ] = 30.0


class AuditSettings(Section, frozen=True, kw_only=True):
    """The record of invalidations."""

    path: Annotated[str | None, Meta(description="file that they are noted in; null for none")] = (
        ".stratacache/audit.jsonl"
    )


class Settings(Section, frozen=True, kw_only=True):
    """The whole configuration. Build it with ``settings.load``, which checks it."""

    server: ServerSettings = ServerSettings()
    auth: Annotated[AuthSettings | None, Meta(description="null: loopback only, no keys")] = None
    upstreams: Annotated[tuple[UpstreamSettings, ...], Meta(description="the model servers")] = (
        EmbeddedSettings(name="local", models=(EMBEDDED_MODEL,)),
    )
    aliases: Annotated[Mapping[str, str], Meta(description="other names for models")] = {}
    store: Annotated[
        str,
        Meta(
            description="memory://, sqlite:///path, rocksdb:///path, redis://host, redis+cluster://h1,h2, "
            "redis+sentinel://h1,h2/master (rediss for TLS) or memcached://h1,h2"
        ),
    ] = "sqlite:///.stratacache/cache.db"
    store_max_bytes: Annotated[int, _size("the store keeps at most this much", _MIB)] = _GIB
    tiers: TiersSettings = TiersSettings()
    scenes: Annotated[Mapping[str, SceneSettings], Meta(description="kinds of traffic")] = msgspec.field(
        default_factory=lambda: dict(BUILT_IN_SCENES)
    )
    versions: VersionsSettings = VersionsSettings()
    audit: AuditSettings = AuditSettings()

    def masked(self) -> dict[str, Any]:
        """Plain values as in the file (durations in seconds, sizes in bytes) with every secret hidden."""
        return masked(self)
