"""A bounded thread pool for the models' heavy CPU work: beyond its bounds work is shed, not queued."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import msgspec

from stratacache.errors import ModelError

T = TypeVar("T")


class PoolCounts(msgspec.Struct, frozen=True):
    """``running`` and ``waiting`` as of now. Since the start: ``finished`` work, calls ``shed`` as the queue was
    full, and those that were ``late``: their budget ran out."""

    running: int
    waiting: int
    finished: int
    shed: int
    late: int


class Pool:
    """``size`` threads, and at most ``queue`` calls that wait for one. Belongs to one event loop and never blocks it.

    The wait is on the loop's side, before the executor: so a call that is cancelled or late frees its place at once,
    and nothing piles up behind threads that hang.
    """

    def __init__(self, size: int, queue: int) -> None:
        if size < 1 or queue < 0:
            raise ValueError(f"a pool needs a thread and no negative queue: size {size}, queue {queue}")
        self._size = size
        self._queue = queue
        self._executor = ThreadPoolExecutor(size, thread_name_prefix="stratacache-model")
        self._threads = asyncio.Semaphore(size)
        self._running = 0
        self._waiting = 0
        self._finished = 0
        self._shed = 0
        self._late = 0
        self._closed = False

    @property
    def counts(self) -> PoolCounts:
        return PoolCounts(self._running, self._waiting, self._finished, self._shed, self._late)

    async def run(self, work: Callable[[], T], *, budget: float | None) -> T:
        """The result of ``work()``, or what it raises. Cancelling drops work that has not begun; the rest completes.

        Args:
            budget: seconds for the wait and the work; None for as long as it takes (the loading of a model).

        Raises:
            ModelError: ``overloaded``: the queue is full, the budget ran out, or the pool is closed.
        """
        if self._threads.locked() and self._waiting >= self._queue:
            self._shed += 1
            raise ModelError(f"{self._waiting} calls wait for a model thread already", code="overloaded")
        limit = asyncio.timeout(budget)
        try:
            async with limit:
                await self._wait()
                return await asyncio.wrap_future(self._begin(work))
        except TimeoutError as error:
            if not limit.expired():
                raise  # the work's own
            self._late += 1
            raise ModelError(f"no result within {budget:g} s", code="overloaded") from error

    async def close(self) -> None:
        """End the threads once their present work is done; waiting and later calls raise ModelError. Idempotent."""
        self._closed = True
        self._executor.shutdown(wait=False, cancel_futures=True)

    def check(self) -> None:
        """Raise AssertionError when a bound or a count is broken."""
        assert 0 <= self._running <= self._size, f"{self._running} of {self._size} threads run"
        assert 0 <= self._waiting <= self._queue, f"{self._waiting} calls wait in a queue of {self._queue}"

    async def _wait(self) -> None:
        """Return when a thread is this call's."""
        self._waiting += 1
        try:
            await self._threads.acquire()
        finally:
            self._waiting -= 1

    def _begin(self, work: Callable[[], T]) -> Future[T]:
        loop = asyncio.get_running_loop()
        if self._closed:
            self._threads.release()
            raise ModelError("the models are closed", code="overloaded")
        future = self._executor.submit(work)
        self._running += 1

        def ended(_: Future[T]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(self._free)

        future.add_done_callback(ended)
        return future

    def _free(self) -> None:
        self._running -= 1
        self._finished += 1
        self._threads.release()
