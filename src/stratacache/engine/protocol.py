"""OpenAI's chat JSON: what is honoured, what is refused by name, what cannot change the answer.

Every field is in exactly one class below; a field in none is refused. Nothing that would change the
answer is ignored silently.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from stratacache.engine.errors import InvalidRequest, UnsupportedFeature
from stratacache.engine.sequence import Sampling

Json = dict[str, Any]

HONOURED = frozenset(
    {
        "model",
        "messages",
        "stream",
        "stream_options",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "top_k",
        "seed",
        "stop",
        "cache_salt",
        "conversation",
        "ignore_eos",
        "logprobs",
        "n",
        "priority",
        "response_format",
        "timeout",
        "top_logprobs",
        "topic",
    }
)
IRRELEVANT = frozenset(
    {
        "user",
        "metadata",
        "store",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "prompt_cache_options",
        "parallel_tool_calls",
        "prediction",
    }
)
# Known, and honoured only where they ask for nothing. The values are those that ask for nothing.
ONLY_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "min_p": (0,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
    "web_search_options": (),
    "moderation": (),
}
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
MAX_STOPS = 16
MAX_ANSWERS = 16
MAX_TOP_LOGPROBS = 20
MAX_LABEL = 256  # characters of a conversation's name or topic
MAX_TIMEOUT = 86_400
ANY_OBJECT: Json = {"type": "object"}


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A checked request: messages have a role that the template knows and plain text as content.

    `schema` is a JSON schema that the answer must follow; `timeout` is in seconds.
    """

    model: str
    messages: tuple[dict[str, str], ...]
    stream: bool
    include_usage: bool
    max_tokens: int | None
    sampling: Sampling
    stops: tuple[str, ...]
    salt: str | None
    ignore_eos: bool
    n: int
    schema: Json | None
    priority: int
    conversation: str | None
    topic: str | None
    timeout: float | None


def parse_chat(body: bytes) -> ChatRequest:
    """Reads a body. Raises InvalidRequest or UnsupportedFeature with the field's name."""
    try:
        fields = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"The body is not valid JSON: {error}") from error
    if not isinstance(fields, dict):
        raise InvalidRequest("The body must be a JSON object")
    given = {name: value for name, value in fields.items() if value is not None}
    _refuse_unsupported(given)
    stream = _flag(given, "stream")
    return ChatRequest(
        model=_text(given, "model") or _missing("model"),
        messages=_messages(given.get("messages")),
        stream=stream,
        include_usage=_include_usage(given, stream),
        max_tokens=_max_tokens(given),
        sampling=_sampling(given),
        stops=_stops(given.get("stop", [])),
        salt=_text(given, "cache_salt"),
        ignore_eos=_flag(given, "ignore_eos"),
        n=_integer(given, "n", 1, MAX_ANSWERS) or 1,
        schema=_schema(given.get("response_format", {"type": "text"})),
        priority=_integer(given, "priority", -1000, 1000) or 0,
        conversation=_label(given, "conversation"),
        topic=_label(given, "topic"),
        timeout=_timeout(given),
    )


def _refuse_unsupported(given: Json) -> None:
    for name, value in given.items():
        if name in ONLY_NEUTRAL:
            if not any(_same(value, neutral) for neutral in ONLY_NEUTRAL[name]):
                raise UnsupportedFeature(f"This engine does not support '{name}' with this value", name)
        elif name not in HONOURED and name not in IRRELEVANT:
            raise UnsupportedFeature(f"Unknown field '{name}'", name)


def _same(value: Any, neutral: Any) -> bool:
    """Equality that tells 1 from true, as JSON does."""
    return isinstance(value, bool) == isinstance(neutral, bool) and bool(value == neutral)


def _missing(name: str) -> Any:
    raise InvalidRequest(f"'{name}' is required", name)


def _text(given: Json, name: str) -> str | None:
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidRequest(f"'{name}' must be a string", name)
    return value


def _label(given: Json, name: str) -> str | None:
    value = _text(given, name)
    if value is not None and not 0 < len(value) <= MAX_LABEL:
        raise InvalidRequest(f"'{name}' must have 1 to {MAX_LABEL} characters", name)
    return value


def _flag(given: Json, name: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise InvalidRequest(f"'{name}' must be true or false", name)
    return value


def _number(given: Json, name: str, default: float, low: float, high: float) -> float:
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise InvalidRequest(f"'{name}' must be a number from {low:g} to {high:g}", name)
    return float(value)


def _integer(given: Json, name: str, low: int, high: int) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidRequest(f"'{name}' must be an integer from {low} to {high}", name)
    return value


def _timeout(given: Json) -> float | None:
    if "timeout" not in given:
        return None
    return _number(given, "timeout", 0, 0.001, MAX_TIMEOUT)


def _schema(value: Any) -> Json | None:
    """The JSON schema that `response_format` asks for, None for plain text."""
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return ANY_OBJECT
    if kind != "json_schema":
        raise InvalidRequest(
            "'response_format.type' must be text, json_object or json_schema", "response_format"
        )
    holder = value.get("json_schema")
    schema = holder.get("schema", ANY_OBJECT) if isinstance(holder, dict) else None
    if not isinstance(schema, dict):
        where = "response_format.json_schema"
        raise InvalidRequest(f"'{where}' must be an object with a 'schema' that is one", where)
    return schema


def _include_usage(given: Json, stream: bool) -> bool:
    options = given.get("stream_options", {})
    if not isinstance(options, dict) or options.keys() - {"include_usage", "include_obfuscation"}:
        raise InvalidRequest("'stream_options' takes include_usage and include_obfuscation", "stream_options")
    if options and not stream:
        raise InvalidRequest("'stream_options' is only allowed with stream: true", "stream_options")
    return _flag({name: value for name, value in options.items() if value is not None}, "include_usage")


def _max_tokens(given: Json) -> int | None:
    old, new = (_integer(given, name, 1, 1 << 31) for name in ("max_tokens", "max_completion_tokens"))
    if old is not None and new is not None and old != new:
        raise InvalidRequest("'max_tokens' and 'max_completion_tokens' differ", "max_tokens")
    return old if new is None else new


def _sampling(given: Json) -> Sampling:
    top_k = _integer(given, "top_k", -1, 1 << 31) or 0
    return Sampling(
        temperature=_number(given, "temperature", 1.0, 0, 2),
        top_p=_number(given, "top_p", 1.0, 0, 1),
        top_k=max(top_k, 0),  # -1 is vLLM's word for "off"
        seed=_integer(given, "seed", -(1 << 63), (1 << 63) - 1),
        top_logprobs=_top_logprobs(given),
    )


def _top_logprobs(given: Json) -> int | None:
    top = _integer(given, "top_logprobs", 0, MAX_TOP_LOGPROBS)
    if _flag(given, "logprobs"):
        return top or 0
    if top:
        raise InvalidRequest("'top_logprobs' needs logprobs: true", "top_logprobs")
    return None


def _stops(value: Any) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or len(stops) > MAX_STOPS:
        raise InvalidRequest(f"'stop' must be a string or up to {MAX_STOPS} strings", "stop")
    if not all(isinstance(stop, str) and stop for stop in stops):
        raise InvalidRequest("'stop' must not hold an empty or non-text entry", "stop")
    return tuple(stops)


def _messages(value: Any) -> tuple[dict[str, str], ...]:
    if not isinstance(value, list) or not value:
        raise InvalidRequest("'messages' must be a list with at least one message", "messages")
    return tuple(_message(message, f"messages[{index}]") for index, message in enumerate(value))


def _message(message: Any, where: str) -> dict[str, str]:
    if not isinstance(message, dict):
        raise InvalidRequest(f"'{where}' must be an object", where)
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise InvalidRequest(f"'{where}.role' must be one of {', '.join(ROLES)}", f"{where}.role")
    for name, extra in message.items():
        # SDKs echo an answer back with its empty fields; one with content would be lost in the template.
        if name not in ("role", "content") and extra not in (None, []):
            raise UnsupportedFeature(f"This engine does not support '{where}.{name}'", f"{where}.{name}")
    return {"role": ROLES[role], "content": _content(message.get("content"), f"{where}.content")}


def _content(content: Any, where: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise InvalidRequest(f"'{where}' must be a string or a list of text parts", where)
    return "\n".join(_part(part, f"{where}[{index}]") for index, part in enumerate(content))


def _part(part: Any, where: str) -> str:
    if not isinstance(part, dict):
        raise InvalidRequest(f"'{where}' must be an object", where)
    if part.get("type") != "text":
        raise UnsupportedFeature(f"'{where}': only parts of type text are supported", f"{where}.type")
    if not isinstance(part.get("text"), str):
        raise InvalidRequest(f"'{where}.text' must be a string", f"{where}.text")
    return str(part["text"])
