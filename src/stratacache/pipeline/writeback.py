"""Stores finished answers behind the client's back: bounded, retried, counted, never in the way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from stratacache.errors import StoreError
from stratacache.ports import Clock, Recorder, Store
from stratacache.types import Entry

log = logging.getLogger(__name__)

WORKERS = 8  # puts under way at once: a store may write several in one go
PUT_TIMEOUT = 5.0  # seconds for one attempt
BACKOFF = (0.05, 0.2, 0.8)  # seconds before the second, third and fourth attempt


class _Pending:
    __slots__ = ("attempt", "digest", "entry", "on_first_attempt", "on_stored")

    def __init__(
        self,
        digest: bytes,
        entry: Entry,
        on_first_attempt: Callable[[], None],
        on_stored: Callable[[], None] | None,
    ) -> None:
        self.digest = digest
        self.entry = entry
        self.on_first_attempt = on_first_attempt
        self.on_stored = on_stored
        self.attempt = 0


class WriteBack:
    """A bounded queue of puts with a few workers; puts under one digest follow each other.

    Args:
        store: the target.
        recorder: counts each result: ``stored``, ``declined``, ``failed``, ``dropped``, ``expired``,
            ``superseded``, ``outdated``.
        clock: an entry that expired while it waited is not written.
        max_bytes: payload that may wait; beyond it new entries are dropped (and counted), never blocked on.
    """

    def __init__(self, store: Store, recorder: Recorder, clock: Clock, *, max_bytes: int = 64 << 20) -> None:
        self._store = store
        self._recorder = recorder
        self._clock = clock
        self._max_bytes = max_bytes
        self._queue: asyncio.Queue[_Pending] = asyncio.Queue()
        self._newest: dict[bytes, _Pending] = {}
        self._unsettled = 0
        self._waiting_bytes = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._writing: dict[bytes, list[_Pending]] = {}  # digests under way, and what waits for each
        self._workers: list[asyncio.Task[None]] = []

    def submit(
        self,
        digest: bytes,
        entry: Entry,
        on_first_attempt: Callable[[], None],
        on_stored: Callable[[], None] | None = None,
    ) -> None:
        """Queue ``entry``; ``on_first_attempt`` runs once it is readable, was tried, or was dropped.

        ``on_stored`` runs when it is stored, and only then.
        """
        if self._waiting_bytes + entry.size > self._max_bytes:
            self._recorder.wrote("dropped")
            on_first_attempt()
            return
        self._waiting_bytes += entry.size
        self._unsettled += 1
        self._idle.clear()
        self._newest[digest] = pending = _Pending(digest, entry, on_first_attempt, on_stored)
        self._queue.put_nowait(pending)

    def start(self) -> None:
        """Start the workers; needs a running loop."""
        self._workers = [asyncio.create_task(self._work(), name="writeback") for _ in range(WORKERS)]

    async def drain(self, timeout: float) -> bool:
        """Wait until all is settled; False when ``timeout`` seconds were not enough."""
        try:
            async with asyncio.timeout(timeout):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Stop the workers; what still waits is lost (drain first)."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        self._workers = []

    def check(self) -> None:
        """Raise AssertionError when the counts disagree with the queue."""
        assert self._unsettled >= self._queue.qsize()
        assert (self._unsettled == 0) == self._idle.is_set()
        assert self._unsettled > 0 or (self._waiting_bytes == 0 and not self._newest and not self._writing)

    async def _work(self) -> None:
        while True:
            pending = await self._queue.get()
            if pending.digest in self._writing:
                self._writing[pending.digest].append(pending)
                continue
            self._writing[pending.digest] = []
            result = await self._attempt(pending)
            for held in self._writing.pop(pending.digest):
                self._queue.put_nowait(held)
            if pending.attempt == 1:
                pending.on_first_attempt()
            if result == "retry":
                # The delay runs on the loop's timer so that other entries are not held up by it.
                delay = BACKOFF[pending.attempt - 1]
                asyncio.get_running_loop().call_later(delay, self._queue.put_nowait, pending)
            else:
                self._settle(pending, result)

    async def _attempt(self, pending: _Pending) -> str:
        pending.attempt += 1
        if self._newest.get(pending.digest) is not pending:
            return "superseded"  # a retry must not put an older answer over a newer one
        if pending.entry.gone_at <= self._clock.now():
            return "expired"
        try:
            async with asyncio.timeout(PUT_TIMEOUT):
                return await self._store.put(pending.digest, pending.entry)
        except (StoreError, TimeoutError) as error:
            last = pending.attempt > len(BACKOFF)
            log.warning("write-back attempt %d failed: %s", pending.attempt, error)
            return "failed" if last else "retry"
        except Exception:
            log.exception("write-back failed in a way that its store does not announce")
            return "failed"

    def _settle(self, pending: _Pending, result: str) -> None:
        self._recorder.wrote(result)
        if result == "stored" and pending.on_stored is not None:
            pending.on_stored()
        if self._newest.get(pending.digest) is pending:
            del self._newest[pending.digest]
        self._waiting_bytes -= pending.entry.size
        self._unsettled -= 1
        if self._unsettled == 0:
            self._idle.set()
