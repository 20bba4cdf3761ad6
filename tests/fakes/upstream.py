"""A scripted model server for tests: real HTTP, OpenAI chat on the wire, delays under the test's control.

In an async test (the server lives in the test's own loop)::

    async with FakeUpstream() as fake:            # fake.base_url == "http://127.0.0.1:PORT/v1"
        fake.default = Reply(text="Paris.")       # every call from now on, or
        fake.script(Reply(status=429, headers={"retry-after": "7"}), Reply(text="2nd"))   # the next calls, or
        fake.responder = lambda call: Reply(text=call.json["messages"][-1]["content"])    # computed
        ...
        assert fake.chat_calls == 1               # POSTs to /v1/chat/completions so far
        fake.calls[0].headers, .json, .body, .method, .path, .query, .target

Order of choice: what ``dispatch`` gives for a call; for a chat call then the script's next reply, then
``responder``, then ``default``. Other paths: ``fake.routes["/v1/embeddings"]`` if set, ``GET /v1/models`` lists
``fake.models``, else a JSON echo.

Holding an answer midway, without sleeping::

    gate = Gate()
    fake.default = Reply(text="one two three", gates={2: gate})   # before the 3rd SSE event / body piece
    ...start the call...
    await gate.reached.wait()      # events 0 and 1 are on the wire
    gate.open()                    # let it go on; a gate stays open

``header_gate`` holds before the status line, ``cut_after=n`` drops the connection after n pieces,
``raw=[b"da", b"ta: "]`` sends these pieces. ``await fake.arrived(n)`` waits for n calls of any kind,
``await fake.aborts(n)`` until n clients have hung up early. ``with in_thread() as fake`` runs it in a
thread of its own for tests that block (sync SDKs, subprocesses); gates are not for that mode.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import msgspec
from aiohttp import web

CHAT = "/v1/chat/completions"


class Gate:
    """A point that a reply stops at: ``reached`` is set on arrival, ``open()`` lets all pass."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._opened = asyncio.Event()

    def open(self) -> None:
        self._opened.set()

    async def pass_through(self) -> None:
        self.reached.set()
        await self._opened.wait()


@dataclass(frozen=True)
class Call:
    """One request as it arrived: ``path`` decoded, ``target`` as on the wire; header names in lower case.

    ``json`` is None when the body is not JSON.
    """

    method: str
    path: str
    query: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    json: Any


@dataclass
class Reply:
    """What to answer. ``text`` is split after spaces into stream deltas; ``body`` replaces the whole JSON.

    ``usage`` is (prompt, completion, cached prompt) tokens or None for no usage at all. ``message`` adds
    fields to the assistant message (``tool_calls``, ``reasoning_content``); streamed, they come as one delta. ``extra``
    adds fields to the whole answer, or to a stream's last event.
    """

    text: str | None = "Hello from the fake."
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    finish_reason: str | None = "stop"
    usage: tuple[int, int, int] | None = (12, 5, 0)
    message: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    raw: Sequence[bytes] | None = None
    content_type: str | None = None
    gates: Mapping[int, Gate] = field(default_factory=dict)
    header_gate: Gate | None = None
    cut_after: int | None = None

    def pieces(self, call: Call, number: int) -> list[bytes]:
        """The body as it is written, one element per write."""
        if self.raw is not None:
            return list(self.raw)
        if self.body is not None:
            return [msgspec.json.encode(self.body)]
        if self.status >= 400:
            error = {"message": self.text, "type": "fake_error", "param": None, "code": str(self.status)}
            return [msgspec.json.encode({"error": error})]
        if self._streams(call):
            return [b"data: " + msgspec.json.encode(e) + b"\n\n" for e in self._events(call, number)] + [
                b"data: [DONE]\n\n"
            ]
        return [msgspec.json.encode(self._completion(call, number))]

    def media_type(self, call: Call) -> str:
        if self.content_type is not None:
            return self.content_type
        streams = self.status < 400 and self.body is None and self._streams(call)
        return "text/event-stream" if streams else "application/json"

    @staticmethod
    def _streams(call: Call) -> bool:
        return isinstance(call.json, dict) and call.json.get("stream") is True

    def _usage(self) -> dict[str, Any] | None:
        if self.usage is None:
            return None
        prompt, completion, cached = self.usage
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": cached},
        }

    def _completion(self, call: Call, number: int) -> dict[str, Any]:
        message = {"role": "assistant", "content": self.text, **self.message}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self.finish_reason}
        made = {**_envelope(call, number, "chat.completion"), "choices": [choice], **self.extra}
        usage = self._usage()
        return made if usage is None else {**made, "usage": usage}

    def _events(self, call: Call, number: int) -> Iterator[dict[str, Any]]:
        base = _envelope(call, number, "chat.completion.chunk")
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        if self.message:
            deltas.append(_indexed(self.message))
        deltas += [{"content": piece} for piece in _words(self.text or "")]
        for delta in deltas:
            yield {**base, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}]}
        last = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": self.finish_reason}
        yield {**base, "choices": [last], **self.extra}
        usage = self._usage()
        if usage is not None and (call.json.get("stream_options") or {}).get("include_usage"):
            yield {**base, "choices": [], "usage": usage}


def _envelope(call: Call, number: int, kind: str) -> dict[str, Any]:
    model = call.json.get("model", "fake") if isinstance(call.json, dict) else "fake"
    return {"id": f"chatcmpl-fake-{number}", "object": kind, "created": 1_700_000_000, "model": model}


def _indexed(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message's fields as a stream delta: tool calls carry their index there."""
    delta = dict(message)
    if "tool_calls" in delta:
        delta["tool_calls"] = [{"index": i, **call} for i, call in enumerate(delta["tool_calls"])]
    return delta


def _words(text: str) -> list[str]:
    parts = text.split(" ")
    return [part + " " for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


class FakeUpstream:
    """The server; an async context manager. See the module's docstring for its use."""

    def __init__(self, models: Sequence[str] = ("fake-model",)) -> None:
        self.models = list(models)
        self.default = Reply()
        self.responder: Callable[[Call], Reply] | None = None
        self.dispatch: Callable[[Call], Reply | None] = lambda _: None
        self.routes: dict[str, Reply] = {}
        self.calls: list[Call] = []
        self.aborted = 0
        self._peers: set[object] = set()
        self.active = 0
        self._script: deque[Reply] = deque()
        self._changed = asyncio.Condition()
        self._runner: web.AppRunner | None = None
        self._port = 0

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def chat_calls(self) -> int:
        return sum(call.path == CHAT and call.method == "POST" for call in self.calls)

    @property
    def connections(self) -> int:
        """How many client connections carried the calls."""
        return len(self._peers)

    def script(self, *replies: Reply) -> None:
        """Queue replies for the next chat calls."""
        self._script.extend(replies)

    async def arrived(self, count: int) -> None:
        """Wait until ``count`` calls of any kind have arrived in all."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.calls) >= count)

    async def aborts(self, count: int) -> None:
        """Wait until ``count`` clients have hung up before their answer's end."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.aborted >= count)

    async def idle(self) -> None:
        """Wait until no call is being answered."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.active == 0)

    async def start(self, port: int = 0) -> None:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_route("*", "/{path:.*}", self._handle)
        # A client that hangs up cancels its handler: held gates end and the abort is counted.
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening and drop every connection; ``start(port)`` brings it back."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> FakeUpstream:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        call = Call(
            method=request.method,
            path=request.path,
            query=request.rel_url.raw_query_string,
            target=request.raw_path,
            headers={name.lower(): value for name, value in request.headers.items()},
            body=body,
            json=_decoded(body),
        )
        self.calls.append(call)
        self._peers.add(request.transport.get_extra_info("peername") if request.transport else None)
        self.active += 1
        await self._notify()
        try:
            return await self._answer(request, call)
        except (asyncio.CancelledError, ConnectionError):
            self.aborted += 1
            raise
        finally:
            self.active -= 1
            # Shielded: the handler of a client that hung up is being cancelled, yet waiters must hear of it.
            await asyncio.shield(self._notify())

    async def _answer(self, request: web.Request, call: Call) -> web.StreamResponse:
        reply = self._choose(call)
        if reply.header_gate is not None:
            await reply.header_gate.pass_through()
        response = web.StreamResponse(status=reply.status, headers=dict(reply.headers))
        response.headers.setdefault("content-type", reply.media_type(call))
        await response.prepare(request)
        pieces = [] if request.method == "HEAD" else reply.pieces(call, len(self.calls))
        for index, piece in enumerate(pieces):
            if index in reply.gates:
                await reply.gates[index].pass_through()
            if reply.cut_after == index:
                break
            await response.write(piece)
        if reply.cut_after is not None and request.transport is not None:
            request.transport.close()
            return response
        await response.write_eof()
        return response

    def _choose(self, call: Call) -> Reply:
        dispatched = self.dispatch(call)
        if dispatched is not None:
            return dispatched
        if call.path in self.routes:
            return self.routes[call.path]
        if call.path == CHAT and call.method == "POST":
            if self._script:
                return self._script.popleft()
            return self.responder(call) if self.responder is not None else self.default
        if call.path == "/v1/models":
            rows = [{"id": m, "object": "model", "created": 0, "owned_by": "fake"} for m in self.models]
            return Reply(body={"object": "list", "data": rows})
        echo = {"method": call.method, "path": call.path, "query": call.query}
        return Reply(body={**echo, "body": call.body.decode("utf-8", "replace")})

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


@contextmanager
def in_thread(models: Sequence[str] = ("fake-model",)) -> Iterator[FakeUpstream]:
    """The server in a thread with a loop of its own, for tests that block theirs. Set replies, read calls."""
    loop = asyncio.new_event_loop()
    fake = FakeUpstream(models)
    thread = threading.Thread(target=loop.run_forever, name="fake-upstream", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(fake.start(), loop).result(10)
        yield fake
    finally:
        asyncio.run_coroutine_threadsafe(fake.stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
