"""One upstream call and everybody who waits for it: single-flight, with live chunks for every listener.

A flight belongs to no client. It runs in a task of its own, so a client that leaves takes nobody with it; the
call is aborted when the last listener has left. Listeners read from one growing list of chunks at their own
pace: a slow client delays neither the upstream nor the others.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from stratacache.dialects.base import Heard
from stratacache.errors import UpstreamError
from stratacache.types import JSON, Key, Usage, Versions

OUTDATED, STORED = "outdated", "stored"
ASK_AGAIN = frozenset({OUTDATED, STORED})
"""Codes of the failures that make everybody on a flight ask again: its answer would be outdated, or was stored
meanwhile, and each is to see for itself whether it is young enough."""


class Head(msgspec.Struct, frozen=True):
    """How the upstream began: ``streaming`` says that chunks follow rather than one body.

    ``divergence``: where the prompt parts from the one before it, as a header says it.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    streaming: bool
    seconds: float
    divergence: str = ""


Chunk = Heard
"""One event of the upstream's stream, as all who listen get it."""


class Landing(msgspec.Struct, frozen=True):
    """How a flight ended well. ``body`` is the whole answer or error body as sent to a client that does not
    stream, ``answer`` its decoded form (None when it is no answer). ``done``: a stream ended with its end mark."""

    body: bytes
    answer: JSON
    usage: Usage
    done: bool


class Flight:
    """The shared state of one upstream call. Everything here runs on one event loop, without locks.

    ``key`` is what the answer may be stored under, with ``versions`` of its tags as of the start (None: not stored, as
    the store gave no snapshot); ``asked`` the body of who leads it here, ``place`` where the table files it.
    ``borrowed``: another instance makes the call, and this one repeats what it hears; ``lost``: that instance is gone.
    ``streamed``: the upstream was asked for a stream.
    """

    def __init__(
        self,
        key: Key,
        versions: Versions | None,
        asked: JSON,
        place: bytes,
        failed: Callable[[Flight], None],
    ) -> None:
        self.key = key
        self.versions = versions
        self.asked = asked
        self.place = place
        self.streamed = isinstance(asked, dict) and asked.get("stream") is True
        self.borrowed = False
        self.lost = False
        self.outdated = False
        self.head: Head | None = None
        self.chunks: list[Chunk] = []
        self.landing: Landing | None = None
        self.failure: UpstreamError | None = None
        self.listeners = 0
        self.closed = asyncio.Event()
        self._failed = failed
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def over(self) -> bool:
        return self.landing is not None or self.failure is not None

    def launch(self, run: Callable[[Flight], Awaitable[None]]) -> asyncio.Task[None]:
        """Start ``run``, which reports through :meth:`depart`, :meth:`relay`, :meth:`land` and :meth:`fail`."""

        async def fly() -> None:
            try:
                await run(self)
            finally:
                if not self.over:
                    self.fail(UpstreamError("the call was aborted", code="upstream_cut"))

        self._task = asyncio.create_task(fly(), name="flight")
        return self._task

    def depart(self, head: Head) -> None:
        """The upstream's status and headers are known."""
        self.head = head
        self._notify()

    def relay(self, chunks: list[Chunk]) -> None:
        """More of the stream arrived."""
        self.chunks += chunks
        self._notify()

    def land(self, landing: Landing) -> None:
        """The answer is complete."""
        self.landing = landing
        self._notify()

    def fail(self, failure: UpstreamError) -> None:
        """The upstream gave no usable answer, or broke off. Nobody joins any more."""
        self.failure = failure
        self._failed(self)
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def abandon_if_unheard(self) -> bool:
        """Abort the call when nobody listens any more; True when it was aborted."""
        if self.listeners or self.over or self._task is None:
            return False
        self._task.cancel()
        return True

    def restart_if_silent(self) -> bool:
        """Give up a call of which no client has seen anything yet, so that all who wait ask anew; True if it was so."""
        if self.over or self._task is None or (self.head is not None and self.head.streaming):
            return False
        self.fail(UpstreamError("the answer would be outdated", code=OUTDATED))
        self._task.cancel()
        return True

    async def wait_head(self) -> Head:
        """The head; raises the failure when the upstream was never reached."""
        while self.head is None:
            if self.failure is not None:
                raise self.failure
            await self._changed.wait()
        return self.head

    async def wait_landing(self) -> Landing:
        """The whole answer; raises the failure when it broke off."""
        while self.landing is None:
            if self.failure is not None:
                raise self.failure
            await self._changed.wait()
        return self.landing

    async def change(self) -> None:
        """Wait for the next report. What was reported before is not waited for: look first."""
        await self._changed.wait()

    async def end(self) -> None:
        """Wait until it has landed or failed."""
        while not self.over:
            await self._changed.wait()

    async def listen(self) -> AsyncIterator[list[Chunk]]:
        """Every chunk from the first on, in batches as they arrive; raises the failure at the break."""
        heard = 0
        while True:
            if heard < len(self.chunks):
                batch = self.chunks[heard:]
                heard += len(batch)
                yield batch
            elif self.landing is not None:
                return
            elif self.failure is not None:
                raise self.failure
            else:
                await self._changed.wait()


class Seat:
    """One listener's hold on a flight, taken when made and given up by :meth:`leave`."""

    __slots__ = ("_table", "flight", "led")

    def __init__(self, table: FlightTable, flight: Flight, *, led: bool) -> None:
        self.flight = flight
        self.led = led
        self._table: FlightTable | None = table
        flight.listeners += 1

    def leave(self) -> None:
        """Stop listening; aborts the call when nobody else does. Idempotent."""
        if self._table is None:
            return
        self.flight.listeners -= 1
        if self.flight.abandon_if_unheard():
            self._table.close_boarding(self.flight)
        self._table = None


class FlightTable:
    """The flights that identical requests may join; per key, never a global lock.

    Only requests with one snapshot share a flight: who asks after an invalidation never gets an answer that was begun
    before it.
    """

    def __init__(self) -> None:
        self._joinable: dict[bytes, Flight] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def board(
        self,
        key: Key,
        versions: Versions | None,
        asked: JSON,
        run: Callable[[Flight], Awaitable[None]],
        *,
        share: bool,
        alike: bool = False,
    ) -> Seat:
        """Join the flight for ``key`` or lead a new one; without ``share`` lead one that nobody joins.

        With ``alike`` only those meet who board so and ask for exactly ``asked``.
        """
        place = _place(key, versions, asked if alike else None)
        if share:
            flight = self._joinable.get(place)
            if flight is not None and flight.key.form == key.form and flight.failure is None:
                return Seat(self, flight, led=False)
        flight = Flight(key, versions, asked, place, self.close_boarding)
        if share:
            # A digest collision, or a call that ended without a word, is replaced; listeners keep their flight.
            self._joinable[place] = flight
        task = flight.launch(run)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return Seat(self, flight, led=True)

    def close_boarding(self, flight: Flight) -> None:
        """Nobody may join ``flight`` any more. Idempotent."""
        flight.closed.set()
        if self._joinable.get(flight.place) is flight:
            del self._joinable[flight.place]

    def hear(self, versions: Versions, grace: float) -> None:
        """Tags were invalidated: what was begun before is left ``grace`` seconds to end, then begun anew.

        Clients that receive a stream already keep it. Without ``versions`` it is not known which tags.
        """
        newest = dict(versions)
        loop = asyncio.get_running_loop()
        for flight in list(self._joinable.values()):
            if flight.versions is None:
                self.close_boarding(flight)  # it may have been begun before, and what for is not known
            elif not flight.outdated and any(newest.get(tag, seen) > seen for tag, seen in flight.versions):
                flight.outdated = True
                loop.call_later(grace, flight.restart_if_silent)

    async def close(self) -> None:
        """Abort every call, and wait until none is left: some are for nobody here."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def __len__(self) -> int:
        return len(self._joinable)

    @property
    def listeners(self) -> int:
        """How many requests wait for calls that can be joined."""
        return sum(flight.listeners for flight in self._joinable.values())

    def check(self) -> None:
        """Raise AssertionError when a flight that can be joined has failed or is filed under another key."""
        for place, flight in self._joinable.items():
            assert flight.place == place
            assert not flight.closed.is_set()
            assert flight.failure is None


def _place(key: Key, versions: Versions | None, asked: JSON) -> bytes:
    """16 bytes that stand for all of it, here and on other instances."""
    said = msgspec.json.encode([versions, asked], order="sorted")
    return hashlib.blake2b(key.digest + said, digest_size=16).digest()
