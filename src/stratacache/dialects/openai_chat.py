"""The OpenAI chat dialect: check requests, word errors, and judge answers. Pure functions, no I/O.

Streams are handled beside it: ``openai_assemble`` joins chunks to an answer, ``openai_replay`` cuts an answer
into chunks; both are offered here too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from stratacache.dialects import wire
from stratacache.dialects.base import Parsed
from stratacache.dialects.checks import message_list, model_name, required, streaming, without_cache_control
from stratacache.dialects.openai_assemble import Assembler, without_usage
from stratacache.dialects.openai_replay import replay
from stratacache.dialects.usage import usage_of
from stratacache.errors import RequestError, StrataError, UpstreamError
from stratacache.types import JSON

__all__ = [
    "USAGE_ON_REQUEST",
    "Assembler",
    "Parsed",
    "assembler",
    "completeness",
    "error_body",
    "fixed_answer",
    "parse",
    "replay",
    "texts_of",
    "upstream_body",
    "usage_of",
    "without_usage",
]

USAGE_ON_REQUEST: Final = True
_ERROR_TYPES: Final = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_FINISHED: Final = frozenset({"stop", "tool_calls", "function_call"})
_FAILED: Final = {
    "length": "truncated",
    "max_tokens": "truncated",
    "content_filter": "refused",
    "refusal": "refused",
    "error": "error",
}


def parse(body: dict[str, JSON]) -> Parsed:
    """Check the fields that the gateway itself relies on; roles and fields nobody knows are the upstream's.

    Never changes ``body``.

    Raises:
        RequestError: status 400, ``param`` is the path of the first wrong field; code
            ``missing_required_parameter``, ``invalid_type``, ``invalid_value`` or ``empty_array``.
    """
    model = model_name(required(body, "model", "model"))
    message_list(required(body, "messages", "messages"))
    stream, include_usage = streaming(body)
    cache, body = without_cache_control(body)
    return Parsed(model, stream, include_usage, cache, body)


def upstream_body(body: Mapping[str, JSON], resolved_model: str, *, ask_usage: bool) -> dict[str, JSON]:
    """The body to send upstream: ``model`` replaced and, with ``ask_usage``, usage asked of the stream.

    The client's other stream options are kept. Never changes ``body``.
    """
    sent = {**body, "model": resolved_model}
    if ask_usage:
        sent["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
    return sent


def error_body(error: StrataError) -> bytes:
    """``error`` as OpenAI's JSON: ``{"error": {"message", "type", "param", "code"}}``.

    ``type`` follows the status: 401 ``authentication_error``, 403 ``permission_error``, 429
    ``rate_limit_error``, other 4xx ``invalid_request_error``, 5xx ``server_error``; ``api_error`` when the
    upstream failed. Errors that are neither a request's nor an upstream's are worded without their detail.
    """
    message, kind, param, code = "Internal error.", "server_error", None, "internal_error"
    if isinstance(error, UpstreamError):
        message, kind, code = error.message, "api_error", error.code
    elif isinstance(error, RequestError):
        message, param, code = error.message, error.param, error.code
        if error.status < 500:
            kind = _ERROR_TYPES.get(error.status, "invalid_request_error")
    return wire.encode({"error": {"message": message, "type": kind, "param": param, "code": code}})


def assembler() -> Assembler:
    """See ``base.Answers``."""
    return Assembler()


def texts_of(answer: Mapping[str, JSON]) -> list[str]:
    """What each choice of a complete answer says, where that is one text."""
    contents = [choice["message"].get("content") for choice in answer["choices"]]
    return [content for content in contents if type(content) is str]


def fixed_answer(text: str, model: str, created: float) -> dict[str, JSON]:
    """A ``chat.completion`` that says ``text`` and cost nothing; ``created`` in seconds since the epoch."""
    message = {"role": "assistant", "content": text}
    return {
        "id": "chatcmpl-stratacache-default",
        "object": "chat.completion",
        "created": int(created),
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }


def completeness(answer: JSON) -> str | None:
    """None when ``answer`` (a ``chat.completion``) may be stored, else one word why not.

    ``error``: it has a non-null ``error``, at the top or in a choice. ``malformed``: not the shape of an
    answer, or tool calls that a client could not run. ``unfinished``: no choices, or a finish reason that is
    null or unknown (a vendor's synonym is not stored: in doubt, miss). ``truncated``: out of tokens.
    ``refused``: a refusal or a content filter. ``empty``: no text and no call; spoken answers count as empty
    because their ids expire at the provider.
    """
    return fault_of_choices(answer, _choice_fault)


def fault_of_choices(answer: JSON, fault_of: Callable[[dict[str, JSON]], str | None]) -> str | None:
    """What is wrong with an answer of several choices: with itself, or the first that ``fault_of`` finds in one."""
    if type(answer) is not dict:
        return "malformed"
    if answer.get("error") is not None:
        return "error"
    choices = answer.get("choices")
    if type(choices) is not list or not all(type(choice) is dict for choice in choices):
        return "malformed"
    if not choices:
        return "unfinished"
    indices = [choice.get("index", position) for position, choice in enumerate(choices)]
    if not all(type(index) is int for index in indices) or len(set(indices)) < len(indices):
        return "malformed"
    return next((fault for choice in choices if (fault := fault_of(choice)) is not None), None)


def _choice_fault(choice: dict[str, JSON]) -> str | None:
    message, finish = choice.get("message"), choice.get("finish_reason")
    if choice.get("error") is not None:
        return "error"
    if type(message) is not dict or not (finish is None or type(finish) is str):
        return "malformed"
    if finish in _FAILED:
        return _FAILED[finish]
    if finish not in _FINISHED:
        return "unfinished"
    return _message_fault(message, finish)


def _message_fault(message: dict[str, JSON], finish: str) -> str | None:
    content, calls, call = message.get("content"), message.get("tool_calls"), message.get("function_call")
    if message.get("refusal"):
        return "refused"
    if not _is_content(content) or not (calls is None or type(calls) is list):
        return "malformed"
    if not all(_is_tool_call(item) for item in calls or ()) or not (call is None or _is_function(call)):
        return "malformed"
    if (finish == "tool_calls" and not calls) or (finish == "function_call" and call is None):
        return "malformed"
    has_text = bool(content.strip() if type(content) is str else content)
    return None if has_text or calls or call else "empty"


def _is_content(content: JSON) -> bool:
    if type(content) is list:
        return all(type(part) is dict and type(part.get("type")) is str for part in content)
    return content is None or type(content) is str


def _is_tool_call(call: JSON) -> bool:
    if type(call) is not dict or not _is_word(call.get("id")):
        return False
    if call.get("type") == "custom":
        custom = call.get("custom")
        return type(custom) is dict and _is_word(custom.get("name")) and type(custom.get("input")) is str
    return call.get("type") == "function" and _is_function(call.get("function"))


def _is_function(function: JSON) -> bool:
    """Whether a client could run it: a name, and arguments that are JSON (servers write none as "")."""
    if type(function) is not dict or not _is_word(function.get("name")):
        return False
    arguments = function.get("arguments")
    if type(arguments) is not str:
        return False
    return not arguments.strip() or type(wire.decode_answer(arguments.encode())) is dict


def _is_word(value: JSON) -> bool:
    return type(value) is str and value != ""
