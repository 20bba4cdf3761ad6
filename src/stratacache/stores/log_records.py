"""How a record of the question log is written, and which of the records found a reader is given."""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from stratacache.errors import StoreError
from stratacache.ports import Clock, LogRecord
from stratacache.stores.sqlite_rows import whole_seconds
from stratacache.types import Question

KEPT = 131_072
"""Records that a shared log keeps."""

KEPT_BYTES = 256 << 20
"""Bytes of encoded records that a shared log keeps."""

LARGEST = 64 << 10
"""Bytes of one encoded record: the question's text and a vector."""

Row = tuple[bytes, bytes]
"""A position and an encoded record."""

_MAGIC = b"SQ1"
_HEAD = 7  # magic and CRC-32 of the rest


class _Fields(msgspec.Struct, array_like=True, frozen=True):
    """Kept as an array: new fields go to the end with a default, so old records stay readable."""

    digest: bytes
    partition: bytes
    text: str
    created_at: float
    expires_at: float
    principal: str
    witnesses: tuple[str, ...]
    vector: bytes
    fingerprint: str


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Fields)


def encode(record: LogRecord) -> bytes:
    """``record`` as bytes that tell whether they are whole.

    Raises:
        StoreError: it is larger than ``LARGEST``, or holds half of a surrogate pair.
    """
    question = record.question
    fields = _Fields(
        question.digest,
        question.partition,
        question.text,
        question.created_at,
        question.expires_at,
        question.principal,
        question.witnesses,
        record.vector,
        record.fingerprint,
    )
    try:
        written = _encoder.encode(fields)
    except UnicodeEncodeError as error:
        raise StoreError(f"a question holds text that has no UTF-8: {error.reason}") from None
    if len(written) > LARGEST:
        raise StoreError(
            f"a question of {len(written)} bytes is larger than the {LARGEST} that the log takes"
        )
    return b"".join((_MAGIC, zlib.crc32(written).to_bytes(4, "little"), written))


def encode_alive(records: Sequence[LogRecord], now: float) -> list[tuple[int, bytes]]:
    """The records that have not expired, each with the whole seconds that it expires at. Raises as ``encode``."""
    return [
        (whole_seconds(record.question.expires_at), encode(record))
        for record in records
        if record.question.expires_at > now
    ]


def decode(value: bytes) -> LogRecord | None:
    """The record in ``value``, or None when that is torn, foreign or of a version that this one cannot read."""
    written = memoryview(value)[_HEAD:]
    if value[:3] != _MAGIC or value[3:_HEAD] != zlib.crc32(written).to_bytes(4, "little"):
        return None
    try:
        fields = _decoder.decode(written)
    except msgspec.MsgspecError:
        return None
    *of_question, vector, fingerprint = msgspec.structs.astuple(fields)
    return LogRecord(Question(*of_question), vector, fingerprint)


def removal(question: Question) -> LogRecord:
    """That ``question`` is gone, without a word of it."""
    created, expires = question.created_at, question.expires_at
    return LogRecord(Question(question.digest, b"", "", created_at=created, expires_at=expires))


class Sieve:
    """Passes over rows that are not whole, and those whose question has expired.

    How far that went is remembered, as a reader that is given nothing asks again from where it was.
    """

    def __init__(self, clock: Clock) -> None:
        self.skipped = 0
        self._clock = clock
        self._passed = (b"", b"")  # from a reader's position on to the other there is nothing for it

    def place(self, after: bytes) -> bytes:
        """Where the rows begin that a reader at ``after`` has not been denied yet."""
        return self._passed[1] if after == self._passed[0] else after

    async def read(
        self, after: bytes, count: int, rows: Callable[[bytes, int], Awaitable[Sequence[Row]]]
    ) -> list[tuple[bytes, LogRecord]]:
        """At most ``count`` records after ``after``; ``rows`` gives those after a position, oldest first."""
        while True:
            found = await rows(self.place(after), count)
            kept = self._sift(found)
            if not kept and found:
                self._passed = (after, found[-1][0])
            if kept or len(found) < count:
                return kept

    def _sift(self, rows: Sequence[Row]) -> list[tuple[bytes, LogRecord]]:
        now = self._clock.now()
        kept = []
        for position, value in rows:
            record = decode(value)
            if record is None:
                self.skipped += 1
            elif record.question.expires_at > now:
                kept.append((position, record))
        return kept
