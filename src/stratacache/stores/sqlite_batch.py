"""One transaction on the SQLite file: entries written and removed, and the count of entries per version kept right."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from stratacache.stores import envelope
from stratacache.stores import sqlite_versions as versions
from stratacache.stores.sqlite_file import transaction
from stratacache.stores.sqlite_rows import cost_of, head_of, whole_seconds
from stratacache.types import Entry, PutResult, Version

RowRef = tuple[int, bytes]
"""(id, head of the value): names a row *and* its content, so that a late removal cannot hit what replaced it."""

_ADD = "INSERT INTO entries (expires, used, size, value, digest) VALUES (?, ?, ?, ?, ?)"
_REPLACE = "UPDATE entries SET expires = ?, used = ?, size = ?, value = ? WHERE id = ?"
_EXPIRED = "SELECT id, digest, CAST(value AS BLOB) FROM entries WHERE expires <= ? ORDER BY expires LIMIT ?"
_OLDEST = "SELECT id, size, digest, CAST(value AS BLOB) FROM entries ORDER BY used, id"


class Put(NamedTuple):
    """An entry to be written and its encoded form, which is None when the entry is declined."""

    digest: bytes
    entry: Entry
    value: bytes | None


class Batch:
    """What one transaction does; ``batch`` makes it, and commits."""

    def __init__(self, connection: sqlite3.Connection, now: float) -> None:
        self._connection = connection
        self._now = now
        self._versions: dict[str, int | None] = {}
        self._change: Counter[Version] = Counter()
        self._gone_at: dict[Version, float] = {}
        self.evicted = 0

    def put(self, put: Put, max_bytes: int) -> PutResult:
        """Store or replace, making room first; a declined entry only makes what is there go."""
        if not self._are_current(put.entry):
            return "outdated"
        if put.value is None:
            self.remove(put.digest)
            return "declined"
        query = "SELECT id, size, CAST(value AS BLOB) FROM entries WHERE digest = ?"
        old = self._connection.execute(query, (put.digest,)).fetchone()
        growth = cost_of(put.entry) - (old[1] if old else 0)
        self._make_room(put.digest, totals(self._connection)[1] + growth - max_bytes)
        row = (whole_seconds(put.entry.gone_at), int(self._now), cost_of(put.entry), put.value)
        if old:
            self._uncount(put.digest, old[2])
            self._connection.execute(_REPLACE, (*row, old[0]))
        else:
            # At the end of the table. Taking a victim's id, to fill the page that it leaves, was measured: rows
            # differ in size and split pages, and the file of a store at its bound is 10 % larger, not smaller.
            self._connection.execute(_ADD, (*row, put.digest))
        for pair in put.entry.versions:
            self._change[pair] += 1
            self._gone_at[pair] = max(self._gone_at.get(pair, 0.0), put.entry.gone_at)
        return "stored"

    def remove(self, digest: bytes) -> bool:
        """Whether there was a row to remove."""
        query = "SELECT id, digest, CAST(value AS BLOB) FROM entries WHERE digest = ?"
        return self._remove(self._connection.execute(query, (digest,)).fetchall()) > 0

    def discard(self, ref: RowRef) -> None:
        """Remove the row if it still has the content that ``ref`` names."""
        query = "SELECT id, digest, CAST(value AS BLOB) FROM entries WHERE id = ?"
        rows = self._connection.execute(query, ref[:1]).fetchall()
        self._remove([row for row in rows if head_of(row[2]) == ref[1]])

    def sweep(self, limit: int) -> None:
        """Remove up to ``limit`` expired rows."""
        self._remove(self._connection.execute(_EXPIRED, (self._now, limit)).fetchall())

    def settle(self) -> None:
        """Write the counts; the last step of the transaction."""
        versions.carry(self._connection, self._change, self._gone_at, self._now)

    def _are_current(self, entry: Entry) -> bool:
        unknown = [tag for tag in entry.tags if tag not in self._versions]
        if unknown:
            self._versions |= dict.fromkeys(unknown)
            self._versions |= versions.read(self._connection, unknown)
        return all(self._versions[tag] == version for tag, version in entry.versions)

    def _make_room(self, keep: bytes, excess: int) -> None:
        """Remove the least recently used rows, never ``keep``, until ``excess`` bytes are gone."""
        if excess <= 0:
            return
        victims: list[tuple[int, bytes, bytes]] = []
        oldest = self._connection.execute(_OLDEST)
        for number, size, digest, value in oldest:
            if excess <= 0:
                break
            if digest != keep:
                victims.append((number, digest, value))
                excess -= size
        oldest.close()  # an open cursor would hold the rows that are deleted next
        self.evicted += self._remove(victims)

    def _remove(self, rows: Sequence[tuple[int, bytes, bytes]]) -> int:
        for _, digest, value in rows:
            self._uncount(digest, value)
        self._connection.executemany("DELETE FROM entries WHERE id = ?", [row[:1] for row in rows])
        return len(rows)

    def _uncount(self, digest: bytes, value: bytes) -> None:
        """A row that is not whole cannot be uncounted: its tags say one too many until their next version."""
        entry = envelope.decode(digest, value)
        if entry is not None:
            self._change.subtract(entry.versions)


@contextlib.contextmanager
def batch(connection: sqlite3.Connection, now: float) -> Iterator[Batch]:
    """A transaction that writes entries. ``now``: seconds since the epoch."""
    with transaction(connection):
        made = Batch(connection, now)
        yield made
        made.settle()


def totals(connection: sqlite3.Connection) -> tuple[int, int]:
    """Entries and their cost in bytes, as the triggers keep them: O(1), right across processes."""
    entries, size = connection.execute("SELECT entries, bytes FROM totals").fetchone()
    return entries, size
