"""JSON between the wire and our values: decoding that refuses with reasons, and one shared encoder."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from stratacache.errors import RequestError
from stratacache.types import JSON

MAX_DEPTH: Final = 128
"""Objects and lists inside each other; real requests (JSON schemas of tools) stay below 20."""

MAX_CONTAINERS: Final = 250_000
"""Objects and lists in one body: 8 MB of ``[],[],`` would take 230 MB and seconds to decode."""

# possessive, and the closing quote optional: linear also when a string never ends
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+', re.DOTALL)
_BYTE: Final = re.compile(r"^(?:JSON is malformed: )?(.*) \(byte (\d+)\)$")
_NOT_OBJECT: Final = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}

encode: Final = msgspec.json.Encoder().encode
"""A decoded value as compact UTF-8 JSON. Raises nothing for values that ``decode_body`` returned."""


def decode_body(raw: bytes, *, max_depth: int = MAX_DEPTH) -> dict[str, JSON]:
    """The JSON object in a request body; of a name given twice the last value counts.

    Raises:
        RequestError: status 400; code ``empty_body``, ``invalid_encoding`` (not UTF-8), ``too_many_values``,
            ``nesting_too_deep`` or ``invalid_json`` (malformed, a number out of range, not an object).
    """
    if not raw or raw.isspace():
        raise RequestError("The request body is empty. Send a JSON object.", code="empty_body")
    if _crowded(raw):
        raise RequestError(
            f"The request body holds more than {MAX_CONTAINERS} objects and arrays. Split it.",
            code="too_many_values",
        )
    try:
        value = msgspec.json.decode(raw)
    except RecursionError:
        raise _too_deep(max_depth) from None
    except msgspec.DecodeError as error:
        raise _undecodable(raw, str(error)) from None
    if _deeper_than(raw, value, max_depth):
        raise _too_deep(max_depth)
    if type(value) is not dict:
        kind = _NOT_OBJECT.get(type(value), "a number")
        raise RequestError(f"The request body must be a JSON object, but is {kind}.", code="invalid_json")
    return value


def decode_answer(raw: bytes, *, max_depth: int = MAX_DEPTH) -> JSON:
    """The JSON value an upstream sent, or None when it is not JSON or too deep or crowded to be kept."""
    if _crowded(raw):
        return None
    try:
        value = msgspec.json.decode(raw)
    except (RecursionError, msgspec.DecodeError):
        return None
    return None if _deeper_than(raw, value, max_depth) else value


def _brackets(raw: bytes) -> int:
    return raw.count(b"{") + raw.count(b"[")


def _crowded(raw: bytes) -> bool:
    """Whether more than ``MAX_CONTAINERS`` objects and arrays open, those in strings not counted."""
    if len(raw) <= MAX_CONTAINERS or _brackets(raw) <= MAX_CONTAINERS:
        return False
    return _brackets(_STRING.sub(b"", raw)) > MAX_CONTAINERS


def _deeper_than(raw: bytes, value: JSON, limit: int) -> bool:
    """Whether containers are nested more than ``limit`` deep; linear in the body, free for small ones."""
    if _brackets(raw) <= limit:
        return False
    level = [value]
    for _ in range(limit):
        level = [
            child
            for parent in level
            for child in (parent.values() if type(parent) is dict else parent)
            if type(child) is dict or type(child) is list
        ]
        if not level:
            return False
    return True


def _too_deep(limit: int) -> RequestError:
    message = f"The request body nests objects or arrays more than {limit} deep. Flatten it."
    return RequestError(message, code="nesting_too_deep")


def _undecodable(raw: bytes, detail: str) -> RequestError:
    """What is wrong with a body that msgspec refused; its own text is kept where it is already clear."""
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        return RequestError(
            f"The request body is not UTF-8: byte {error.start} is invalid ({error.reason}). "
            "Encode the JSON as UTF-8.",
            code="invalid_encoding",
        )
    if raw.startswith(b"\xef\xbb\xbf"):
        detail = "it starts with a byte order mark at byte 0"
    elif (where := _BYTE.match(detail)) is not None:
        detail = f"{where[1]} at byte {where[2]}"
    elif "truncated" in detail:
        # msgspec also says "truncated" for a high surrogate that no second \u escape follows
        half = " or holds half of a surrogate pair" if b"\\ud" in raw.lower() else ""
        detail = f"it ends in the middle of a value{half} at byte {len(raw)}"
    elif "out of range" in detail:
        detail = "it holds a number that is out of range"
    return RequestError(f"The request body is not valid JSON: {detail}.", code="invalid_json")
