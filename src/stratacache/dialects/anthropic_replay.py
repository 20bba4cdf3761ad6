"""Cut a stored Anthropic message into the events that the same call gives streamed.

``anthropic_assemble`` joins the events to the same message again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from stratacache.dialects import wire
from stratacache.dialects.openai_replay import pieces
from stratacache.types import JSON

STOP: Final = b'{"type":"message_stop"}'
_DELTA: Final = b'{"type":"content_block_delta","index":%d,"delta":{"type":"%s","%s":'
_STREAMED_TEXT: Final = {"text": ("text", b"text_delta"), "thinking": ("thinking", b"thinking_delta")}


def replay(message: Mapping[str, JSON]) -> list[bytes]:
    """The payloads of the stream, ``message_stop`` included.

    Args:
        message: one that ``anthropic_messages.completeness`` let pass; not changed.
    """
    usage = message.get("usage")
    begun = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    if type(usage) is dict:
        begun["usage"] = {**usage, "output_tokens": min(1, usage.get("output_tokens") or 0)}
    payloads = [b'{"type":"message_start","message":' + wire.encode(begun) + b"}"]
    for index, block in enumerate(message["content"]):
        payloads += _block(index, block)
    delta = {name: message.get(name) for name in ("stop_reason", "stop_sequence")}
    last = wire.encode({"delta": delta, "usage": usage if type(usage) is dict else {}})
    return [*payloads, b'{"type":"message_delta",' + last[1:], STOP]


def _block(index: int, block: Mapping[str, JSON]) -> Iterator[bytes]:
    yield (
        b'{"type":"content_block_start","index":%d,"content_block":' % index
        + wire.encode(_begun(block))
        + b"}"
    )
    kind = block["type"]
    if kind in _STREAMED_TEXT:
        name, delta = _STREAMED_TEXT[kind]
        head = _DELTA % (index, delta, name.encode())
        for piece in pieces(block[name]):
            yield head + wire.encode(piece) + b"}}"
    if kind == "text":
        for citation in block.get("citations") or ():
            yield _DELTA % (index, b"citations_delta", b"citation") + wire.encode(citation) + b"}}"
    elif kind == "thinking" and block.get("signature"):
        yield _DELTA % (index, b"signature_delta", b"signature") + wire.encode(block["signature"]) + b"}}"
    elif kind == "tool_use" and block["input"]:
        head = _DELTA % (index, b"input_json_delta", b"partial_json")
        for piece in ["", *pieces(wire.encode(block["input"]).decode())]:
            yield head + wire.encode(piece) + b"}}"
    yield b'{"type":"content_block_stop","index":%d}' % index


def _begun(block: Mapping[str, JSON]) -> dict[str, JSON]:
    """The block before its deltas; what does not come in pieces is whole."""
    begun = dict(block)
    kind = block["type"]
    if kind in _STREAMED_TEXT:
        begun[_STREAMED_TEXT[kind][0]] = ""
    if kind == "text" and block.get("citations"):
        begun["citations"] = []
    elif kind == "thinking" and block.get("signature"):
        begun["signature"] = ""
    elif kind == "tool_use":
        begun["input"] = {}
    return begun
