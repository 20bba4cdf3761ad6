"""The question log of one process: a window that the process's own index follows."""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
from collections import deque
from collections.abc import Container, Sequence
from itertools import islice

from stratacache.errors import LogGap, StoreError
from stratacache.ports import Clock, LogRecord
from stratacache.stores.log_records import removal

_KEPT = 8_192  # records: its only reader runs in the same process
_KEPT_BYTES = 64 << 20
_RECORD_BYTES = 400  # of the objects around text and vector
_POSITION = struct.Struct(">8sQ")


class MemoryQuestionLog:
    """A ``ports.QuestionLog`` that dies with the process. Its positions mean nothing to another.

    Args:
        clock: wall time judges expiry.
        most: bounds, in records and in bytes.
    """

    skipped = 0

    def __init__(self, clock: Clock, *, most: tuple[int, int] = (_KEPT, _KEPT_BYTES)) -> None:
        self._clock = clock
        self._most_records, self._most_bytes = most
        self._born = os.urandom(8)
        self._records: deque[LogRecord] = deque()
        self._dropped = 0  # records before the oldest kept
        self._bytes = 0
        self._news = asyncio.Event()
        self._closed = False

    async def append(self, records: Sequence[LogRecord]) -> None:
        self._require_open()
        self._records.extend(records)
        self._bytes += sum(map(_cost, records))
        now = self._clock.now()
        while self._records and (
            self._records[0].question.expires_at <= now
            or len(self._records) > self._most_records
            or self._bytes > self._most_bytes
        ):
            self._bytes -= _cost(self._records.popleft())
            self._dropped += 1
        self._news.set()

    async def read(self, after: bytes, count: int) -> list[tuple[bytes, LogRecord]]:
        self._require_open()
        first = self._number(after) if after else self._dropped
        now = self._clock.now()
        following = enumerate(islice(self._records, first - self._dropped, None), start=first + 1)
        alive = (
            (_POSITION.pack(self._born, number), record)
            for number, record in following
            if record.question.expires_at > now
        )
        return list(islice(alive, count))

    async def forget(self, keep: Container[bytes], until: float) -> int:
        self._require_open()

        def goes(record: LogRecord) -> bool:
            question = record.question
            return bool(record.vector) and question.created_at <= until and question.digest not in keep

        gone = {one.question.digest: removal(one.question) for one in self._records if goes(one)}
        self._records = deque(removal(one.question) if goes(one) else one for one in self._records)
        self._bytes = sum(map(_cost, self._records))
        await self.append([*gone.values()])
        return len(gone)

    async def wait(self, after: bytes, seconds: float) -> None:
        self._news.clear()
        if await self.read(after, 1):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
        self._require_open()

    async def close(self) -> None:
        self._closed = True
        self._news.set()

    @property
    def _end(self) -> int:
        """Records ever appended."""
        return self._dropped + len(self._records)

    def _number(self, position: bytes) -> int:
        """How many records a reader at ``position`` has had."""
        try:
            born, number = _POSITION.unpack(position)
        except struct.error:
            born, number = b"", 0
        if born != self._born or not self._dropped <= number <= self._end:
            raise LogGap("the question log was begun anew, or has dropped records since that position")
        return int(number)

    def _require_open(self) -> None:
        if self._closed:
            raise StoreError("the question log is closed")


def _cost(record: LogRecord) -> int:
    return _RECORD_BYTES + len(record.question.text) * 2 + len(record.vector)
