"""A process's end of the line to its parent: reports life and counts, asks for totals, hears of engines."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from stratacache.errors import SettingsError, StrataError
from stratacache.observe.census import Census
from stratacache.observe.metrics import Metrics
from stratacache.upstream.engine_process import EngineState
from stratacache.workers.messages import (
    Ask,
    Counts,
    EngineNews,
    Failed,
    Inbox,
    Ready,
    Tell,
    ToParent,
    Totals,
    ToWorker,
    pack,
)

log = logging.getLogger(__name__)

BEAT = 1.0  # seconds between two reports; a process that is killed loses what it counted since its last one
ANSWER_LIMIT = 3.0  # seconds; the parent waits less for a worker that does not tell
_SEND_LIMIT = 5.0
_MAX_WAITING = 1 << 20  # bytes

Learn = Callable[[EngineState], Awaitable[None]]


class Link:
    """One process's line to its parent. All but ``ready`` and ``failed`` need a ``start`` before."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        # The event loop takes over one end; a failure is still to be told when there is no loop any more.
        self._plain = line.dup()
        self._plain.settimeout(_SEND_LIMIT)
        self._metrics = Metrics()
        self._learn: Mapping[str, Learn] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._asking = asyncio.Lock()
        self._answer: asyncio.Future[Totals] | None = None
        self._last: Totals | None = None

    def ready(self) -> None:
        """This process serves and obeys signals."""
        if self._writer is not None:  # nothing may come between the parts of what it sends
            self._send(Ready())
        else:
            self._plain.sendall(pack(Ready()))

    def failed(self, error: StrataError) -> None:
        """This process cannot start."""
        with contextlib.suppress(OSError):
            self._plain.sendall(pack(Failed(str(error), usage=isinstance(error, SettingsError))))

    async def start(self, metrics: Metrics, learn: Mapping[str, Learn]) -> None:
        """Report ``metrics`` from now on, and tell ``learn`` of engines by the upstream's name."""
        self._metrics = metrics
        self._learn = learn
        reader, self._writer = await asyncio.open_unix_connection(sock=self._line)
        self._tasks = [asyncio.create_task(self._hear(reader)), asyncio.create_task(self._beat())]

    async def publish(self, name: str, state: EngineState) -> None:
        """Tell everybody where the engine of upstream ``name`` listens."""
        self._send(EngineNews(name, state))

    async def census(self) -> Census:
        """What all workers have counted, the dead included; the last known when the parent does not answer."""
        async with self._asking:
            self._answer = asyncio.get_running_loop().create_future()
            self._send(Ask(self._metrics.figures()))
            try:
                async with asyncio.timeout(ANSWER_LIMIT):
                    self._last = await self._answer
            except TimeoutError:
                log.warning("the parent process gives no totals")
            finally:
                self._answer = None
            totals = self._last or Totals(self._metrics.figures(), [])
        metrics = Metrics()
        metrics.add(totals.figures)
        return Census(metrics, tuple(totals.shares))

    async def close(self) -> None:
        """Report the last counts and hang up. Idempotent."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._writer is not None:
            self._send(Counts(self._metrics.figures()))
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()
            self._writer = None

    def _send(self, message: ToParent) -> None:
        writer = self._writer
        if writer is None or writer.is_closing():
            return
        if (
            writer.transport.get_write_buffer_size() < _MAX_WAITING
        ):  # else the parent is stopped; figures come again
            writer.write(pack(message))

    async def _beat(self) -> None:
        while True:
            self._send(Counts(self._metrics.figures()))
            await asyncio.sleep(BEAT)

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        inbox = Inbox()
        decoder: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
        while data := await reader.read(65536):
            for body in inbox.feed(data):
                await self._obey(decoder.decode(body))

    async def _obey(self, message: ToWorker) -> None:
        if isinstance(message, Tell):
            self._send(Counts(self._metrics.figures(), message.number))
        elif isinstance(message, EngineNews):
            if learn := self._learn.get(message.name):
                await learn(message.state)
        elif self._answer is not None and not self._answer.done():
            self._answer.set_result(message)
