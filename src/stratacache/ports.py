"""The seams between decisions and the world: what stores, upstreams, recorders and clocks must do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Container, Mapping, Sequence
from typing import Literal, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from stratacache.types import (
    JSON,
    Absent,
    Call,
    Candidate,
    Decision,
    Entry,
    IndexStats,
    Invalidated,
    PutResult,
    Question,
    Request,
    Saving,
    StoreStats,
)


class Clock(Protocol):
    """Time, injected. Never goes through a mock: tests pass a clock that they move."""

    def now(self) -> float:
        """Seconds since the epoch; may jump, so it is used only for ages that cross processes."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back; used for durations and deadlines."""
        ...


class Store(Protocol):
    """Bytes and metadata under a digest, and the versions of tags. Knows neither tenants' rules nor LLMs.

    A tag gets a version when it is first asked for. A version is never used twice for a tag, so losing one (an
    eviction, a restart) makes entries miss and never revives one. Every method may raise StoreError and is safe to call
    concurrently from one event loop. An Entry is immutable and stays valid for ever, also after it is evicted.

    ``waits`` is False when no method ever suspends: then there is nothing to put a time limit on, which spares
    the hit path the cost of one.
    """

    waits: bool

    async def get(self, digest: bytes, tags: Sequence[str] = ()) -> Entry | Absent:
        """The entry under ``digest`` if it carries all of ``tags`` and no tag of its was invalidated since.

        Mutates only recency, statistics and versions that did not exist. Linearizable with ``invalidate``: a call that
        begins after an invalidation returned never gives an entry that it hit, whatever instance made it.
        """
        ...

    async def put(self, digest: bytes, entry: Entry) -> PutResult:
        """Store or replace, all or nothing.

        ``declined``: by the admission policy, or dead on arrival. ``outdated``: a tag in ``entry.versions`` has
        another version by now; what is under ``digest`` stays.
        """
        ...

    async def invalidate(
        self, tags: Sequence[str], digests: Sequence[bytes] = (), *, dry_run: bool = False
    ) -> Invalidated:
        """Give every tag a new version, in O(1) of its entries, and remove ``digests``; ``dry_run`` only tells.

        To fence answers in flight for a digest, name a tag that they carry (``policy.tags`` has one for each).
        When it returns, no instance serves what it hit. A StoreError means that some may.
        """
        ...

    async def stats(self) -> StoreStats:
        """Counts as of now. Does not mutate."""
        ...

    async def check(self) -> None:
        """Raise StoreError naming the first broken invariant. Does not mutate. For tests and ``doctor``."""
        ...

    async def close(self) -> None:
        """Release files and threads; further calls raise StoreError. Idempotent."""
        ...


class Page(msgspec.Struct, frozen=True):
    """Some entries with their digests; ``after`` is the position that the next ones follow, None at the end."""

    entries: Sequence[tuple[bytes, Entry]]
    after: bytes | None


class Listing(Protocol):
    """A store that can name its entries."""

    async def scan(self, after: bytes, count: int, *, dead: bool = False) -> Page:
        """About ``count`` entries that may answer now, from position ``after`` (b"" for the first); maybe none.

        What is there all the while is named at least once; what changes meanwhile may be. Neither expired nor
        invalidated entries are, unless ``dead`` asks for all that is still kept. Does not mutate, not even recency.
        Raises StoreError.
        """
        ...


class Bulletin(Protocol):
    """News of the invalidations that any instance makes, for copies kept beside a shared store."""

    def current(self) -> bool:
        """Whether every invalidation that has returned anywhere was heard here. No I/O; never raises."""
        ...

    async def start(self, hear: Callable[[Invalidated | None, Sequence[bytes]], None]) -> None:
        """Call ``hear(what, digests)`` for each invalidation from now on, in order; with None when some were lost:
        then nothing that was copied before may be trusted. Repeats are possible."""
        ...

    async def close(self) -> None:
        """Stop. ``current`` is False from then on. Idempotent."""
        ...


class Standing(msgspec.Struct, frozen=True):
    """A leader's lease: still ``held``, and ``wanted`` once another instance follows."""

    held: bool
    wanted: bool


class Followed(msgspec.Struct, frozen=True):
    """What a follower got: new frames, and whether somebody leads (False: landed and forgotten, or dead)."""

    frames: Sequence[bytes]
    led: bool


class Relay(Protocol):
    """Single-flight across instances: who calls the upstream for a place, and what it hears, for those elsewhere.

    Every method may raise StoreError and is safe to call concurrently from one event loop. All state expires by itself.
    """

    async def claim(self, place: bytes, seconds: float) -> bool:
        """Lead ``place`` for ``seconds`` unless anybody does (this instance included); forgets earlier frames."""
        ...

    async def renew(self, place: bytes, seconds: float) -> Standing:
        """Hold the lease ``seconds`` from now, if it is still this instance's. Frames live as long."""
        ...

    async def publish(self, place: bytes, frames: Sequence[bytes]) -> None:
        """Append frames for followers; nothing happens unless this instance leads."""
        ...

    async def follow(self, place: bytes, heard: int) -> Followed:
        """Frames from number ``heard`` on. Says that the flight is wanted; waits at most 0.25 s for news.

        With ``heard`` above 0 they are of the flight that was heard before, never of a later one at the same place.
        """
        ...

    async def release(self, place: bytes, *, keep: float = 0.0) -> None:
        """Give up the lease; frames stay ``keep`` seconds for followers who have not read them all."""
        ...

    async def close(self) -> None:
        """Stop waiting calls with StoreError. Idempotent."""
        ...


class FilterStats(msgspec.Struct, frozen=True):
    """``questions`` noted (estimated), ``fill`` the share of bits set in the fuller generation, and the
    false-positive rate: ``expected`` from the fill, ``measured`` by asking for questions that nobody asked."""

    questions: int
    capacity: int
    fill: float
    expected: float
    measured: float


class QuestionFilter(Protocol):
    """Which questions were handled before: a set with false positives at a bounded rate and, within its capacity, no
    false negatives. Every method may raise StoreError."""

    async def seen(self, digest: bytes) -> bool:
        """Whether ``digest`` was noted. Does not mutate."""
        ...

    async def note(self, digest: bytes) -> bool:
        """Remember ``digest``; returns whether it had been seen before."""
        ...

    async def stats(self) -> FilterStats:
        """As of now. Does not mutate."""
        ...

    async def close(self) -> None:
        """Release files. Idempotent."""
        ...


Event = Literal["follower", "refresh", "restart", "relay_failed", "near_hit", "question_new", "question_seen"]
"""``follower``: a request joined another's upstream call; ``refresh``: an entry was fetched anew before it expired;
``restart``: a call was begun anew after an invalidation; ``relay_failed``: a call was made without asking other
instances; ``near_hit``: the copy beside a shared store answered; ``question_new``/``_seen``: what the filter of handled
questions said of one that had to be answered."""


class Recorder(Protocol):
    """Takes note of what happened; cheap, never raises, never blocks."""

    def decided(self, decision: Decision) -> None:
        """One request was answered (or refused by its upstream)."""
        ...

    def called(self, call: Call) -> None:
        """One call was answered in full, and is paid for."""
        ...

    def saved(self, saving: Saving) -> None:
        """A request was answered without a call of its own."""
        ...

    def wrote(self, result: str) -> None:
        """One write-back settled: ``stored``, ``declined``, ``failed``, ``dropped``, ``expired``, ``superseded``,
        ``outdated``."""
        ...

    def withheld(self, reason: str) -> None:
        """A finished answer was not stored; ``reason`` is the word that says why."""
        ...

    def counted(self, event: Event) -> None:
        """Something happened that is worth a counter of its own."""
        ...


Vector = NDArray[np.float32]
"""A unit vector, shape (dimension,)."""


class Embedder(Protocol):
    """Turns a question into a vector. Vectors of different fingerprints are never compared.

    Safe for concurrent use; never blocks the event loop.
    """

    @property
    def fingerprint(self) -> str:
        """Model, weights, and the rules applied to the text."""
        ...

    @property
    def dimension(self) -> int:
        """Numbers in a vector."""
        ...

    async def embed(self, text: str) -> Vector:
        """The unit vector of ``text``. Raises ModelError: down, overloaded, or no finite vector of ``dimension``."""
        ...

    async def close(self) -> None:
        """Release threads and connections. Idempotent."""
        ...


class Similarity(msgspec.Struct, frozen=True):
    """The ``cosine`` of two questions' vectors, which the embedder of that fingerprint made."""

    cosine: float
    embedder: str


class Verdict(msgspec.Struct, frozen=True):
    """Calibrated, in [0, 1], that one answer serves both questions: ``probability`` by all that is known of them,
    ``alone`` by reading them and nothing else."""

    probability: float
    alone: float


class Verifier(Protocol):
    """Says whether one answer serves two questions. Safe for concurrent use; never blocks the event loop."""

    @property
    def fingerprint(self) -> str:
        """Model, weights and calibration."""
        ...

    async def verify(self, asked: str, stored: str, similarity: Similarity) -> Verdict:
        """Whether the answer to ``stored`` serves ``asked``, the same with the questions exchanged.

        ``similarity`` counts where it is known how much that embedder's says, else not. Raises ModelError: down or
        overloaded.
        """
        ...

    async def close(self) -> None:
        """Release threads. Idempotent."""
        ...


class VectorIndex(Protocol):
    """Stored questions by partition, nearest first. Every method may raise VectorIndexError.

    Safe to call concurrently from one event loop and never blocks it. All vectors are of one fingerprint.
    """

    async def search(self, partition: bytes, vector: Vector, count: int) -> Sequence[Candidate]:
        """At most ``count`` questions of ``partition`` that have not expired, by falling similarity. No mutation."""
        ...

    async def add(self, question: Question, vector: Vector) -> None:
        """Insert, or replace what is under ``question.digest``, all or nothing."""
        ...

    async def remove(self, digests: Sequence[bytes]) -> None:
        """Forget the questions under ``digests``; those that are not there are no error."""
        ...

    async def stats(self) -> IndexStats:
        """As of now. Does not mutate."""
        ...

    async def check(self) -> None:
        """Raise VectorIndexError naming the first broken invariant. Does not mutate."""
        ...

    async def close(self) -> None:
        """Save what is to be kept and release files and threads. Idempotent."""
        ...


class LogRecord(msgspec.Struct, frozen=True, gc=False):
    """One change of the stored questions: ``question`` was added (with ``vector``, float16 little-endian, made by the
    embedder ``fingerprint``), or with ``vector`` empty, the question under its digest was removed."""

    question: Question
    vector: bytes = b""
    fingerprint: str = ""


class QuestionLog(Protocol):
    """The changes of the stored questions, in one order for all instances; each follows it into an index of its own.

    Bounded: the oldest records are dropped. What is not a record of ours is passed over, and counted in ``skipped``.
    Every method may raise StoreError and is safe to call concurrently from one event loop.
    """

    @property
    def skipped(self) -> int:
        """Records passed over, by this instance."""
        ...

    async def append(self, records: Sequence[LogRecord]) -> None:
        """Add at the end, durably as the store is durable."""
        ...

    async def read(self, after: bytes, count: int) -> Sequence[tuple[bytes, LogRecord]]:
        """At most ``count`` records that follow position ``after`` (b"" for the oldest kept), each with its position.

        Records whose question has expired may be missing; the order is that of ``append`` on every instance. Raises
        LogGap when what followed ``after`` is not known any more: dropped, lost with the store, or never there.
        """
        ...

    async def forget(self, keep: Container[bytes], until: float) -> int:
        """Erase the questions made until ``until``, in seconds since the epoch, whose digests are not in ``keep``.

        All instances are told that they are gone. Returns how many there were.
        """
        ...

    async def wait(self, after: bytes, seconds: float) -> None:
        """Return when there may be something after ``after``, at the latest after ``seconds``."""
        ...

    async def close(self) -> None:
        """Stop waiting calls. Idempotent."""
        ...


ANSWERED_BY = "x-strata-upstream"
"""The response header in which an upstream of several servers says which of them answered. None comes from outside."""


class UpstreamResponse(Protocol):
    """One response of an upstream. Valid until ``close``; ``close`` before the end aborts the call."""

    status: int
    headers: Mapping[str, str]  # lower-case names

    async def read(self) -> bytes:
        """The whole body; raises UpstreamError when it breaks off."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Raw body bytes as they arrive; raises UpstreamError when the body breaks off."""
        ...

    async def close(self) -> None:
        """Free the connection. Idempotent."""
        ...


class Upstream(Protocol):
    """A model server. Safe for concurrent use."""

    name: str
    forwards_credentials: bool  # True: the client's own Authorization is what the upstream sees

    async def send(
        self, request: Request, body: Mapping[str, JSON], headers: Mapping[str, str]
    ) -> UpstreamResponse:
        """Send ``body`` for ``request.endpoint``; any HTTP status is a response, all else UpstreamError."""
        ...

    async def forward(
        self, method: str, path: str, query: str, body: bytes, headers: Mapping[str, str]
    ) -> UpstreamResponse:
        """Pass ``path`` (below ``/v1``) through unchanged."""
        ...

    async def start(self) -> None:
        """Make ready (open the pool, start a supervised process). Returns before a slow start is done."""
        ...

    async def ready(self) -> bool:
        """True when a request sent now can be answered. Never raises."""
        ...

    async def close(self) -> None:
        """Release connections and stop supervised processes. Idempotent."""
        ...
