"""Threads for searches that are too long for the event loop, with a bounded queue, and one for upkeep."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from stratacache.errors import VectorIndexError

T = TypeVar("T")
P = ParamSpec("P")
_WAITING = 256  # searches; more mean that the processors cannot follow


class SearchPool:
    """Two threads search, one more builds; nothing waits behind a build but another."""

    def __init__(self) -> None:
        self._searches = ThreadPoolExecutor(2, thread_name_prefix="vector search")
        self._upkeep = ThreadPoolExecutor(1, thread_name_prefix="vector upkeep")
        self._places = threading.Semaphore(_WAITING)

    async def search(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of ``work``.

        Raises:
            VectorIndexError: too many are waiting already.
        """
        if not self._places.acquire(blocking=False):
            raise VectorIndexError(f"{_WAITING} searches are waiting already")
        future = self._searches.submit(work, *args, **kwargs)
        future.add_done_callback(lambda _: self._places.release())
        return await asyncio.wrap_future(future)

    async def upkeep(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of ``work``, after the upkeep that was asked for before."""
        return await asyncio.wrap_future(self._upkeep.submit(work, *args, **kwargs))

    def close(self) -> None:
        """Let go of the threads; what has begun ends by itself."""
        self._searches.shutdown(wait=False)
        self._upkeep.shutdown(wait=False)
