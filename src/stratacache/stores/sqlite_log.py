"""The question log of the processes that share a SQLite store: a table of its file, and a number to watch.

As with the news of invalidations, the number in shared memory moves inside the transaction that appends, so looking
whether there is something new takes no I/O.
"""

from __future__ import annotations

import asyncio
import sqlite3
import struct
from collections.abc import Container, Sequence

from stratacache.errors import LogGap, StoreError
from stratacache.ports import Clock, LogRecord
from stratacache.stores.log_records import KEPT, KEPT_BYTES, Row, Sieve, decode, encode, encode_alive, removal
from stratacache.stores.sqlite_bulletin import Counter
from stratacache.stores.sqlite_file import shrink, transaction
from stratacache.stores.sqlite_group import GroupCommit
from stratacache.stores.sqlite_lanes import Lanes

_GROUP = (128, 4 << 20)  # appends and bytes per transaction
_TRIM = 64  # dropped per append, beside as many as come: the backlog shrinks
_WATCH_SECONDS = 0.05  # between looks at the counter
_POSITION = struct.Struct(">qQ")  # totals.born of the file, number of the record

_Append = list[tuple[int, bytes]]
"""Whole seconds of expiry and the encoded record, of each."""


class SQLiteQuestionLog:
    """A ``ports.QuestionLog`` in the file of a SQLite store. A file that took the place of another begins a new log.

    Args:
        lanes: the store's; it closes them.
        clock: wall time judges expiry.
        most: bounds, in records and in bytes; the same in every process on the file.
    """

    def __init__(self, lanes: Lanes, clock: Clock, *, most: tuple[int, int] = (KEPT, KEPT_BYTES)) -> None:
        self._lanes = lanes
        self._clock = clock
        self._most = most
        self._sieve = Sieve(clock)
        self._counter = Counter(lanes.path.with_name(lanes.path.name + ".asked"))
        self._appends: GroupCommit[_Append, None] = GroupCommit(self._write, _size, _GROUP)
        self._closed = False

    @property
    def skipped(self) -> int:
        return self._sieve.skipped

    async def append(self, records: Sequence[LogRecord]) -> None:
        self._require_open()
        await self._appends.run(encode_alive(records, self._clock.now()))

    async def read(self, after: bytes, count: int) -> list[tuple[bytes, LogRecord]]:
        self._require_open()
        return await self._sieve.read(after, count, self._rows)

    async def forget(self, keep: Container[bytes], until: float) -> int:
        """As ``ports.QuestionLog``. What the file's free pages hold is overwritten when they are used again."""
        self._require_open()
        rows = await self._lanes.read(_questions, keep, until)
        gone = {record.question.digest: removal(record.question) for _, _, record in rows}
        await self.append([*gone.values()])
        await self._lanes.write(_blank, rows)
        return len(gone)

    async def wait(self, after: bytes, seconds: float) -> None:
        self._require_open()
        seen = self._counter.read()  # before the look, so that nothing comes unnoticed in between
        if await self.read(after, 1):
            return
        end = asyncio.get_running_loop().time() + seconds
        while (left := end - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(min(_WATCH_SECONDS, left))
            self._require_open()
            if self._counter.read() != seen:
                return

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._appends.settled()
        self._counter.close()

    async def _rows(self, after: bytes, count: int) -> list[Row]:
        return await self._lanes.read(_following, after, count)

    async def _write(self, group: Sequence[_Append]) -> list[Exception | None]:
        records = [record for append in group for record in append]
        if records:
            await self._lanes.write(_append, records, self._most, self._clock.now(), self._counter)
        return [None] * len(group)

    def _require_open(self) -> None:
        if self._closed:
            raise StoreError("the question log is closed")


def _size(append: _Append) -> int:
    return sum(len(record) for _, record in append)


def _append(
    connection: sqlite3.Connection, records: _Append, most: tuple[int, int], now: float, counter: Counter
) -> None:
    with transaction(connection):
        latest = connection.execute("SELECT number, upto FROM asked ORDER BY number DESC LIMIT 1").fetchone()
        number, upto = latest or (0, 0)
        for expires, record in records:
            number, upto = number + 1, upto + len(record)
            connection.execute("INSERT INTO asked VALUES (?, ?, ?, ?)", (number, expires, upto, record))
        _trim(connection, number - most[0], upto - most[1], now, _TRIM + len(records))
        counter.advance()  # before the commit: who sees the file changed sees the counter changed
    shrink(connection)


def _trim(connection: sqlite3.Connection, number: int, upto: int, now: float, limit: int) -> None:
    """Drop the oldest records, up to ``number`` and to ``upto`` bytes, and those that expired; never the latest."""
    oldest = connection.execute(
        "SELECT number, upto, expires FROM asked WHERE number < (SELECT max(number) FROM asked)"
        " ORDER BY number LIMIT ?",
        (limit,),
    )
    last = 0
    for one, its_upto, expires in oldest.fetchall():
        if one > number and its_upto > upto and expires > now:
            break
        last = one
    connection.execute("DELETE FROM asked WHERE number <= ?", (last,))


def _questions(
    connection: sqlite3.Connection, keep: Container[bytes], until: float
) -> list[tuple[int, bytes, LogRecord]]:
    """Number, content and record of the questions that go."""
    found = []
    for number, value in connection.execute("SELECT number, CAST(record AS BLOB) FROM asked"):
        record = decode(value)
        if record is None or not record.vector or record.question.created_at > until:
            continue
        if record.question.digest not in keep:
            found.append((number, value, record))
    return found


def _blank(connection: sqlite3.Connection, rows: Sequence[tuple[int, bytes, LogRecord]]) -> None:
    """Leave a removal in the place of each, where it still is."""
    with transaction(connection):
        connection.executemany(
            "UPDATE asked SET record = ? WHERE number = ? AND record = ?",
            [(encode(removal(record.question)), number, value) for number, value, record in rows],
        )


def _following(connection: sqlite3.Connection, after: bytes, count: int) -> list[Row]:
    """Rows after a position, as of one moment.

    Raises:
        LogGap: some of them are not there any more, or the position is of another file.
    """
    connection.execute("BEGIN")
    try:
        born = connection.execute("SELECT born FROM totals").fetchone()[0]
        oldest, latest = connection.execute(
            "SELECT coalesce(min(number), 1), coalesce(max(number), 0) FROM asked"
        ).fetchone()
        number = _number(after, born, oldest, latest) if after else 0
        rows = connection.execute(
            "SELECT number, CAST(record AS BLOB) FROM asked WHERE number > ? ORDER BY number LIMIT ?",
            (number, count),
        ).fetchall()
    finally:
        connection.execute("ROLLBACK")
    return [(_POSITION.pack(born, number), record) for number, record in rows]


def _number(position: bytes, born: int, oldest: int, latest: int) -> int:
    try:
        its_file, number = _POSITION.unpack(position)
    except struct.error:
        its_file, number = None, 0
    if its_file != born or not oldest - 1 <= number <= latest:
        raise LogGap("the question log was begun anew, or has dropped records since that position")
    return int(number)
