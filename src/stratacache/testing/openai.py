"""A fake of OpenAI's chat API that holds to its rules: completions, streams, and the prompt cache with its routing.

In an async test (the server lives in the test's own loop)::

    async with OpenAIFake() as fake:
        client = openai.AsyncOpenAI(base_url=fake.base_url, api_key="sk-fake")
        fake.default = Completion("Paris.")              # every call from now on, or
        fake.script(ChatError(429), Completion("2nd"))   # the next calls
        ...
        fake.usages[0].read, .written, .prompt           # the prompt cache, call by call

``with in_thread(OpenAIFake()) as fake`` runs it in a thread of its own, for the synchronous SDK.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web

from stratacache.testing.openai_cache import LIVES, OpenAICache, OpenAIUsage, has_breakpoints
from stratacache.testing.prompt_cache import estimated_tokens
from stratacache.testing.server import Call, FakeServer, json_response

CHAT = "/v1/chat/completions"
MAX_KEY = 64


@dataclass(frozen=True)
class Completion:
    """What the model says; ``message`` adds members to the assistant's message, such as ``tool_calls``."""

    text: str | None = "Hello from the fake."
    finish_reason: str = "stop"
    message: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ChatError:
    """An error instead of an answer, in the API's own shape."""

    status: int
    message: str = "refused by the fake"
    param: str | None = None
    code: str | None = None


class OpenAIFake(FakeServer["Completion | ChatError"]):
    """The server; ``base_url`` has ``/v1``.

    Args:
        keys: API key to organisation; any other is refused with 401. Organisations share no cache entries.
        now: the clock of the prompt cache, in seconds.
    """

    def __init__(
        self, keys: Mapping[str, str] | None = None, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(Completion())
        self.keys = dict(keys or {"sk-fake": "default"})
        self.cache = OpenAICache(now)
        self.usages: list[OpenAIUsage] = []

    @property
    def base_url(self) -> str:
        return f"{self.root}/v1"

    @property
    def chat_calls(self) -> int:
        """POSTs to ``/v1/chat/completions`` so far."""
        return sum(call.path == CHAT and call.method == "POST" for call in self.calls)

    async def _answer(self, request: web.Request, call: Call) -> web.StreamResponse:
        owner = self.keys.get(call.headers.get("authorization", "").removeprefix("Bearer "))
        if owner is None:
            return _error(ChatError(401, "Incorrect API key provided.", code="invalid_api_key"))
        if (call.method, call.path) != ("POST", CHAT):
            return _error(ChatError(404, f"Unknown request URL: {call.method} {call.path}"))
        refused = check(call.json)
        if refused is not None:
            return _error(refused)
        answer = self._choose(call)
        if isinstance(answer, ChatError):
            return _error(answer)
        used = self.cache.serve(owner, call.json)
        self.usages.append(used)
        made = _made(answer, call.json["model"], used, len(self.calls))
        if call.json.get("stream") is not True:
            return json_response(made)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        wants_usage = (call.json.get("stream_options") or {}).get("include_usage") is True
        for event in _events(made, wants_usage=wants_usage):
            await response.write(b"data: " + msgspec.json.encode(event) + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response


def check(body: Any) -> ChatError | None:
    """Why the API refuses ``body``, None when it does not: what it says of the prompt cache, and the least besides."""
    if not isinstance(body, dict) or not isinstance(body.get("model"), str):
        return ChatError(400, "you must provide a model parameter")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        return ChatError(
            400, "Missing required parameter: 'messages'.", "messages", "missing_required_parameter"
        )
    key = body.get("prompt_cache_key")
    if key is not None and not (isinstance(key, str) and len(key) <= MAX_KEY):
        return ChatError(400, "Invalid 'prompt_cache_key'.", "prompt_cache_key", "string_above_max_length")
    return _check_breakpoints(body, messages)


def _check_breakpoints(body: Mapping[str, Any], messages: list[dict[str, Any]]) -> ChatError | None:
    marks = [
        part["prompt_cache_breakpoint"]
        for message in messages
        if isinstance(message.get("content"), list)
        for part in message["content"]
        if isinstance(part, dict) and "prompt_cache_breakpoint" in part
    ]
    options = body.get("prompt_cache_options")
    if (options is not None or marks) and not has_breakpoints(body["model"]):
        name = "prompt_cache_options" if options is not None else "prompt_cache_breakpoint"
        return ChatError(400, f"Unsupported parameter: '{name}' is not supported with this model.", name,
                         "unsupported_parameter")  # fmt: skip
    if options is not None and body.get("prompt_cache_retention") is not None:
        return ChatError(
            400, "Use either prompt_cache_options or prompt_cache_retention.", "prompt_cache_retention"
        )
    for mark in marks:
        if (
            not isinstance(mark, dict)
            or mark.get("mode") != "explicit"
            or mark.get("ttl", "30m") not in LIVES
        ):
            return ChatError(
                400, "Invalid 'prompt_cache_breakpoint'.", "prompt_cache_breakpoint", "invalid_value"
            )
    return None


def _made(answer: Completion, model: str, used: OpenAIUsage, number: int) -> dict[str, Any]:
    said = max(1, estimated_tokens(answer.text or ""))
    message = {"role": "assistant", "content": answer.text, "refusal": None, **answer.message}
    usage = {
        "prompt_tokens": used.prompt,
        "completion_tokens": said,
        "total_tokens": used.prompt + said,
        "prompt_tokens_details": used.details(),
    }
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish_reason}
    envelope = {"id": f"chatcmpl-fake{number:04d}", "object": "chat.completion", "created": 1_700_000_000}
    return {**envelope, "model": model, "choices": [choice], "usage": usage}


def _events(made: Mapping[str, Any], *, wants_usage: bool) -> Iterator[dict[str, Any]]:
    """A whole completion as the events of its stream."""
    choice = made["choices"][0]
    base = {
        "id": made["id"],
        "object": "chat.completion.chunk",
        "created": made["created"],
        "model": made["model"],
    }
    message = {name: value for name, value in choice["message"].items() if value is not None}
    if "tool_calls" in message:
        message["tool_calls"] = [{"index": i, **call} for i, call in enumerate(message["tool_calls"])]
    yield {**base, "choices": [{"index": 0, "delta": message, "finish_reason": None}]}
    yield {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    if wants_usage:
        yield {**base, "choices": [], "usage": made["usage"]}


def _error(error: ChatError) -> web.Response:
    told = {
        "message": error.message,
        "type": "invalid_request_error",
        "param": error.param,
        "code": error.code,
    }
    return json_response({"error": told}, error.status)
