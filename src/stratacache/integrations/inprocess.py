"""One request to an ASGI application in this process, its answer read as it comes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import unquote

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]
RawHeaders = list[tuple[bytes, bytes]]

_AHEAD = 64  # pieces of an answer that may wait for a reader that is slow
_NOT_PASSED = frozenset({b"host", b"origin", b"connection", b"transfer-encoding", b"content-length"})
"""Of the connection, which there is none. Host and Origin fence off web pages, and none is behind these requests."""


class BrokenAnswer(Exception):
    """The application ended an answer before its end."""


class Exchange:
    """One request under way. Made by :func:`begin`; to be closed by who made it, which aborts what is not at its end.

    ``status`` and ``headers`` (lower-case names) are those of the answer.
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers: RawHeaders = []
        self._pieces: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._left = asyncio.Event()
        self._ended = self._whole = False
        self._task: asyncio.Task[None] | None = None

    async def run(self, app: Application, scope: Message, body: bytes) -> None:
        """Start the request and wait for the head of its answer."""
        unread = [body]

        async def receive() -> Message:
            if unread:
                return {"type": "http.request", "body": unread.pop(), "more_body": False}
            await self._left.wait()
            return {"type": "http.disconnect"}

        async def answer() -> None:
            try:
                await app(scope, receive, self._take)
            finally:
                self._ended = True
                self._changed.set()

        self._task = asyncio.create_task(answer(), name="request in process")
        try:
            while not self.status and not self._ended:
                await self._change()
        except asyncio.CancelledError:
            await self.close()
            raise
        if not self.status:
            raise BrokenAnswer("the request ended without an answer")

    async def _take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], list(message["headers"])
        else:
            self._whole = self._whole or not message.get("more_body", False)
            if message.get("body"):
                self._pieces.append(message["body"])
        self._changed.set()
        while len(self._pieces) >= _AHEAD and not self._left.is_set():
            self._room.clear()
            await self._room.wait()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def next(self) -> bytes:
        """The next piece of the body; b"" at its end. Raises BrokenAnswer when it broke off."""
        while not self._pieces and not self._ended and not self._whole:
            await self._change()
        if self._pieces:
            self._room.set()
            return self._pieces.popleft()
        if not self._whole:
            raise BrokenAnswer("the answer broke off")
        return b""

    async def pieces(self) -> AsyncIterator[bytes]:
        """What :meth:`next` gives, up to the end."""
        while piece := await self.next():
            yield piece

    async def read(self) -> bytes:
        """The whole body."""
        return b"".join([piece async for piece in self.pieces()])

    async def close(self) -> None:
        """Leave, as a client that hangs up, and wait until the application noticed. Idempotent."""
        self._left.set()
        self._room.set()
        if self._task is not None:
            await asyncio.wait([self._task])


async def begin(
    app: Application, method: str, target: str, headers: Iterable[tuple[bytes, bytes]] = (), body: bytes = b""
) -> Exchange:
    """Ask ``app`` for ``target`` (path and query, percent-encoded); returns once the answer has begun.

    Raises:
        BrokenAnswer: there is none.
    """
    path, _, query = target.partition("?")
    scope: Message = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http",
        "method": method,
        "path": unquote(path),
        "raw_path": path.encode("ascii"),
        "query_string": query.encode("ascii"),
        "root_path": "",
        "headers": [(n.lower(), v) for n, v in headers if n.lower() not in _NOT_PASSED],
        "client": None,
        "server": None,
    }
    exchange = Exchange()
    await exchange.run(app, scope, body)
    return exchange
