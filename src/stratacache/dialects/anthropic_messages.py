"""Anthropic's Messages dialect: check requests, word errors, and judge answers. Pure functions, no I/O.

Streams are handled beside it: ``anthropic_assemble`` joins events to a message, ``anthropic_replay`` cuts a message
into events.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stratacache.dialects import wire
from stratacache.dialects.anthropic_assemble import Assembler
from stratacache.dialects.base import Parsed
from stratacache.dialects.checks import (
    flag,
    message_list,
    model_name,
    required,
    typed_parts,
    without_cache_control,
    wrong_type,
    wrong_value,
)
from stratacache.dialects.usage import usage_of as usage_of
from stratacache.errors import RequestError, StrataError, UpstreamError
from stratacache.types import JSON

USAGE_ON_REQUEST: Final = False
ERROR_TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_FINISHED: Final = frozenset({"end_turn", "stop_sequence", "tool_use"})
_FAILED: Final = {
    "max_tokens": "truncated",
    "model_context_window_exceeded": "truncated",
    "refusal": "refused",
}


def parse(body: dict[str, JSON], *, counting: bool = False) -> Parsed:
    """Check the fields that the gateway itself relies on; what nobody knows is the upstream's. Never changes ``body``.

    Args:
        counting: it is a request for the number of tokens, which has no ``max_tokens``.

    Raises:
        RequestError: as ``openai_chat.parse``.
    """
    model = model_name(required(body, "model", "model"))
    message_list(required(body, "messages", "messages"))
    if not counting:
        most = required(body, "max_tokens", "max_tokens")
        if type(most) is not int:
            raise wrong_type("max_tokens", "a whole number", most)
        if most < 0:
            raise wrong_value("max_tokens", "is less than 0.")
    system = body.get("system")
    if type(system) is list:
        typed_parts(system, "system")
    elif system is not None and type(system) is not str:
        raise wrong_type("system", "a string or an array of objects", system)
    stream = flag(body, "stream", "stream")
    cache, body = without_cache_control(body)
    return Parsed(model, stream, stream, cache, body)


def error_type(status: int) -> str:
    """The ``type`` of an error that comes with ``status``, as the API's documentation lists them."""
    return ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")


def error_body(error: StrataError) -> bytes:
    """``error`` as Anthropic's JSON: ``{"type": "error", "error": {"type", "message"}}``.

    Errors that are neither a request's nor an upstream's are worded without their detail.
    """
    message, status = "Internal error.", 500
    if isinstance(error, UpstreamError | RequestError):
        message, status = error.message, error.status
    return error_json(message, status)


def error_json(message: str, status: int) -> bytes:
    """An error of the kind that goes with ``status``."""
    return wire.encode({"type": "error", "error": {"type": error_type(status), "message": message}})


def upstream_body(body: Mapping[str, JSON], resolved_model: str, *, ask_usage: bool) -> dict[str, JSON]:
    """See ``base.Answers``; usage comes unasked."""
    return {**body, "model": resolved_model}


def assembler() -> Assembler:
    """See ``base.Answers``."""
    return Assembler()


def texts_of(answer: Mapping[str, JSON]) -> list[str]:
    """What a complete message says: its text blocks as one."""
    texts = [block["text"] for block in answer["content"] if block["type"] == "text"]
    return ["".join(texts)] if texts else []


def fixed_answer(text: str, model: str, created: float) -> dict[str, JSON]:
    """A message that says ``text`` and cost nothing."""
    return {
        "id": "msg_stratacache_default",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }


def completeness(answer: JSON) -> str | None:
    """None when ``answer`` (a ``message``) may be stored, else one word why not; the words are ``openai_chat``'s.

    ``unfinished``: also a turn that was paused, or a stop reason nobody knows.
    """
    if type(answer) is not dict:
        return "malformed"
    if answer.get("type") == "error" or answer.get("error") is not None:
        return "error"
    content, stop = answer.get("content"), answer.get("stop_reason")
    if answer.get("type") != "message" or type(content) is not list:
        return "malformed"
    if not (stop is None or type(stop) is str) or not all(_is_block(block) for block in content):
        return "malformed"
    if stop in _FAILED:
        return _FAILED[stop]
    if stop not in _FINISHED:
        return "unfinished"
    calls = any(block["type"] == "tool_use" for block in content)
    if stop == "tool_use" and not calls:
        return "malformed"
    says = any(
        block["type"] != "text" or block["text"].strip() for block in content if not _is_thought(block)
    )
    return None if says else "empty"


def _is_thought(block: Mapping[str, JSON]) -> bool:
    return block["type"] in ("thinking", "redacted_thinking")


def _is_block(block: JSON) -> bool:
    """Whether a client could use it, as far as its kind is known."""
    kind = block.get("type") if type(block) is dict else None
    if type(kind) is not str:
        return False
    if kind == "text":
        return type(block.get("text")) is str
    if kind == "thinking":
        return type(block.get("thinking")) is str
    if kind == "tool_use":
        return _is_word(block.get("id")) and _is_word(block.get("name")) and type(block.get("input")) is dict
    return True


def _is_word(value: JSON) -> bool:
    return type(value) is str and value != ""
