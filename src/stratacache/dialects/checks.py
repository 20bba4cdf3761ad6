"""The checks that all dialects share: of one field's presence and type, with an error that names its path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stratacache.errors import RequestError
from stratacache.types import JSON

MAX_MODEL: Final = 256
_KINDS: Final = {bool: "a boolean", str: "a string", list: "an array", dict: "an object", type(None): "null"}


def required(parent: Mapping[str, JSON], key: str, path: str) -> JSON:
    """``parent[key]``; RequestError ``missing_required_parameter`` when it is not there."""
    if key not in parent:
        raise RequestError(
            f"Missing required parameter: '{path}'.", param=path, code="missing_required_parameter"
        )
    return parent[key]


def model_name(value: JSON) -> str:
    """``value`` when it can be a model's name."""
    if type(value) is not str:
        raise wrong_type("model", "a string", value)
    if not value.strip():
        raise wrong_value("model", "is empty. Name the model to ask; GET /v1/models lists them.")
    if len(value) > MAX_MODEL:
        raise wrong_value("model", f"has {len(value)} characters, the most is {MAX_MODEL}.")
    if not value.isprintable():
        raise wrong_value("model", "holds characters that cannot be printed.")
    return value


def flag(parent: Mapping[str, JSON], key: str, path: str) -> bool:
    """Whether ``parent[key]`` is true; absent and null are false."""
    value = parent.get(key)
    if value is not None and type(value) is not bool:
        raise wrong_type(path, "a boolean or null", value)
    return value is True


def optional_object(body: Mapping[str, JSON], key: str) -> Mapping[str, JSON] | None:
    """``body[key]``, an object, or None."""
    value = body.get(key)
    if value is not None and type(value) is not dict:
        raise wrong_type(key, "an object or null", value)
    return value


def without_cache_control(body: dict[str, JSON]) -> tuple[Mapping[str, JSON] | None, dict[str, JSON]]:
    """LiteLLM's cache control, None when absent, and ``body`` without it; ``body`` is not changed."""
    if "cache" not in body:
        return None, body
    rest = {key: value for key, value in body.items() if key != "cache"}
    return optional_object(body, "cache"), rest


def streaming(body: Mapping[str, JSON]) -> tuple[bool, bool]:
    """Whether an answer in OpenAI's chunks is to be streamed, and whether the stream is to tell its usage."""
    stream = flag(body, "stream", "stream")
    options = optional_object(body, "stream_options")
    told = options is not None and flag(options, "include_usage", "stream_options.include_usage")
    return stream, stream and told


def message_list(value: JSON) -> None:
    """Check an array of messages: objects with a role, and content that is a text or typed parts."""
    if type(value) is not list:
        raise wrong_type("messages", "an array of objects", value)
    if not value:
        raise RequestError(
            "'messages' is an empty array. Send at least one message.", param="messages", code="empty_array"
        )
    for i, message in enumerate(value):
        if type(message) is not dict:
            raise wrong_type(f"messages[{i}]", "an object", message)
        role = required(message, "role", f"messages[{i}].role")
        if type(role) is not str:
            raise wrong_type(f"messages[{i}].role", "a string", role)
        content = message.get("content")
        if type(content) is list:
            typed_parts(content, f"messages[{i}].content")
        elif content is not None and type(content) is not str:
            raise wrong_type(f"messages[{i}].content", "a string or an array of objects", content)


def typed_parts(parts: list[JSON], path: str) -> None:
    """Check that every part is an object with a ``type``."""
    for i, part in enumerate(parts):
        if type(part) is not dict:
            raise wrong_type(f"{path}[{i}]", "an object", part)
        kind = required(part, "type", f"{path}[{i}].type")
        if type(kind) is not str:
            raise wrong_type(f"{path}[{i}].type", "a string", kind)


def wrong_type(path: str, expected: str, value: JSON) -> RequestError:
    """A field is of another JSON type."""
    kind = _KINDS.get(type(value), "a number")
    return RequestError(
        f"Invalid type for '{path}': expected {expected}, but got {kind} instead.",
        param=path,
        code="invalid_type",
    )


def wrong_value(path: str, what: str) -> RequestError:
    """A field's value cannot be; ``what`` follows the word "it"."""
    return RequestError(f"Invalid value for '{path}': it {what}", param=path, code="invalid_value")
