"""A fake of Anthropic's API that holds to its rules: Messages, streaming, token counts, and the prompt cache.

In an async test (the server lives in the test's own loop)::

    async with AnthropicFake() as fake:
        client = anthropic.AsyncAnthropic(base_url=fake.base_url, api_key="sk-ant-fake")
        fake.default = Message(text="Paris.")                       # every call from now on, or
        fake.script(ApiError(429), Message(text="2nd"))             # the next calls, or
        fake.responder = lambda call: Message(text=call.json["messages"][-1]["content"])
        ...
        assert fake.message_calls == 1
        fake.usages[0].read, .written, .fresh                       # the prompt cache, call by call

``with in_thread(AnthropicFake()) as fake`` runs it in a thread of its own, for the synchronous SDK.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web

from stratacache.testing.anthropic_check import Refused, check
from stratacache.testing.prompt_cache import CacheUsage, PromptCache, blocks_of, estimated_tokens
from stratacache.testing.server import Call, FakeServer, Gate, json_response

MESSAGES, COUNT_TOKENS, MODELS = "/v1/messages", "/v1/messages/count_tokens", "/v1/models"
KINDS: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""The ``type`` of the error that each status carries."""


@dataclass(frozen=True)
class Message:
    """What the model says. ``text`` is split after spaces into deltas.

    Args:
        content: whole content blocks instead of ``text``, of any type that the API answers with.
        stop_reason: None: ``tool_use`` when a block calls a tool, else ``end_turn``.
        output_tokens: None: estimated.
        extra: further members of the message.
        gates: number of the SSE event (0 is ``message_start``) to the gate before it.
        header_gate: holds before the status line.
        cut_after: the connection is dropped after so many events.
        stream_error: instead of what would follow, an ``error`` event of this type ends the stream before event
            ``cut_after``.
    """

    text: str = "Hello from the fake."
    content: Sequence[Mapping[str, Any]] | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None
    output_tokens: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    gates: Mapping[int, Gate] = field(default_factory=dict)
    header_gate: Gate | None = None
    cut_after: int | None = None
    stream_error: str | None = None

    @property
    def blocks(self) -> list[dict[str, Any]]:
        """The content."""
        if self.content is not None:
            return [dict(block) for block in self.content]
        return [{"type": "text", "text": self.text}]

    def stop(self) -> str:
        """The stop reason."""
        if self.stop_reason is not None:
            return self.stop_reason
        return "tool_use" if any(b["type"] == "tool_use" for b in self.blocks) else "end_turn"

    def tokens(self) -> int:
        """``output_tokens``."""
        if self.output_tokens is not None:
            return self.output_tokens
        return max(1, estimated_tokens(msgspec.json.encode(self.blocks).decode()))


@dataclass(frozen=True)
class ApiError:
    """An error instead of an answer, in the API's own shape."""

    status: int
    message: str = "refused by the fake"
    headers: Mapping[str, str] = field(default_factory=dict)


class AnthropicFake(FakeServer["Message | ApiError"]):
    """The server. ``base_url`` is for the ``anthropic`` SDK, ``url`` (with ``/v1``) for a gateway's upstream.

    Args:
        keys: API key to workspace; any other is refused with 401. Workspaces share no cache entries.
        models: what exists; None for every name.
        now: the clock of the prompt cache, in seconds.
    """

    def __init__(
        self,
        keys: Mapping[str, str] | None = None,
        *,
        models: Sequence[str] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(Message())
        self.keys = dict(keys or {"sk-ant-fake": "default"})
        self.models = models
        self.cache = PromptCache(now)
        self.usages: list[CacheUsage] = []

    @property
    def base_url(self) -> str:
        return self.root

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    @property
    def message_calls(self) -> int:
        """POSTs to ``/v1/messages`` so far."""
        return sum(call.path == MESSAGES and call.method == "POST" for call in self.calls)

    async def _answer(self, request: web.Request, call: Call) -> web.StreamResponse:
        request_id = f"req_fake{len(self.calls):04d}"
        try:
            workspace = self._admitted(call)
            if (call.method, call.path) == ("POST", MESSAGES):
                return await self._message(request, call, workspace, request_id)
            if (call.method, call.path) == ("POST", COUNT_TOKENS):
                body = self._checked(call, counting=True)
                tokens = sum(block.tokens for block in blocks_of(body))
                return json_response({"input_tokens": tokens}, headers={"request-id": request_id})
            if (call.method, call.path) == ("GET", MODELS):
                return json_response(_listed(self.models or ("claude-sonnet-4-5",)))
            raise Refused("Not found", status=404, kind="not_found_error")
        except Refused as refused:
            return _error(refused.status, refused.kind, refused.message, request_id)

    def _admitted(self, call: Call) -> str:
        """The workspace of the caller's key."""
        bearer = call.headers.get("authorization", "").removeprefix("Bearer ")
        key = call.headers.get("x-api-key") or bearer
        if not key:
            raise Refused("x-api-key header is required", status=401, kind="authentication_error")
        workspace = self.keys.get(key)
        if workspace is None:
            raise Refused("invalid x-api-key", status=401, kind="authentication_error")
        if "anthropic-version" not in call.headers:
            raise Refused("anthropic-version: header is required")
        return workspace

    def _checked(self, call: Call, *, counting: bool = False) -> dict[str, Any]:
        body = check(call.json, call.headers["anthropic-version"], counting=counting)
        if self.models is not None and body["model"] not in self.models:
            raise Refused(f"model: {body['model']}", status=404, kind="not_found_error")
        return body

    async def _message(
        self, request: web.Request, call: Call, workspace: str, request_id: str
    ) -> web.StreamResponse:
        body = self._checked(call)
        answer = self._choose(call)
        if isinstance(answer, ApiError):
            kind = KINDS.get(answer.status, "api_error")
            return _error(answer.status, kind, answer.message, request_id, answer.headers)
        begun = self.cache.look_up(workspace, body["model"], body)
        if answer.header_gate is not None:
            await answer.header_gate.pass_through()
        self.usages.append(begun.usage)
        made = _made(answer, body["model"], begun.usage, len(self.calls))
        if body.get("stream") is not True:
            self.cache.begin_answer(begun)
            return json_response(made, headers={"request-id": request_id})
        response = web.StreamResponse(headers={"request-id": request_id, "content-type": "text/event-stream"})
        await response.prepare(request)
        for number, event in enumerate(events_of(made)):
            if number in answer.gates:
                await answer.gates[number].pass_through()
            if answer.cut_after == number:
                return await _broken_off(request, response, answer.stream_error)
            await response.write(_sse(event))
            if number == 0:
                self.cache.begin_answer(begun)
        await response.write_eof()
        return response


def events_of(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A whole message as the events of its stream, a ping among them."""
    usage = message["usage"]
    start = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    yield {"type": "message_start", "message": {**start, "usage": {**usage, "output_tokens": 1}}}
    for index, block in enumerate(message["content"]):
        empty, deltas = _pieces(block)
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        if index == 0:
            yield {"type": "ping"}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": message["stop_sequence"]}
    counted = {k: v for k, v in usage.items() if k != "cache_creation"}
    yield {"type": "message_delta", "delta": delta, "usage": counted}
    yield {"type": "message_stop"}


def _pieces(block: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The block as it starts, and the deltas that complete it."""
    kind = block["type"]
    if kind == "text":
        deltas = [{"type": "text_delta", "text": piece} for piece in _words(block["text"])]
        deltas += [{"type": "citations_delta", "citation": one} for one in block.get("citations") or ()]
        cited: dict[str, Any] = {"citations": []} if block.get("citations") else {}
        return {**block, **cited, "text": ""}, deltas
    if kind == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _words(block["thinking"])]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
        return {**block, "thinking": "", "signature": ""}, deltas
    if kind in ("tool_use", "server_tool_use"):
        written = msgspec.json.encode(block["input"]).decode()
        halves = ["", written[: len(written) // 2], written[len(written) // 2 :]]
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": h} for h in halves]
    return dict(block), []


def _words(text: str) -> list[str]:
    parts = text.split(" ")
    return [part + " " for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _made(answer: Message, model: str, usage: CacheUsage, number: int) -> dict[str, Any]:
    return {
        "id": f"msg_fake{number:04d}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": answer.blocks,
        "stop_reason": answer.stop(),
        "stop_sequence": answer.stop_sequence,
        "usage": {**usage.as_usage(), "output_tokens": answer.tokens(), "service_tier": "standard"},
        **answer.extra,
    }


def _sse(event: Mapping[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (event["type"].encode(), msgspec.json.encode(event))


async def _broken_off(
    request: web.Request, response: web.StreamResponse, error: str | None
) -> web.StreamResponse:
    if error is not None:
        told = {"type": "error", "error": {"type": error, "message": "broken off by the fake"}}
        await response.write(_sse(told))
        await response.write_eof()
    elif request.transport is not None:
        request.transport.close()
    return response


def _error(
    status: int, kind: str, message: str, request_id: str, headers: Mapping[str, str] | None = None
) -> web.Response:
    told = {"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id}
    return json_response(told, status, {"request-id": request_id, **(headers or {})})


def _listed(models: Sequence[str]) -> dict[str, Any]:
    rows = [
        {"type": "model", "id": m, "display_name": m, "created_at": "2025-01-01T00:00:00Z"} for m in models
    ]
    return {"data": rows, "has_more": False, "first_id": models[0], "last_id": models[-1]}
