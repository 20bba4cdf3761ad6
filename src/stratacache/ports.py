"""The seams between decisions and the world: what stores, upstreams, recorders and clocks must do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from stratacache.types import JSON, Decision, Entry, Request, StoreStats, TierName, Usage


class Clock(Protocol):
    """Time, injected. Never goes through a mock: tests pass a clock that they move."""

    def now(self) -> float:
        """Seconds since the epoch; may jump, so it is used only for ages that cross processes."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back; used for durations and deadlines."""
        ...


class Store(Protocol):
    """Bytes and metadata under a digest. Knows neither tenants' rules nor LLMs.

    Every method may raise StoreError and is safe to call concurrently from one event loop. An Entry is
    immutable and stays valid for ever, also after it is evicted.

    ``waits`` is False when no method ever suspends: then there is nothing to put a time limit on, which spares
    the hit path the cost of one.
    """

    waits: bool

    async def get(self, digest: bytes) -> Entry | None:
        """The entry under ``digest`` unless absent or expired. Mutates only recency and statistics."""
        ...

    async def put(self, digest: bytes, entry: Entry) -> bool:
        """Store or replace, all or nothing; False when the store's admission policy declined."""
        ...

    async def delete(self, digests: Sequence[bytes]) -> int:
        """Remove; returns how many were present."""
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


class Recorder(Protocol):
    """Takes note of what happened; cheap, never raises, never blocks."""

    def decided(self, decision: Decision) -> None:
        """One request was answered (or refused by its upstream)."""
        ...

    def called(self, upstream: str, seconds: float, usage: Usage) -> None:
        """One upstream call was answered in full after ``seconds``."""
        ...

    def saved(self, tier: TierName, tokens: int) -> None:
        """``tokens`` (prompt + completion) were not asked of an upstream."""
        ...

    def wrote(self, result: str) -> None:
        """One write-back settled: ``stored``, ``declined``, ``failed``, ``dropped``, ``expired``, ``superseded``."""
        ...

    def withheld(self, reason: str) -> None:
        """A finished answer was not stored; ``reason`` is the word that says why."""
        ...

    def followed(self) -> None:
        """One request joined another's upstream call."""
        ...


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
