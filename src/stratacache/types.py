"""The values that travel through Stratacache: one frozen request, its key, stored entries and verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

# gc=False below: such values are in no cycle, and a full store has many of them; the collector would stall the
# event loop for as long as it takes to visit them all.

Version = tuple[str, int]
"""A tag and a version of it; a version is never used twice for a tag."""

Versions = tuple[Version, ...]
"""Tags, in order, with the version that each had at one moment."""

JSON = Any  # a value made by msgspec.json.decode: dict, list, str, int, float, bool or None

TierName = Literal["exact", "semantic"]
Right = Literal["chat", "admin"]


class Secret(str):
    """A string that does not show itself in a repr, and so in no log or traceback."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


class Scope(msgspec.Struct, frozen=True, gc=False):
    """Who asks and with what rights; made only by ``gateway.auth`` and required by every lookup and write.

    ``credential`` is the digest of a client credential that is forwarded upstream ("" when none is), so two
    callers with keys of their own never share an answer. ``principal`` tells the API keys of a tenant apart, for limits
    and corroboration; it is in no key.
    """

    tenant: str = "default"
    namespace: str = ""
    profile: str = ""
    credential: str = ""
    rights: frozenset[Right] = frozenset({"chat"})
    principal: str = ""


class CacheControl(msgspec.Struct, frozen=True, gc=False):
    """What the caller asked of the cache; callers may only be stricter than the configuration.

    ``max_age`` and ``ttl`` are seconds; ``tiers`` is None when the caller named none. ``admit`` lets a new question
    into a closed set, for administrators. ``min_fresh``: seconds that an entry must have left; ``stale_if_error``: the
    most seconds past its life that one may answer when the upstream fails, None for as long as the scene allows.
    ``min_confidence``: the least confidence of a semantic hit.
    """

    no_store: bool = False
    no_cache: bool = False
    only_if_cached: bool = False
    max_age: float | None = None
    ttl: float | None = None
    tiers: frozenset[str] | None = None
    scene: str = "default"
    tags: tuple[str, ...] = ()
    admit: bool = False
    min_fresh: float = 0.0
    stale_if_error: float | None = None
    min_confidence: float = 0.0


class Request(msgspec.Struct, frozen=True, gc=False):
    """One model request, whatever dialect it came in. Nothing downstream changes it.

    ``model`` is what the client wrote, ``resolved_model`` what the alias table made of it, ``upstream`` the
    configured upstream that serves it and ``server`` what stands behind that name. ``body`` is the wire
    JSON without fields addressed to the cache. ``headers`` are the few client headers that are forwarded and may
    change the answer (lower-case names).
    ``credential`` is the client's Authorization value when it is to be forwarded, else "". It is a secret: the
    key holds only its digest, through ``scope``.
    """

    endpoint: str
    model: str
    resolved_model: str
    upstream: str
    body: Mapping[str, JSON]
    scope: Scope
    control: CacheControl
    stream: bool = False
    include_usage: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    credential: Secret = Secret()
    conversation: str = ""
    server: str = ""


class Key(msgspec.Struct, frozen=True, gc=False):
    """An exact key: ``digest`` is the first 16 bytes of SHA-256 of ``form``, the canonical encoding.

    A hit compares ``form`` too. The digest is no longer than the public id, so an id is all it takes to find an entry.
    """

    digest: bytes
    form: bytes

    @property
    def entry_id(self) -> str:
        """The public id of the entry under this key: 32 hex digits."""
        return self.digest.hex()


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Token counts as the upstream reported them; None is "not reported", which is not 0.

    ``prompt`` is the whole prompt: what the provider's cache read (``cached_prompt``), what was written to it for five
    minutes or an hour, and the rest, ``fresh``. The parts never exceed it, and are None without it.
    """

    prompt: int | None = None
    completion: int | None = None
    cached_prompt: int | None = None
    written_5m: int | None = None
    written_1h: int | None = None

    @property
    def total(self) -> int:
        return (self.prompt or 0) + (self.completion or 0)

    @property
    def written(self) -> int | None:
        """Tokens written to the provider's cache, whatever their life."""
        if self.written_5m is None and self.written_1h is None:
            return None
        return (self.written_5m or 0) + (self.written_1h or 0)

    @property
    def fresh(self) -> int | None:
        """Prompt tokens that no cache had to do with, as far as that was reported."""
        if self.prompt is None:
            return None
        return self.prompt - (self.cached_prompt or 0) - (self.written or 0)


Purpose = Literal["answer", "refresh", "check", "judge", "embedding"]
"""What a call was made for: a client; an entry fetched anew; a fresh answer to compare a stored one with; a model's
opinion on such a pair; a question's vector."""


class Call(msgspec.Struct, frozen=True, gc=False):
    """A call that was answered in full, with whatever ``status``, after ``seconds``.

    ``tenant`` is for whom, "" where the gateway called for itself. ``upstream`` is its configured name. ``limit`` is
    the longest answer, in tokens, that was asked for, None where the request names none.
    """

    upstream: str
    model: str
    usage: Usage
    tenant: str = ""
    purpose: Purpose = "answer"
    endpoint: str = ""
    status: int = 200
    seconds: float = 0.0
    limit: int | None = None


class Saving(msgspec.Struct, frozen=True, gc=False):
    """Tokens that were not asked of an upstream, since ``tier`` answered a request of ``tenant`` for ``model``."""

    tier: TierName
    tenant: str
    model: str
    prompt: int
    completion: int


class Entry(msgspec.Struct, frozen=True, gc=False):
    """What a store keeps under ``key.digest``.

    ``body`` is the complete answer as the dialect's non-streamed JSON, ``status`` the HTTP status that it came with.
    Times are seconds since the epoch: from ``expires_at`` on the entry answers no more, except, up to
    ``stale_until``, when the upstream fails. ``versions`` are those of its tags as of the start of the request that
    was answered. ``seconds`` is what the upstream took; ``negative`` marks a remembered "no answer".
    """

    form: bytes
    body: bytes
    created_at: float
    expires_at: float
    tenant: str = "default"
    model: str = ""
    versions: Versions = ()
    prompt_tokens: int = 0
    completion_tokens: int = 0
    stale_until: float = 0.0
    seconds: float = 0.0
    status: int = 200
    negative: bool = False

    @property
    def size(self) -> int:
        """Payload bytes: what the entry costs a store before that store's own overhead."""
        return len(self.form) + len(self.body)

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple([tag for tag, _ in self.versions])

    @property
    def gone_at(self) -> float:
        """From then on no store returns the entry, in seconds since the epoch."""
        # Not max(): NaN, which is no time, must stay NaN whichever of the two it is.
        return self.stale_until if self.stale_until > self.expires_at else self.expires_at


class Absent(msgspec.Struct, frozen=True, gc=False):
    """A store has no entry that may answer.

    ``reason``: ``not_found``; ``outdated``, one of its tags was invalidated since; ``untagged``, it does not carry
    every tag that was asked for, so an invalidation could miss it. ``versions`` hold the asked tags, and those that
    the refused entry carried, as of this look-up: the snapshot that a new answer is stored under.
    """

    reason: Literal["not_found", "outdated", "untagged"]
    versions: Versions


PutResult = Literal["stored", "declined", "outdated"]


class Invalidated(msgspec.Struct, frozen=True):
    """What an invalidation did, or would do.

    ``affected``: at most so many entries are gone, None when the store cannot tell; entries that expired unnoticed
    are counted in. ``versions`` of the named tags after it.
    """

    affected: int | None
    versions: Versions


class Question(msgspec.Struct, frozen=True, gc=False):
    """What the semantic index keeps of an entry; ``digest`` is that of the entry's exact key.

    ``partition`` (16 bytes) is the digest of all that must be equal between two requests for one to be answered with
    the other's answer; only the ``text`` of the question may differ. ``principal`` is who asked, a digest;
    ``witnesses`` are the other principals whose own fresh answer agreed. Times are seconds since the epoch.
    """

    digest: bytes
    partition: bytes
    text: str
    created_at: float
    expires_at: float
    principal: str = ""
    witnesses: tuple[str, ...] = ()


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """A stored question near an asked one; ``similarity`` is the cosine of their vectors."""

    question: Question
    similarity: float


class IndexStats(msgspec.Struct, frozen=True):
    """An index's own counts; ``bytes`` are vectors, graph and questions, estimated."""

    vectors: int
    partitions: int
    bytes: int


class StoreStats(msgspec.Struct, frozen=True):
    """A store's own counts; ``bytes`` is payload plus the store's estimate of its overhead."""

    entries: int
    bytes: int
    evictions: int = 0
    rejections: int = 0


class Hit(msgspec.Struct, frozen=True, gc=False):
    """A tier answered; ``age`` in seconds.

    Of a semantic hit ``digest`` is the entry's, which is not that of the request's own key; ``similarity`` is the
    cosine of the questions, ``confidence`` the probability that the answer serves.
    """

    entry: Entry
    tier: TierName
    reason: str
    age: float
    digest: bytes | None = None
    similarity: float | None = None
    confidence: float | None = None


class Miss(msgspec.Struct, frozen=True, gc=False):
    """A tier looked and has no answer; ``reason`` is a word from ``docs/guide/reasons.md``.

    ``versions`` is the snapshot that an answer begun now is stored under, None when the store gave none: then nothing
    may be stored. ``stale`` is an entry past its time that may answer when the upstream fails.
    """

    reason: str
    versions: Versions | None = None
    stale: Entry | None = None


Outcome = Literal["hit", "miss", "bypass", "stale"]


class Decision(msgspec.Struct, frozen=True, gc=False):
    """What happened to one request; becomes response headers, metrics and the ledger.

    ``stages`` are (name, seconds) in the order they ran. ``age`` is seconds, None unless an entry answered.
    ``similarity`` and ``confidence`` are those of a semantic hit. ``user`` is who asked, as the client or else the API
    key says it, "" when neither does: it is told apart and never shown. ``prompt_divergence`` says where the prompt
    parts from the one before it, as its header does.
    """

    endpoint: str
    model: str
    scene: str
    outcome: Outcome
    reason: str
    tier: TierName | None = None
    entry_id: str | None = None
    age: float | None = None
    saved_tokens: int = 0
    prompt_tokens_cached: int | None = None
    upstream: str | None = None
    stages: tuple[tuple[str, float], ...] = ()
    similarity: float | None = None
    confidence: float | None = None
    tenant: str = ""
    user: str = ""
    prompt_divergence: str = ""
