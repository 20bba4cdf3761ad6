"""Streams turned from one dialect into the other while they run: chat chunks and the events of a message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from stratacache.dialects import sse, wire
from stratacache.dialects.anthropic_messages import error_json
from stratacache.dialects.anthropic_replay import STOP
from stratacache.dialects.base import Heard
from stratacache.dialects.convert_answers import (
    chat_usage,
    finish,
    message_usage,
    no_form,
    reasoning,
    stop_of,
)
from stratacache.dialects.typed_events import encode_event, encode_stream
from stratacache.types import JSON

_UPSTREAM_STATUS: Final = 502  # of an error that comes as an event, whose own status nobody tells


def _decoded(heard: Sequence[Heard]) -> Iterator[dict[str, JSON]]:
    values = (wire.decode_answer(one.payload) for one in heard)
    return (value for value in values if type(value) is dict)


@contextmanager
def _well_formed() -> Iterator[None]:
    """What an upstream sends need not have the members that its API promises."""
    try:
        yield
    except (LookupError, TypeError, AttributeError) as error:
        raise no_form("an event that lacks what its kind has") from error


class ChatFromMessages:
    """The events of a message, as chat chunks. See ``base.Live``."""

    def __init__(self, created: float, *, include_usage: bool) -> None:
        self._created = int(created)
        self._include_usage = include_usage
        self._shared: dict[str, JSON] = {}
        self._usage: dict[str, JSON] = {}
        self._block: dict[str, JSON] = {}
        self._calls = 0
        self._wrote_input = False

    def take(self, heard: Sequence[Heard]) -> bytes:
        """See ``base.Live``."""
        chunks = []
        for event in _decoded(heard):
            with _well_formed():
                chunks += [sse.encode(wire.encode(chunk)) for chunk in self._chunks(event)]
        return b"".join(chunks)

    def end(self) -> bytes:
        """The usage if it was asked for, and ``[DONE]``."""
        payloads = []
        if self._include_usage and self._usage:
            payloads.append(wire.encode({**self._shared, "choices": [], "usage": chat_usage(self._usage)}))
        return sse.encode_stream(payloads)

    def _chunks(self, event: dict[str, JSON]) -> Iterator[dict[str, JSON]]:
        kind = event.get("type")
        if kind == "message_start":
            message = event.get("message") or {}
            self._shared = {
                "id": message.get("id"),
                "object": "chat.completion.chunk",
                "created": self._created,
                "model": message.get("model"),
            }
            self._count(message.get("usage"))
            yield self._chunk({"role": "assistant", "content": ""})
        elif kind == "content_block_start":
            yield from self._begun(event["content_block"])
        elif kind == "content_block_delta":
            yield from self._grown(event["delta"])
        elif kind == "content_block_stop":
            yield from self._ended()
        elif kind == "message_delta":
            self._count(event.get("usage"))
            delta = event.get("delta") or {}
            yield self._chunk({}, finish(delta.get("stop_reason"), delta.get("stop_sequence")))
        elif kind == "error":
            error = event.get("error") or {}
            told = {"message": error.get("message"), "type": error.get("type"), "param": None, "code": None}
            yield {"error": told}

    def _begun(self, block: dict[str, JSON]) -> Iterator[dict[str, JSON]]:
        self._block = dict(block)
        self._wrote_input = False
        if block["type"] == "tool_use":
            function = {"name": block["name"], "arguments": ""}
            call = {"index": self._calls, "id": block["id"], "type": "function", "function": function}
            yield self._chunk({"tool_calls": [call]})
        elif block["type"] not in ("text", "thinking", "redacted_thinking"):
            raise no_form(f"a block of type {block['type'][:40]!r}")
        elif block.get("text"):
            yield self._chunk({"content": block["text"]})

    def _grown(self, delta: dict[str, JSON]) -> Iterator[dict[str, JSON]]:
        kind = delta.get("type")
        if kind == "text_delta":
            yield self._chunk({"content": delta["text"]})
        elif kind == "thinking_delta":
            self._block["thinking"] = (self._block.get("thinking") or "") + delta["thinking"]
            yield self._chunk({"reasoning_content": delta["thinking"]})
        elif kind == "signature_delta":
            self._block["signature"] = delta["signature"]
        elif kind == "input_json_delta" and delta["partial_json"]:
            self._wrote_input = True
            yield self._chunk(self._arguments(delta["partial_json"]))

    def _ended(self) -> Iterator[dict[str, JSON]]:
        kind = self._block.get("type")
        if kind == "tool_use":
            if not self._wrote_input:
                yield self._chunk(self._arguments(wire.encode(self._block.get("input") or {}).decode()))
            self._calls += 1
        elif kind in ("thinking", "redacted_thinking"):
            yield self._chunk({"thinking_blocks": reasoning([self._block])["thinking_blocks"]})

    def _arguments(self, piece: str) -> dict[str, JSON]:
        return {"tool_calls": [{"index": self._calls, "function": {"arguments": piece}}]}

    def _chunk(self, delta: dict[str, JSON], ended: dict[str, JSON] | None = None) -> dict[str, JSON]:
        choice = {"index": 0, "delta": delta, "logprobs": None, **(ended or {"finish_reason": None})}
        chunk = {**self._shared, "choices": [choice]}
        return {**chunk, "usage": None} if self._include_usage else chunk

    def _count(self, usage: JSON) -> None:
        if type(usage) is dict:
            self._usage |= {name: value for name, value in usage.items() if value is not None}


class MessagesFromChat:
    """Chat chunks, as the events of a message. See ``base.Live``."""

    def __init__(self) -> None:
        self._begun = False
        self._index = -1  # of the open block, or the last one
        self._open: tuple[str, int] | None = None  # its kind, and the number of the call
        self._finish: JSON = None
        self._met: JSON = None
        self._usage: JSON = None
        self._refused = False

    def take(self, heard: Sequence[Heard]) -> bytes:
        """See ``base.Live``."""
        events: list[bytes] = []
        for chunk in _decoded(heard):
            with _well_formed():
                events += [encode_event(wire.encode(event)) for event in self._events(chunk)]
        return b"".join(events)

    def end(self) -> bytes:
        """What closes the message: its last block, why it stopped, and the usage."""
        events = list(self._closed())
        stop, sequence = stop_of(self._finish, self._met)
        delta = {"stop_reason": "refusal" if self._refused else stop, "stop_sequence": sequence}
        events.append({"type": "message_delta", "delta": delta, "usage": message_usage(self._usage)})
        return encode_stream([*map(wire.encode, events), STOP])

    def _events(self, chunk: dict[str, JSON]) -> Iterator[dict[str, JSON]]:
        if chunk.get("error") is not None:
            error = chunk["error"]
            words = error.get("message") if type(error) is dict else error
            yield wire.decode_answer(error_json(str(words), _UPSTREAM_STATUS))
            return
        if chunk.get("usage") is not None:
            self._usage = chunk["usage"]
        if not self._begun:
            self._begun = True
            yield {"type": "message_start", "message": _empty_message(chunk)}
        choices = chunk.get("choices") or ()
        if len(choices) > 1 or any(choice.get("index") for choice in choices):
            raise no_form("several choices")
        for choice in choices:
            yield from self._grown(choice.get("delta") or {})
            self._finish = choice.get("finish_reason") or self._finish
            self._met = choice.get("stop_reason") if choice.get("stop_reason") is not None else self._met

    def _grown(self, delta: dict[str, JSON]) -> Iterator[dict[str, JSON]]:
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if type(thought) is str and thought:
            yield from self._into("thinking", {"type": "thinking", "thinking": "", "signature": ""})
            yield self._delta({"type": "thinking_delta", "thinking": thought})
        self._refused = self._refused or bool(delta.get("refusal"))
        text = delta.get("content") or delta.get("refusal")
        if type(text) is str and text:
            yield from self._into("text", {"type": "text", "text": ""})
            yield self._delta({"type": "text_delta", "text": text})
        for call in delta.get("tool_calls") or ():
            yield from self._called(call)

    def _called(self, call: dict[str, JSON]) -> Iterator[dict[str, JSON]]:
        function, number = call.get("function"), call.get("index", 0)
        if type(function) is not dict:
            raise no_form("a call of a tool that is no function")
        if self._open != ("tool_use", number):
            if not function.get("name"):
                raise no_form("calls of tools whose pieces are mixed")
            block = {"type": "tool_use", "id": call.get("id"), "name": function["name"], "input": {}}
            yield from self._into("tool_use", block, number)
        if function.get("arguments"):
            yield self._delta({"type": "input_json_delta", "partial_json": function["arguments"]})

    def _into(self, kind: str, block: dict[str, JSON], number: int = 0) -> Iterator[dict[str, JSON]]:
        """Make ``block`` the open one unless one of its kind is."""
        if self._open == (kind, number):
            return
        yield from self._closed()
        self._index += 1
        self._open = (kind, number)
        yield {"type": "content_block_start", "index": self._index, "content_block": block}

    def _delta(self, delta: dict[str, JSON]) -> dict[str, JSON]:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}

    def _closed(self) -> Iterator[dict[str, JSON]]:
        if self._open is not None:
            self._open = None
            yield {"type": "content_block_stop", "index": self._index}


def _empty_message(chunk: dict[str, JSON]) -> dict[str, JSON]:
    return {
        "id": chunk.get("id"),
        "type": "message",
        "role": "assistant",
        "model": chunk.get("model"),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }
