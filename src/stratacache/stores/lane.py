"""A thread that owns one database connection, and the bounded queue before it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Concatenate, Generic, ParamSpec, Protocol, TypeVar

from stratacache.errors import StoreError


class Connection(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=Connection)
T = TypeVar("T")
P = ParamSpec("P")
_DEPTH = 1024  # work waiting for one thread; more means that the disk cannot follow


class Lane(Generic[C]):
    """Runs work in order, one piece at a time, off the event loop.

    Args:
        name: of the thread.
        connect: opens the connection, in the thread that will use it. What it raises, the constructor raises.
    """

    def __init__(self, name: str, connect: Callable[[], C]) -> None:
        self.name = name
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._places = threading.Semaphore(_DEPTH)
        try:
            self._connection = self._executor.submit(connect).result()
        except BaseException:
            self._executor.shutdown(wait=False)
            raise

    async def run(self, work: Callable[Concatenate[C, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of ``work(connection, ...)``. Cancelling drops work that has not begun; the rest completes.

        Raises:
            StoreError: the queue is full.
        """
        if not self._places.acquire(blocking=False):
            raise StoreError(f"{self.name}: {_DEPTH} operations are waiting already")
        future = self._executor.submit(work, self._connection, *args, **kwargs)
        future.add_done_callback(lambda _: self._places.release())
        return await asyncio.wrap_future(future)

    async def close(self) -> None:
        """Close the connection after the work that waits. Call once."""
        closing = self._executor.submit(self._connection.close)
        self._executor.shutdown(wait=False)
        await asyncio.wrap_future(closing)
