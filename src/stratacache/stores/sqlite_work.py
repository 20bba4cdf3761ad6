"""What the SQLite store's threads do with their connection: one function per operation, no state of its own."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from stratacache.stores.sqlite_rows import COLUMNS, cost_of, decode, encode
from stratacache.types import Entry

_SWEEP = 32  # expired rows removed per put: more than a put adds, so the backlog shrinks
_SPARE_PAGES = 64  # free pages kept for the next puts; the file gives back the others ...
_VACUUM_PAGES = 256  # ... at most so many per write, to bound the write's time

RowRef = tuple[int, Any]
"""(id, crc): names a row *and* its content, so that a late removal cannot hit what replaced it."""

_ADD = f"INSERT INTO entries ({COLUMNS}, digest) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
_REPLACE = f"UPDATE entries SET ({COLUMNS}) = (?, ?, ?, ?, ?, ?, ?) WHERE id = ?"  # noqa: S608
_FIND = f"SELECT id, {COLUMNS} FROM entries WHERE digest = ?"  # noqa: S608
_ALL = f"SELECT digest, {COLUMNS} FROM entries"  # noqa: S608


class Found(NamedTuple):
    """A row that a read met; ``entry`` is None when the row is not whole. ``used``: seconds since the epoch."""

    entry: Entry | None
    used: int
    ref: RowRef


def read(connection: sqlite3.Connection, digest: bytes) -> Found | None:
    """The row under ``digest``, expired or not."""
    row = connection.execute(_FIND, (digest,)).fetchone()
    if row is None:
        return None
    number, *values = row
    return Found(decode(digest, values), values[1], (number, values[3]))


def write(
    connection: sqlite3.Connection,
    digest: bytes,
    entry: Entry,
    now: float,
    max_bytes: int,
    uses: Mapping[bytes, int],
) -> int:
    """Store or replace in one transaction, making room first; returns how many unexpired entries made way."""
    values = encode(digest, entry, int(now))
    with _transaction(connection):
        _note_uses(connection, uses)
        _remove_expired(connection, now)
        old = connection.execute("SELECT id, size FROM entries WHERE digest = ?", (digest,)).fetchone()
        growth = cost_of(entry) - (old[1] if old else 0)
        evicted = _make_room(connection, digest, totals(connection)[1] + growth - max_bytes)
        if old:
            connection.execute(_REPLACE, (*values, old[0]))
        else:
            # At the end of the table. Taking a victim's id, to fill the page that it leaves, was measured: rows
            # differ in size and split pages, and the file of a store at its bound is 10 % larger, not smaller.
            connection.execute(_ADD, (*values, digest))
    _shrink(connection)
    return evicted


def delete(connection: sqlite3.Connection, digests: Sequence[bytes]) -> int:
    """Remove in one transaction; returns how many were there."""
    with _transaction(connection):
        count = sum(
            connection.execute("DELETE FROM entries WHERE digest = ?", (digest,)).rowcount
            for digest in digests
        )
    _shrink(connection)
    return count


def discard(connection: sqlite3.Connection, ref: RowRef) -> None:
    """Remove the row if it still has the content that ``ref`` names."""
    connection.execute("DELETE FROM entries WHERE id = ? AND crc IS ?", ref)


def note_uses(connection: sqlite3.Connection, uses: Mapping[bytes, int]) -> None:
    """Write when entries were last used (seconds since the epoch)."""
    with _transaction(connection):
        _note_uses(connection, uses)


def totals(connection: sqlite3.Connection) -> tuple[int, int]:
    """Entries and their cost in bytes, as the triggers keep them: O(1), right across processes."""
    entries, size = connection.execute("SELECT entries, bytes FROM totals").fetchone()
    return entries, size


def fault(connection: sqlite3.Connection, max_bytes: int) -> str:
    """The first broken invariant of the whole file, or "". Reads everything, as of one moment."""
    connection.execute("BEGIN")
    try:
        verdict: str = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if verdict != "ok":
            return f"the file is damaged: {verdict}"
        entries, size = 0, 0
        for digest, *values in connection.execute(_ALL):
            entry = decode(digest, values)
            if entry is None:
                return f"the row of {digest!r} is torn or foreign"
            if values[2] != cost_of(entry):
                return f"the row of {digest.hex()} is charged {values[2]} bytes instead of {cost_of(entry)}"
            entries, size = entries + 1, size + values[2]
        if (entries, size) != totals(connection):
            return f"the totals say {totals(connection)} where {(entries, size)} entries and bytes are kept"
        return f"{size} bytes are kept where {max_bytes} are allowed" if size > max_bytes else ""
    finally:
        connection.execute("ROLLBACK")


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing. IMMEDIATE: waiting for another process's write happens here, not halfway."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite has rolled back by itself after a full disk
            connection.execute("ROLLBACK")
        raise


def _note_uses(connection: sqlite3.Connection, uses: Mapping[bytes, int]) -> None:
    connection.executemany(
        "UPDATE entries SET used = ? WHERE digest = ?", [(used, digest) for digest, used in uses.items()]
    )


def _remove_expired(connection: sqlite3.Connection, now: float) -> None:
    connection.execute(
        "DELETE FROM entries WHERE id IN (SELECT id FROM entries WHERE expires <= ? ORDER BY expires LIMIT ?)",
        (now, _SWEEP),
    )


def _make_room(connection: sqlite3.Connection, keep: bytes, excess: int) -> int:
    """Remove the least recently used rows, never ``keep``, until ``excess`` bytes are gone; returns how many."""
    if excess <= 0:
        return 0
    victims: list[tuple[int]] = []
    oldest = connection.execute("SELECT id, size, digest FROM entries ORDER BY used, id")
    for number, size, digest in oldest:
        if excess <= 0:
            break
        if digest != keep:
            victims.append((number,))
            excess -= size
    oldest.close()  # an open cursor would hold the rows that are deleted next
    connection.executemany("DELETE FROM entries WHERE id = ?", victims)
    return len(victims)


def _shrink(connection: sqlite3.Connection) -> None:
    """Give free pages at the file's end back to the disk."""
    free: int = connection.execute("PRAGMA freelist_count").fetchone()[0]
    if free > _SPARE_PAGES:
        # A script, because execute() steps this pragma once and so frees a single page.
        connection.executescript(f"PRAGMA incremental_vacuum({min(free - _SPARE_PAGES, _VACUUM_PAGES)})")
