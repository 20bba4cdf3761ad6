"""The settings tree: every key that this version honours, with type, default, bounds and meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from stratacache.settings.mask import masked
from stratacache.settings.observe import ObserveSettings
from stratacache.settings.prompt import PromptSettings
from stratacache.settings.section import (
    DAY,
    GIB,
    HOUR,
    KIB,
    MAYBE_WORD_PATTERN,
    MIB,
    MINUTE,
    MODEL,
    MODEL_PATTERN,
    WORD,
    WORD_PATTERN,
    Section,
    duration,
    meta,
    size,
)
from stratacache.settings.semantic import SemanticSettings
from stratacache.types import Right, TierName

EMBEDDED_MODEL = "smollm2-135m"


class ServerSettings(Section, frozen=True, kw_only=True):
    """Where the gateway listens."""

    host: Annotated[
        str,
        meta("address to listen on", "a host name or an IP address", pattern=r"^[A-Za-z0-9.:_-]{1,255}$"),
    ] = "127.0.0.1"
    port: Annotated[int, meta("0 takes a free port", "a port from 0 to 65535", ge=0, le=65535)] = 8900
    workers: Annotated[int, meta("processes that serve", "a whole number from 1 to 64", ge=1, le=64)] = 1
    max_body: Annotated[int, size("largest request body", KIB, 2 * GIB)] = 8 * MIB
    drain_timeout: Annotated[float, duration("answers in flight may take this long at shutdown", 0, DAY)] = (
        30.0
    )


class AuthKey(Section, frozen=True, kw_only=True):
    """One caller's API key and what it may do."""

    key_hash: Annotated[
        str,
        meta(
            "SHA-256 of the key", "'sha256:' and 64 lower-case hex digits", pattern=r"^sha256:[0-9a-f]{64}$"
        ),
    ]
    tenant: Annotated[str, meta("whose entries this key sees", WORD, pattern=WORD_PATTERN)] = "default"
    rights: Annotated[tuple[Right, ...], Meta(description="what the key may do")] = ("chat",)
    profile: Annotated[str, meta("separates answers within a tenant", WORD, pattern=MAYBE_WORD_PATTERN)] = ""
    namespace: Annotated[str, meta("separates entries within a tenant", WORD, pattern=MAYBE_WORD_PATTERN)] = (
        ""
    )


class AuthSettings(Section, frozen=True, kw_only=True):
    """Who may call. Without this section only loopback may."""

    keys: Annotated[tuple[AuthKey, ...], Meta(description="the accepted API keys")]
    secret_env: Annotated[
        str | None,
        meta(
            "environment variable with the server's secret, which tenants' KV salts are made from; null: a random one "
            "kept beside the store",
            "the NAME of an environment variable: upper-case letters, digits and '_'",
        ),
    ] = None


class UpstreamBase(Section, frozen=True, kw_only=True):
    """What every kind of upstream has."""

    name: Annotated[
        str,
        meta("unique name", "1 to 32 lower-case letters, digits, '_' or '-'", pattern=r"^[a-z0-9_-]{1,32}$"),
    ]
    models: Annotated[
        tuple[Annotated[str, meta("model", MODEL, pattern=MODEL_PATTERN)], ...],
        Meta(description="model names or patterns with * ? [] that it serves"),
    ]
    timeout: Annotated[float, duration("a whole answer may take this long", 0.001, DAY)] = 600.0
    connect_timeout: Annotated[float, duration("connecting may take this long", 0.001, HOUR)] = 5.0
    idle_timeout: Annotated[float, duration("longest silence within a body", 0.001, DAY)] = 120.0


class EmbeddedSettings(UpstreamBase, frozen=True, kw_only=True, tag_field="kind", tag="embedded"):
    """The engine that comes with Stratacache, started and supervised by the gateway."""

    threads: Annotated[int, meta("CPU threads", "a whole number from 1 to 256", ge=1, le=256)] = 1
    dtype: Annotated[Literal["float32", "bfloat16"], Meta(description="number format of weights and KV")] = (
        "float32"
    )
    kv_memory: Annotated[int, size("memory for attention keys and values", MIB)] = 512 * MIB
    max_context: Annotated[
        int, meta("longest prompt + answer in tokens", "a whole number from 64 to 1048576", ge=64, le=2**20)
    ] = 4096
    block_size: Annotated[Literal[16, 32], Meta(description="tokens per KV block")] = 16
    model_dir: Annotated[
        str | None, Meta(description="a converted model folder; null is the packaged model")
    ] = None
    start_timeout: Annotated[float, duration("requests wait this long for a starting engine", 0, HOUR)] = 60.0


class RemoteSettings(UpstreamBase, frozen=True, kw_only=True):
    """A server that is reached over HTTP."""

    base_url: Annotated[str, Meta(description="http(s) URL up to and including /v1")]
    api_key_env: Annotated[
        str | None,
        meta(
            "environment variable that holds its key; without a key the caller's own is passed on",
            "the NAME of an environment variable: upper-case letters, digits and '_'",
        ),
    ] = None
    api_key_file: Annotated[str | None, Meta(description="file that holds its key")] = None
    retries: Annotated[
        int,
        meta(
            "a call that failed is made again this often, elsewhere where that is possible",
            "a whole number from 0 to 10",
            ge=0,
            le=10,
        ),
    ] = 2
    first_byte_timeout: (
        Annotated[float, duration("an answer must begin within; null: within timeout", 0.001, DAY)] | None
    ) = None
    provider: (
        Annotated[
            str,
            meta(
                "whose rules its prompt cache follows; null: by the host's name", WORD, pattern=WORD_PATTERN
            ),
        ]
        | None
    ) = None


class OpenAISettings(RemoteSettings, frozen=True, kw_only=True, tag_field="kind", tag="openai"):
    """Any server that speaks the OpenAI API, or several of them as one."""

    base_url: Annotated[
        str, Meta(description="http(s) URL up to and including /v1; left out with replicas")
    ] = ""
    replicas: Annotated[
        tuple[str, ...], Meta(description="http(s) URLs of servers that would all answer alike")
    ] = ()
    engine: Annotated[
        Literal["vllm", "sglang", "llamacpp"] | None,
        Meta(description="what the servers run: how tenants are kept apart, and their cache's metrics read"),
    ] = None
    probe_interval: Annotated[
        float, duration("replicas that are well are asked how they are this often", 0.1, HOUR)
    ] = 10.0
    reset_on: Annotated[
        tuple[
            Annotated[
                str, meta("tag", "a tag or pattern of 1 to 256 characters", min_length=1, max_length=256)
            ],
            ...,
        ],
        Meta(description="tags or patterns whose invalidation empties the engines' prefix caches"),
    ] = ()


class AnthropicSettings(RemoteSettings, frozen=True, kw_only=True, tag_field="kind", tag="anthropic"):
    """Any server that speaks Anthropic's Messages API."""

    max_tokens: Annotated[
        int,
        meta(
            "the longest answer, in tokens, for OpenAI clients that name none: the API asks for one",
            "a whole number from 1 to 1000000",
            ge=1,
            le=1_000_000,
        ),
    ] = 4096


UpstreamSettings = EmbeddedSettings | OpenAISettings | AnthropicSettings


class ExactSettings(Section, frozen=True, kw_only=True):
    """L1: the whole request repeats."""

    enabled: Annotated[bool, Meta(description="answer exact repeats")] = True
    history_window: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)] | Literal["all"],
        meta("turns of a conversation that a key holds", "all or a whole number of turns from 1 to 10000"),
    ] = "all"
    budget: Annotated[float, duration("a lookup that takes longer is a miss", 0.001, 60)] = 0.05
    max_entry: Annotated[int, size("larger answers are not stored", KIB, GIB)] = MIB
    near_cache_bytes: Annotated[
        int, size("memory of each process for copies of a shared store's entries; 0 for none", 0)
    ] = 64 * MIB
    negative_ttl: Annotated[float, duration("'no answer' is remembered this long; 0 for not", 0, DAY)] = 120.0
    negative_on: Annotated[
        tuple[Literal["empty", 404, 410, 422], ...],
        Meta(description="what counts as 'no answer': an empty answer, and statuses of the upstream"),
    ] = ("empty", 404, 422)
    negative_markers: Annotated[
        tuple[
            Annotated[str, meta("text", "a text of 1 to 1000 characters", min_length=1, max_length=1000)],
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
        meta(
            "calls in flight to one upstream from which on it counts as saturated",
            "a whole number from 1 to 100000",
            ge=1,
            le=100_000,
        ),
    ] = 64
    filter_capacity: Annotated[
        int,
        meta(
            "questions that the filter of questions seen has room for",
            "a whole number from 1000 to 1000000000",
            ge=1000,
            le=10**9,
        ),
    ] = 1_000_000
    filter_error: Annotated[
        float,
        meta(
            "share of new questions that the filter may take for seen ones",
            "a number from 0.000001 to 0.5",
            ge=1e-6,
            le=0.5,
        ),
    ] = 0.01


class KvSettings(Section, frozen=True, kw_only=True):
    """L4: the prefix repeats in the embedded engine, or in one of several replicas."""

    enabled: Annotated[bool, Meta(description="reuse keys and values of shared prefixes")] = True
    affinity: Annotated[bool, Meta(description="ask the replica that holds the prefix")] = True


class TiersSettings(Section, frozen=True, kw_only=True):
    """The cache's layers."""

    order: Annotated[
        tuple[TierName, ...], Meta(description="answering tiers in the order that they are asked")
    ] = ("exact", "semantic")
    exact: ExactSettings = ExactSettings()
    semantic: SemanticSettings = SemanticSettings()
    prompt: PromptSettings = PromptSettings()
    kv: KvSettings = KvSettings()


_Patterns = tuple[
    Annotated[
        str, meta("pattern", "a value or pattern of 1 to 256 characters", min_length=1, max_length=256)
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

    ttl: Annotated[float, duration("life of an answer", 1)] = HOUR
    jitter: Annotated[
        float,
        meta("the ttl varies by this part either way", "a number from 0 to below 1", ge=0, lt=1),
    ] = 1 / 6
    exact: Annotated[bool, Meta(description="the exact tier answers and stores")] = True
    semantic: Annotated[bool, Meta(description="the semantic tier answers and learns")] = True
    max_error: (
        Annotated[
            float,
            meta(
                "share of requests that may get a wrong answer; null: as the semantic tier says",
                "a number from 0.0001 to 0.2",
                ge=0.0001,
                le=0.2,
            ),
        ]
        | None
    ) = None
    stale_if_error: Annotated[
        float,
        duration("an expired answer still serves this long when the upstream fails; 0 for not", 0, 7 * DAY),
    ] = 0.0
    early_refresh: Annotated[
        float,
        meta(
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
    "small_talk": SceneSettings(ttl=10 * MINUTE),
    "knowledge": SceneSettings(ttl=HOUR),
    "realtime": SceneSettings(ttl=2 * MINUTE, semantic=False),
    "business": SceneSettings(ttl=30 * MINUTE),
    "general": SceneSettings(ttl=DAY),
}
"""There without configuration. What a configuration says of one of them changes these values, and leaves the rest."""


class VersionsSettings(Section, frozen=True, kw_only=True):
    """Invalidation by versions of tags."""

    grace: Annotated[
        float,
        duration("answers that are under way when their tag is invalidated get this long to end", 0, HOUR),
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
    store_max_bytes: Annotated[int, size("the store keeps at most this much", MIB)] = GIB
    tiers: TiersSettings = TiersSettings()
    scenes: Annotated[Mapping[str, SceneSettings], Meta(description="kinds of traffic")] = msgspec.field(
        default_factory=lambda: dict(BUILT_IN_SCENES)
    )
    versions: VersionsSettings = VersionsSettings()
    audit: AuditSettings = AuditSettings()
    observe: ObserveSettings = ObserveSettings()
    prices: Annotated[
        str | None, Meta(description="file of what models cost; its rows go before the packaged examples")
    ] = None

    def masked(self) -> dict[str, Any]:
        """Plain values as in the file (durations in seconds, sizes in bytes) with every secret hidden."""
        return masked(self)
