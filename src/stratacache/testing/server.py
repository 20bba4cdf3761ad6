"""What the fake servers share: a scripted HTTP server with its calls, gates, and a thread for tests that block."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import msgspec
from aiohttp import web

MAX_BODY = 64 << 20  # bytes


class Gate:
    """A point that an answer stops at: ``reached`` is set on arrival, ``open()`` lets all pass, for ever."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._opened = asyncio.Event()

    def open(self) -> None:
        """Let whoever waits pass, and all that come."""
        self._opened.set()

    async def pass_through(self) -> None:
        """Wait until it is open."""
        self.reached.set()
        await self._opened.wait()


@dataclass(frozen=True)
class Call:
    """One request as it arrived; header names in lower case. ``json`` is None when the body is not JSON."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    json: Any


AnswerT = TypeVar("AnswerT")


class FakeServer(Generic[AnswerT]):
    """A server on a free port of this machine; an async context manager. Subclasses answer.

    Order of choice for an answer: the next of :meth:`script`, then what ``responder`` makes of the call, then
    ``default``.
    """

    def __init__(self, default: AnswerT) -> None:
        self.default = default
        self.responder: Callable[[Call], AnswerT] | None = None
        self.calls: list[Call] = []
        self.aborted = 0
        self._script: deque[AnswerT] = deque()
        self._changed = asyncio.Condition()
        self._runner: web.AppRunner | None = None
        self._port = 0

    @property
    def root(self) -> str:
        """The address without a path."""
        return f"http://127.0.0.1:{self._port}"

    def script(self, *answers: AnswerT) -> None:
        """Queue answers for the next calls."""
        self._script.extend(answers)

    async def arrived(self, count: int) -> None:
        """Wait until ``count`` calls of any kind have arrived in all."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.calls) >= count)

    async def aborts(self, count: int) -> None:
        """Wait until ``count`` clients have hung up before their answer's end."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.aborted >= count)

    async def start(self, port: int = 0) -> None:
        """Listen."""
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_route("*", "/{path:.*}", self._handle)
        # A client that hangs up cancels its handler: held gates end and the abort is counted.
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening and drop every connection. Idempotent."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _choose(self, call: Call) -> AnswerT:
        if self._script:
            return self._script.popleft()
        return self.responder(call) if self.responder is not None else self.default

    async def _answer(self, request: web.Request, call: Call) -> web.StreamResponse:
        raise NotImplementedError

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        call = Call(request.method, request.path, headers, body, _decoded(body))
        self.calls.append(call)
        await self._notify()
        try:
            return await self._answer(request, call)
        except (asyncio.CancelledError, ConnectionError):
            self.aborted += 1
            # Shielded: the handler of a client that hung up is being cancelled, yet waiters must hear of it.
            await asyncio.shield(self._notify())
            raise

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """``value`` as a JSON response."""
    body = msgspec.json.encode(value)
    return web.Response(body=body, status=status, headers=headers, content_type="application/json")


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


ServerT = TypeVar("ServerT", bound=FakeServer[Any])


@contextmanager
def in_thread(server: ServerT) -> Iterator[ServerT]:
    """Run ``server`` in a thread with a loop of its own, for tests that block theirs. Gates are not for that mode."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="fake-server", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(10)
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
