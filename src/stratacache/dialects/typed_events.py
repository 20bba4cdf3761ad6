"""Server-sent events that are named after the ``type`` in their payload, as Anthropic and OpenAI's Responses send."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from stratacache.dialects import wire
from stratacache.dialects.sse import encode

_TYPE: Final = re.compile(rb'\s*\{\s*"type"\s*:\s*"([a-z_.]{1,64})"')


def encode_stream(payloads: Sequence[bytes]) -> bytes:
    """Payloads as server-sent events with their names."""
    return b"".join([encode_event(payload) for payload in payloads])


def encode_event(payload: bytes) -> bytes:
    """One payload as an event named after its ``type``, as these APIs' clients expect."""
    found = _TYPE.match(payload)
    if found is not None:
        return b"event: " + found[1] + b"\n" + encode(payload)
    value = wire.decode_answer(payload)
    kind = value.get("type") if type(value) is dict else None
    if type(kind) is not str or not kind.isascii() or not kind.replace("_", "").replace(".", "").isalnum():
        kind = "message"
    return b"event: " + kind.encode() + b"\n" + encode(payload)
