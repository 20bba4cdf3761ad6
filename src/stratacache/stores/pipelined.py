"""A connection on which commands follow each other without waiting: what Redis' and Memcached's have in common.

Replies come in the order of the commands. A caller that is cancelled leaves its place in the queue, so its reply is
read and dropped, and never taken for another's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar, cast

from stratacache.errors import StoreError

R = TypeVar("R")

_MOST_WAITING = 4096  # commands without a reply; more means that the server cannot follow
_MOST_UNSENT = 64 << 20  # bytes that the server did not take yet


class PipelinedConnection(asyncio.Protocol, Generic[R]):
    """Hands each reply to the one who waits for it. A subclass splits what arrives, and gives each reply to ``answer``.

    Args:
        name: of the server, for messages.
        seconds: how long the server may say nothing while replies are due; then the connection is given up.
    """

    def __init__(self, name: str, seconds: float) -> None:
        self._name = name
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[asyncio.Future[R]] = deque()
        self._transport: asyncio.Transport | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._heard = 0.0

    @property
    def usable(self) -> bool:
        return self._transport is not None

    def write(self, data: bytes, replies: int) -> list[asyncio.Future[R]]:
        """Send ``data``, to which that many replies are due, and give a future for each."""
        transport = self._transport
        if transport is None:
            raise StoreError(f"{self._name}: the connection is closed")
        if len(self._waiting) + replies > _MOST_WAITING or transport.get_write_buffer_size() > _MOST_UNSENT:
            raise StoreError(f"{self._name}: {len(self._waiting)} commands are waiting already")
        futures: list[asyncio.Future[R]] = [self._loop.create_future() for _ in range(replies)]
        self._waiting.extend(futures)
        transport.write(data)
        if self._watch is None and futures:
            self._heard = self._loop.time()
            self._watch = self._loop.call_later(self._seconds, self._look_after)
        return futures

    def answer(self, reply: R | StoreError) -> None:
        """The next reply has come."""
        if not self._waiting:
            self.close("it spoke without being asked")  # such as "too many open connections"
            return
        future = self._waiting.popleft()
        if future.done():
            return  # its caller has left
        if isinstance(reply, StoreError):
            _fail(future, reply)
        else:
            future.set_result(reply)

    def close(self, why: str) -> None:
        """Give up: all who wait get a StoreError. Idempotent."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                _fail(future, StoreError(f"{self._name}: {why}"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name

    def connection_lost(self, exc: Exception | None) -> None:
        self.close(f"the connection broke: {exc}" if exc else "the server closed the connection")

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        self._split(data)

    def _split(self, data: bytes) -> None:
        raise NotImplementedError

    def _look_after(self) -> None:
        """Give up a connection on which nothing is heard though replies are due.

        A caller's own time limit is not enough: it ends the call and leaves the dead connection to the next one.
        """
        self._watch = None
        if not self._waiting:
            return
        left = self._heard + self._seconds - self._loop.time()
        if left <= 0:
            self.close(f"no reply within {self._seconds:g} s")
        else:
            self._watch = self._loop.call_later(left, self._look_after)


def _fail(future: asyncio.Future[R], error: StoreError) -> None:
    future.set_exception(error)
    future.exception()  # a caller that waits for another reply first may never fetch it
