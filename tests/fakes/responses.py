"""What OpenAI's server says at ``/v1/responses``, as a ``FakeUpstream.dispatch``: whole, or in documented events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from tests.fakes.upstream import Call, Reply

PATH = "/v1/responses"
USAGE = {
    "input_tokens": 12, "input_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 0}, "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 17,
}  # fmt: skip
CALL = {
    "id": "fc_1", "type": "function_call", "status": "completed", "call_id": "call_1", "name": "weather",
    "arguments": '{"city":"Zürich"}',
}  # fmt: skip
OTHER_CALL = {**CALL, "id": "fc_2", "call_id": "call_2", "name": "time", "arguments": "{}"}
THOUGHT = {
    "id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Look it up first."}],
}  # fmt: skip


def text_item(text: str, **more: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": [], **more}
    return {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": [part]}


def response(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "id": "resp_1", "object": "response", "created_at": 1_700_000_000, "status": "completed", "error": None,
        "incomplete_details": None, "instructions": None, "model": "fake-model", "output": list(items),
        "parallel_tool_calls": True, "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0,
        "store": False, "metadata": {}, "usage": USAGE, **more,
    }  # fmt: skip


def events(answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """In OpenAI's order; texts and arguments word by word."""
    begun = {**answer, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(answer["output"]):
        place = {"item_id": item["id"], "output_index": index}
        empty = {**item, **{name: [] for name in ("content", "summary") if name in item}}
        if item["type"] == "function_call":
            empty["arguments"] = ""
        yield {"type": "response.output_item.added", "output_index": index, "item": empty}
        if item["type"] == "message":
            yield from _message(item, place)
        elif item["type"] == "function_call":
            for word in _words(item["arguments"]):
                yield {"type": "response.function_call_arguments.delta", **place, "delta": word}
            yield {"type": "response.function_call_arguments.done", **place, "arguments": item["arguments"]}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": f"response.{answer['status']}", "response": answer}


def _message(item: dict[str, Any], place: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for number, part in enumerate(item["content"]):
        own = {**place, "content_index": number}
        if part["type"] != "output_text":
            continue
        yield {"type": "response.content_part.added", **own, "part": {**part, "text": ""}}
        for word in _words(part["text"]):
            yield {"type": "response.output_text.delta", **own, "delta": word, "logprobs": []}
        yield {"type": "response.output_text.done", **own, "text": part["text"], "logprobs": []}
        yield {"type": "response.content_part.done", **own, "part": part}


def _words(text: str) -> list[str]:
    first, *rest = text.split(" ")
    return [first, *(f" {word}" for word in rest)]


def encoded(told: Iterator[dict[str, Any]]) -> list[bytes]:
    return [
        f"event: {event['type']}\ndata: ".encode()
        + msgspec.json.encode({**event, "sequence_number": number})
        + b"\n\n"
        for number, event in enumerate(told)
    ]


def responding(answer: dict[str, Any] | Callable[[Call], dict[str, Any]]) -> Callable[[Call], Reply | None]:
    """A ``dispatch`` that gives ``answer`` to every call of the endpoint."""

    def dispatch(call: Call) -> Reply | None:
        if call.path != PATH:
            return None
        told = answer(call) if callable(answer) else answer
        if not call.json.get("stream"):
            return Reply(body=told)
        return Reply(raw=encoded(events(told)), content_type="text/event-stream")

    return dispatch
