"""How a flight travels to other instances: its head, chunks and end as self-contained frames."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stratacache.dialects import wire
from stratacache.errors import UpstreamError
from stratacache.pipeline.flight import Chunk, Flight, Head, Landing
from stratacache.types import Usage


class _HeadFrame(msgspec.Struct, tag="head", array_like=True):
    head: Head
    streamed: bool


class _ChunksFrame(msgspec.Struct, tag="chunks", array_like=True):
    chunks: list[Chunk]


class _LandingFrame(msgspec.Struct, tag="landing", array_like=True):
    body: bytes
    is_answer: bool
    usage: Usage
    done: bool


class _FailureFrame(msgspec.Struct, tag="failure", array_like=True):
    message: str
    status: int
    code: str
    streamed: bool


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_HeadFrame | _ChunksFrame | _LandingFrame | _FailureFrame)


class FrameWriter:
    """Turns what a flight has reported since the last call into frames."""

    def __init__(self, flight: Flight) -> None:
        self._flight = flight
        self._chunks = 0
        self._said_head = self._said_end = False

    def news(self) -> list[bytes]:
        """Frames for what is new; once the flight is over the last one says how it ended."""
        flight = self._flight
        frames: list[bytes] = []
        if flight.head is not None and not self._said_head:
            self._said_head = True
            frames.append(_encoder.encode(_HeadFrame(flight.head, flight.streamed)))
        if len(flight.chunks) > self._chunks:
            frames.append(_encoder.encode(_ChunksFrame(flight.chunks[self._chunks :])))
            self._chunks = len(flight.chunks)
        if self._said_end:
            return frames
        self._said_end = flight.over
        if flight.landing is not None:
            landing = flight.landing
            is_answer = landing.answer is not None
            frames.append(
                _encoder.encode(_LandingFrame(landing.body, is_answer, landing.usage, landing.done))
            )
        elif flight.failure is not None:
            failure = flight.failure
            frames.append(
                _encoder.encode(_FailureFrame(failure.message, failure.status, failure.code, flight.streamed))
            )
        return frames


def repeat(frames: Sequence[bytes], flight: Flight) -> bool:
    """Report on ``flight`` what ``frames`` say, up to its end.

    Returns False at a frame of another version of ours, or one that does not continue what was heard.
    """
    for data in frames:
        if flight.over:
            break
        try:
            frame = _decoder.decode(data)
        except msgspec.MsgspecError:
            return False
        if isinstance(frame, _HeadFrame):
            flight.streamed = frame.streamed
            flight.depart(frame.head)
        elif isinstance(frame, _FailureFrame):
            flight.streamed = frame.streamed
            flight.fail(UpstreamError(frame.message, status=frame.status, code=frame.code))
        elif flight.head is None:
            return False
        elif isinstance(frame, _ChunksFrame):
            flight.relay(frame.chunks)
        else:
            answer = wire.decode_answer(frame.body) if frame.is_answer else None
            flight.land(Landing(frame.body, answer, frame.usage, frame.done))
    return True
