"""The OpenAI Responses dialect: check requests and judge answers. Pure. ``responses_streams`` has its streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from stratacache.dialects import wire
from stratacache.dialects.base import Parsed
from stratacache.dialects.checks import (
    flag,
    model_name,
    optional_object,
    required,
    typed_parts,
    without_cache_control,
    wrong_type,
)
from stratacache.dialects.openai_chat import error_body
from stratacache.dialects.responses_streams import Assembler, replay
from stratacache.dialects.usage import usage_of
from stratacache.errors import RequestError, StrataError
from stratacache.types import JSON

__all__ = [
    "USAGE_ON_REQUEST",
    "Assembler",
    "acts",
    "assembler",
    "completeness",
    "error_event",
    "fixed_answer",
    "parse",
    "replay",
    "texts_of",
    "upstream_body",
    "usage_of",
]

USAGE_ON_REQUEST: Final = False
_INCOMPLETE: Final = {"max_output_tokens": "truncated", "content_filter": "refused"}
_SAID: Final = frozenset({"message", "reasoning"})
_CALLS: Final = {"function_call": "arguments", "custom_tool_call": "input"}


def parse(body: dict[str, JSON]) -> Parsed:
    """Check the fields that the gateway itself relies on; items and fields nobody knows are the upstream's.

    Never changes ``body``.

    Raises:
        RequestError: status 400, ``param`` is the path of the first wrong field.
    """
    model = model_name(required(body, "model", "model"))
    if "messages" in body:
        raise RequestError(
            "Unsupported parameter: 'messages'. The Responses API takes them as 'input'.",
            param="messages",
            code="unsupported_field",
        )
    if "prompt" not in body or body.get("input") is not None:
        _check_input(required(body, "input", "input"))
    instructions = body.get("instructions")
    if instructions is not None and type(instructions) is not str:
        raise wrong_type("instructions", "a string or null", instructions)
    stream = flag(body, "stream", "stream")
    optional_object(body, "stream_options")
    cache, body = without_cache_control(body)
    return Parsed(model, stream, stream, cache, body)


def _check_input(items: JSON) -> None:
    if type(items) is str:
        return
    if type(items) is not list:
        raise wrong_type("input", "a string or an array of objects", items)
    if not items:
        raise RequestError(
            "'input' is an empty array. Send at least one item.", param="input", code="empty_array"
        )
    for place, item in enumerate(items):
        if type(item) is not dict:
            raise wrong_type(f"input[{place}]", "an object", item)
        content = item.get("content")
        if item.get("type", "message") == "message" and type(content) is list:
            typed_parts(content, f"input[{place}].content")


def upstream_body(body: Mapping[str, JSON], resolved_model: str, *, ask_usage: bool) -> dict[str, JSON]:
    """The body to send: ``model`` replaced; usage comes unasked."""
    return {**body, "model": resolved_model}


def assembler() -> Assembler:
    """See ``base.Answers``."""
    return Assembler()


def completeness(answer: JSON) -> str | None:
    """None when ``answer`` (a ``response``) may be stored, else one word why not.

    ``error``: it failed. ``truncated``, ``refused``: it says so, or a part is a refusal. ``unfinished``: another status
    than ``completed``. ``malformed``: not the shape of an answer, a call that no client could run, or an item that is
    neither text, nor thought, nor a call of a client's tool. ``empty``: no text and no call.
    """
    if type(answer) is not dict or answer.get("object") != "response":
        return "error" if type(answer) is dict and answer.get("error") is not None else "malformed"
    if answer.get("error") is not None or answer.get("status") == "failed":
        return "error"
    if answer.get("status") == "incomplete":
        details = answer.get("incomplete_details")
        return _INCOMPLETE.get(str(details.get("reason")) if type(details) is dict else "", "unfinished")
    if answer.get("status") != "completed":
        return "unfinished"
    items = answer.get("output")
    if type(items) is not list:
        return "malformed"
    fault = next((fault for item in items if (fault := _item_fault(item)) is not None), None)
    if fault is None and not acts(answer) and not any(text.strip() for text in texts_of(answer)):
        return "empty"
    return fault


def _item_fault(item: JSON) -> str | None:
    if type(item) is not dict or type(item.get("id")) not in (str, type(None)):
        return "malformed"
    kind = item.get("type")
    if kind in _CALLS:
        return None if _is_call(item, _CALLS[kind]) else "malformed"
    if kind not in _SAID:
        return "malformed"
    if item.get("status") not in (None, "completed"):
        return "unfinished"
    if kind == "reasoning":
        parts = (item.get("summary"), item.get("content"))
        return None if all(part is None or _are_texts(part) for part in parts) else "malformed"
    content = item.get("content")
    if type(content) is list and any(type(p) is dict and p.get("type") == "refusal" for p in content):
        return "refused"
    whole = _are_texts(content, "output_text") and item.get("role") == "assistant"
    return None if whole else "malformed"


def _are_texts(parts: JSON, kind: str = "") -> bool:
    """Whether ``parts`` are texts, of that type where one is named."""
    return type(parts) is list and all(
        type(part) is dict and type(part.get("text")) is str and kind in ("", part.get("type"))
        for part in parts
    )


def _is_call(item: Mapping[str, JSON], told: str) -> bool:
    if not all(type(item.get(name)) is str for name in ("call_id", "name", told)) or not item["name"]:
        return False
    arguments = item[told]
    return (
        told != "arguments" or not arguments.strip() or type(wire.decode_answer(arguments.encode())) is dict
    )


def error_event(error: StrataError) -> bytes:
    """The payload of the event that tells of a failure amid a stream."""
    told: dict[str, JSON] = msgspec.json.decode(error_body(error))["error"]
    members = {name: told[name] for name in ("code", "message", "param")}
    return wire.encode({"type": "error", **members, "sequence_number": 0})


def texts_of(answer: Mapping[str, JSON]) -> list[str]:
    """What a complete answer says, as one text; none where it only calls."""
    texts = [
        part["text"] for item in answer["output"] if item["type"] == "message" for part in item["content"]
    ]
    return ["".join(texts)] if texts else []


def acts(answer: Mapping[str, JSON]) -> bool:
    """Whether an answer calls a tool."""
    return any(item["type"] in _CALLS for item in answer["output"])


def fixed_answer(text: str, model: str, created: float) -> dict[str, JSON]:
    """A ``response`` that says ``text`` and cost nothing; ``created`` in seconds since the epoch."""
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {
        "id": "msg_stratacache_default",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [part],
    }
    return {
        "id": "resp_stratacache_default",
        "object": "response",
        "created_at": int(created),
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "model": model,
        "output": [message],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "store": False,
        "usage": {
            "input_tokens": 0,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 0,
        },
    }
