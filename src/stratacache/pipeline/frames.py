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
            frames.append(_encoder.encode(_HeadFrame(flight.head)))
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
            frames.append(_encoder.encode(_FailureFrame(failure.message, failure.status, failure.code)))
        return frames


def repeat(frames: Sequence[bytes], flight: Flight) -> None:
    """Report on ``flight`` what ``frames`` say; a frame of another version of ours is taken for a broken call."""
    for data in frames:
        try:
            frame = _decoder.decode(data)
        except msgspec.MsgspecError:
            flight.fail(UpstreamError("another instance's call cannot be followed", code="upstream_cut"))
            return
        if isinstance(frame, _HeadFrame):
            flight.depart(frame.head)
        elif isinstance(frame, _ChunksFrame):
            flight.relay(frame.chunks)
        elif isinstance(frame, _LandingFrame):
            answer = wire.decode_answer(frame.body) if frame.is_answer else None
            flight.land(Landing(frame.body, answer, frame.usage, frame.done))
        else:
            flight.fail(UpstreamError(frame.message, status=frame.status, code=frame.code))
