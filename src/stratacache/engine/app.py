"""The engine's HTTP face: a bare ASGI app that turns requests into jobs and reports into JSON or SSE."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, MutableMapping
from dataclasses import asdict
from typing import Any

import msgspec

from stratacache.engine.engine import Stats
from stratacache.engine.errors import (
    BodyTooLarge,
    ContextLengthExceeded,
    InvalidRequest,
    Overloaded,
    RequestError,
)
from stratacache.engine.loop import EngineThread, Job, Progress
from stratacache.engine.protocol import ChatRequest, Header, Json, error_body, parse_chat, usage
from stratacache.engine.sequence import Generation
from stratacache.engine.template import ChatTemplate
from stratacache.engine.tokenizer import Tokenizer

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

MAX_BODY = 8 * 1024 * 1024


class NotFound(RequestError):
    """No such path or model."""

    status = 404
    code = "not_found"


class ModelNotFound(NotFound):
    """The request names a model that is not served here."""

    code = "model_not_found"


class EngineDown(RequestError):
    """The core has failed: the request is lost, and the process is about to end."""

    status = 500
    kind = "server_error"
    code = "engine_failed"


class ClientGone(Exception):
    """The client closed the connection; nobody is left to answer."""


class App:
    """ASGI application. Lives on one event loop; all computing happens on the engine's thread."""

    def __init__(
        self,
        engine: EngineThread,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        *,
        model: str,
        fingerprint: str,
        default_max_tokens: int | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._template = template
        self._model = model
        self._fingerprint = fingerprint
        self._default_max_tokens = default_max_tokens
        self._clock = clock
        self._started = int(clock())
        self.draining = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"{scope['type']} is not served")
        try:
            await self._route(scope, receive, send)
        except RequestError as error:
            await _send_json(send, error.status, error_body(error))
        except ClientGone:
            return

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        method, path = scope["method"], scope["path"]
        if (method, path) == ("POST", "/v1/chat/completions"):
            await self._chat(scope, receive, send)
        elif method != "GET":
            raise NotFound(f"There is no {method} {path} here")
        elif path == "/healthz":
            await self._health(send)
        elif path == "/metrics":
            await _send(send, 200, metrics(self._engine.stats).encode(), b"text/plain; version=0.0.4")
        elif path == "/stats":
            await _send_json(send, 200, asdict(self._engine.stats))
        elif path == "/v1/models":
            await _send_json(send, 200, {"object": "list", "data": [self._model_card()]})
        elif path == f"/v1/models/{self._model}":
            await _send_json(send, 200, self._model_card())
        else:
            raise NotFound(f"There is no {method} {path} here")

    async def _health(self, send: Send) -> None:
        state = "failed" if self._engine.failed else "draining" if self.draining else "ok"
        await _send_json(send, 200 if state == "ok" else 503, {"status": state})

    def _model_card(self) -> Json:
        return {"id": self._model, "object": "model", "created": self._started, "owned_by": "stratacache"}

    async def _chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = parse_chat(await _read_body(scope, receive))
        if request.model != self._model:
            raise ModelNotFound(
                f"The model '{request.model}' is not served here, only '{self._model}'", "model"
            )
        if self.draining:
            raise Overloaded("the engine is shutting down")
        # Rendering and tokenising megabytes takes a while: not on the event loop.
        prompt = await asyncio.to_thread(self._encode, request)
        header = Header(f"chatcmpl-{uuid.uuid4().hex}", int(self._clock()), self._model, self._fingerprint)
        async with contextlib.aclosing(self._generate(header.id, request, prompt, receive)) as progress:
            respond = self._respond_stream if request.stream else self._respond_whole
            await respond(header, request, len(prompt), progress, send)

    def _encode(self, request: ChatRequest) -> tuple[int, ...]:
        text = self._template.render(request.messages)
        fewest = self._tokenizer.fewest_tokens(text)
        if fewest >= self._engine.context_limit:  # or megabytes would be tokenised (2 s each) to be refused
            raise ContextLengthExceeded(self._engine.context_limit, fewest, at_least=True)
        prompt = tuple(self._tokenizer.encode(text))
        if not prompt:
            raise InvalidRequest("the messages make an empty prompt", "messages")
        return prompt

    async def _generate(
        self, request_id: str, request: ChatRequest, prompt: tuple[int, ...], receive: Receive
    ) -> AsyncGenerator[Progress, None]:
        """Runs the request; ends it in the engine when the client or the consumer goes away."""
        loop = asyncio.get_running_loop()
        reports: asyncio.Queue[Progress | None] = asyncio.Queue()
        generation = Generation(
            request_id,
            prompt,
            request.max_tokens or self._default_max_tokens,
            request.sampling,
            request.salt,
            request.ignore_eos,
        )

        def report(progress: Progress) -> None:
            loop.call_soon_threadsafe(reports.put_nowait, progress)

        self._engine.submit(Job(generation, request.stops, report))
        watcher = asyncio.create_task(_watch(receive, reports))
        try:
            while True:
                progress = await reports.get()
                if progress is None:
                    raise ClientGone
                if isinstance(progress.error, RequestError):
                    raise progress.error
                if progress.error:
                    raise EngineDown(str(progress.error))
                yield progress
                if progress.finish_reason:
                    return
        finally:
            watcher.cancel()
            self._engine.cancel(request_id)

    @staticmethod
    async def _respond_whole(
        header: Header, request: ChatRequest, prompt: int, progress: AsyncIterator[Progress], send: Send
    ) -> None:
        texts = []
        async for part in progress:
            texts.append(part.text)
            if part.finish_reason:
                counts = usage(prompt, part.completion_tokens, part.cached_tokens)
                await _send_json(send, 200, header.answer("".join(texts), part.finish_reason, counts))

    @staticmethod
    async def _respond_stream(
        header: Header, request: ChatRequest, prompt: int, progress: AsyncIterator[Progress], send: Send
    ) -> None:
        with_usage, started = request.include_usage, False
        try:
            async for part in progress:
                events = []
                if not started:  # only now, so that a refusal has its own status
                    await _start_stream(send)
                    started = True
                    events.append(header.chunk({"role": "assistant", "content": ""}, None, with_usage))
                if part.text:
                    events.append(header.chunk({"content": part.text}, None, with_usage))
                if part.finish_reason:
                    events.append(header.chunk({}, part.finish_reason, with_usage))
                    if with_usage:
                        counts = usage(prompt, part.completion_tokens, part.cached_tokens)
                        events.append(header.usage_chunk(counts))
                await _send_events(send, events)
        except RequestError as error:
            if not started:
                raise
            await _send_events(send, [error_body(error)])  # and no [DONE]: the answer is not whole
            await send({"type": "http.response.body", "body": b""})
        else:
            await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


async def _watch(receive: Receive, reports: asyncio.Queue[Progress | None]) -> None:
    """Tells the consumer when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    reports.put_nowait(None)


async def _read_body(scope: Scope, receive: Receive) -> bytes:
    too_large = BodyTooLarge(f"The body is over {MAX_BODY} bytes")
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > MAX_BODY:
            raise too_large
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        body += message.get("body", b"")
        if len(body) > MAX_BODY:
            raise too_large
        if not message.get("more_body"):
            return bytes(body)


async def _send(send: Send, status: int, body: bytes, content_type: bytes) -> None:
    headers = [(b"content-type", content_type), (b"content-length", str(len(body)).encode())]
    if status == Overloaded.status:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _send_json(send: Send, status: int, body: Json) -> None:
    await _send(send, status, msgspec.json.encode(body), b"application/json")


async def _start_stream(send: Send) -> None:
    headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def _send_events(send: Send, events: list[Json]) -> None:
    if events:
        body = b"".join(b"data: " + msgspec.json.encode(event) + b"\n\n" for event in events)
        await send({"type": "http.response.body", "body": body, "more_body": True})


def metrics(stats: Stats) -> str:
    """Prometheus' text form of the counters."""
    lines = ["# TYPE stratacache_kv_blocks gauge"]
    blocks = {"free": stats.blocks_free, "cached": stats.blocks_cached, "active": stats.blocks_active}
    lines += [f'stratacache_kv_blocks{{state="{state}"}} {count}' for state, count in blocks.items()]
    for name in ("waiting", "running"):
        lines += [
            f"# TYPE stratacache_engine_{name} gauge",
            f"stratacache_engine_{name} {getattr(stats, name)}",
        ]
    for name in (
        "prefix_queries",
        "prefix_hits",
        "preemptions",
        "steps",
        "computed_tokens",
        "generated_tokens",
    ):
        metric = f"stratacache_engine_{name}_total"
        lines += [f"# TYPE {metric} counter", f"{metric} {getattr(stats, name)}"]
    return "\n".join(lines) + "\n"
