"""Server-sent events: an incremental parser that accepts any chunking of bytes, and the encoder.

The rules are those of the WHATWG HTML standard, section "Server-sent events": lines end in LF, CR or CRLF, an
empty line ends an event, ``data`` lines are joined by LF, a line that starts with a colon is a comment, one
leading byte order mark is dropped, and an event without a ``data`` line is not an event. One rule is looser:
``finish`` hands out an event that the stream's end, not an empty line, terminates, because servers exist that
close right after ``data: [DONE]``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from stratacache.errors import UpstreamError

DONE: Final = b"[DONE]"
"""The payload that ends an OpenAI stream. It is not JSON."""

MAX_EVENT: Final = 8 * 1024 * 1024
_BOM: Final = b"\xef\xbb\xbf"


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event. ``data`` is the payload, its lines joined by LF; ``event`` and ``id`` are "" when absent.

    Unlike a browser's ``lastEventId``, ``id`` is this event's own and does not carry over to the next one.
    """

    data: bytes
    event: str = ""
    id: str = ""


class SSEParser:
    """Bytes in, events out. Any split of the same bytes over ``feed`` calls gives the same events.

    Args:
        max_event: the most bytes one event may have, field names and comments included, line ends at its
            edges excluded. It bounds the memory that an endless event can take.
    """

    __slots__ = ("_buffer", "_fresh", "_max_event", "_skip_lf")

    def __init__(self, max_event: int = MAX_EVENT) -> None:
        self._buffer = bytearray()
        self._fresh = True  # nothing but (a part of) a byte order mark has been seen
        self._max_event = max_event
        self._skip_lf = False  # the last byte was a CR: an LF that follows belongs to it

    def feed(self, data: bytes) -> list[Event]:
        """The events that ``data`` completes, in order.

        Raises:
            UpstreamError: code ``upstream_malformed``, an event is larger than ``max_event``. Events of the
                same call are lost and the parser is of no further use.
        """
        if self._fresh or self._skip_lf or b"\r" in data:
            data = self._normalised(data)
        buffer = self._buffer
        if not buffer:
            if data.endswith(b"\n\n"):  # the usual case: whole events, no copy into the buffer
                return self._parsed(data)
            data = data.lstrip(b"\n")
        searched = max(0, len(buffer) - 1)
        buffer += data
        events: list[Event] = []
        if (end := buffer.rfind(b"\n\n", searched)) >= 0:
            blocks, rest = bytes(buffer[:end]), bytes(buffer[end:])
            buffer.clear()
            buffer += rest.lstrip(b"\n")
            events = self._parsed(blocks)
        if len(buffer) - buffer.endswith(b"\n") > self._max_event:
            raise _too_large(self._max_event)
        return events

    def finish(self) -> list[Event]:
        """The event that the end of the stream terminates, if any. The parser is empty afterwards."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return self._parsed(rest)

    def _normalised(self, data: bytes) -> bytes:
        """``data`` with LF line ends only and without the stream's byte order mark."""
        if not data:
            return data
        if self._fresh:
            data = bytes(self._buffer) + data
            self._buffer.clear()
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._buffer += data
                return b""
            self._fresh = False
            data = data.removeprefix(_BOM)
        if self._skip_lf and data:
            self._skip_lf = False
            data = data.removeprefix(b"\n")
        if b"\r" in data:
            self._skip_lf = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return data

    def _parsed(self, blocks: bytes) -> list[Event]:
        events = []
        for block in blocks.split(b"\n\n"):
            if len(block) > self._max_event and len(block.strip(b"\n")) > self._max_event:
                raise _too_large(self._max_event)
            if block.startswith(b"data: ") and b"\n" not in block:
                events.append(Event(block[6:]))
            elif block and (event := _event(block)) is not None:
                events.append(event)
        return events


def _event(block: bytes) -> Event | None:
    """The event in ``block``, which has LF line ends and no empty line inside."""
    lines: list[bytes] = []
    fields = {b"event": b"", b"id": b""}
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            lines.append(value)
        elif name in fields:
            fields[name] = value
    if not lines:
        return None
    return Event(b"\n".join(lines), _text(fields[b"event"]), _text(fields[b"id"]))


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _too_large(limit: int) -> UpstreamError:
    return UpstreamError(f"the upstream sent an event of more than {limit} bytes", code="upstream_malformed")


def encode(payload: bytes) -> bytes:
    """``payload`` as one event. Line ends inside become several ``data`` lines, as the standard asks."""
    if b"\n" in payload or b"\r" in payload:
        lines = payload.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        return b"data: " + b"\ndata: ".join(lines) + b"\n\n"
    return b"data: " + payload + b"\n\n"


def encode_stream(payloads: Iterable[bytes]) -> bytes:
    """A whole OpenAI stream, ``[DONE]`` included. Payloads must not hold line ends (our JSON never does)."""
    return b"data: " + b"\n\ndata: ".join([*payloads, DONE]) + b"\n\n"
