"""A TCP proxy on loopback that delays, swallows or cuts what passes, at a test's command."""

from __future__ import annotations

import asyncio
from typing import Literal, Self

Mode = Literal["pass", "black_hole", "refuse"]

_CHUNK = 65_536  # bytes
_QUEUED = 256  # answers under delay on one connection; then reading waits


class Proxy:
    """Stands before the server on ``127.0.0.1:target_port``; use it as an async context manager.

    ``mode`` holds from its setting on, for open connections too: ``black_hole`` reads and discards both directions
    (what it swallowed is lost: a connection that was open meanwhile is out of step afterwards); ``refuse`` aborts what
    is open and closes what comes. ``delay`` is the seconds added to each answer; answers in flight keep theirs.
    """

    def __init__(self, target_port: int) -> None:
        self.port = 0
        self.delay = 0.0
        self._target_port = target_port
        self._mode: Mode = "pass"
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def mode(self) -> Mode:
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._mode = mode
        if mode == "refuse":
            self.cut()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await self._server.wait_closed()

    def cut(self) -> None:
        """Abort all open connections, as a network does that breaks; new ones are accepted."""
        for writer in self._open:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self._open.add(client)
        try:
            if self._mode != "refuse":
                await self._relay(reader, client)
        except OSError:
            pass  # either end went: both are closed below
        finally:
            self._open.discard(client)
            client.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        answers, server = await asyncio.open_connection("127.0.0.1", self._target_port)
        self._open.add(server)
        due: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_QUEUED)
        parts = [
            asyncio.ensure_future(self._forward(reader, server)),
            asyncio.ensure_future(self._receive(answers, due)),
            asyncio.ensure_future(self._deliver(due, client)),
        ]
        try:
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._open.discard(server)
            server.transport.abort()
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)

    async def _forward(self, reader: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK):
            if self._mode == "pass":
                server.write(data)
                await server.drain()

    async def _receive(self, answers: asyncio.StreamReader, due: asyncio.Queue[tuple[float, bytes]]) -> None:
        now = asyncio.get_running_loop().time
        while data := await answers.read(_CHUNK):
            await due.put((now() + self.delay, data))
        await due.put((now() + self.delay, b""))
        await (
            asyncio.Event().wait()
        )  # the end comes after the answers before it: _deliver ends the connection

    async def _deliver(self, due: asyncio.Queue[tuple[float, bytes]], client: asyncio.StreamWriter) -> None:
        now = asyncio.get_running_loop().time
        while True:
            when, data = await due.get()
            if when > now():
                await asyncio.sleep(when - now())
            if not data:
                return
            if self._mode == "pass":
                client.write(data)
                await client.drain()
