"""What the SQLite store's threads do with their connection: one function per operation, no state of its own."""

from __future__ import annotations

import collections
import sqlite3
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stratacache.ports import Page
from stratacache.stores import envelope
from stratacache.stores import sqlite_versions as versions
from stratacache.stores.sqlite_batch import Put, RowRef, batch, totals
from stratacache.stores.sqlite_bulletin import Counter, note
from stratacache.stores.sqlite_file import is_too_much, shrink, transaction
from stratacache.stores.sqlite_rows import cost_of, head_of, whole_seconds
from stratacache.types import Entry, Invalidated, PutResult, Version, Versions

_SWEEP = 32  # expired rows removed per put: more than a put adds, so the backlog shrinks
_MOST_SWEPT = 256  # per transaction, to bound its time

_FIND = "SELECT id, used, CAST(value AS BLOB) FROM entries WHERE digest = ?"
_SCAN = "SELECT digest, CAST(value AS BLOB) FROM entries WHERE digest > ? ORDER BY digest LIMIT ?"


class Look(NamedTuple):
    """What a read met. ``entry``: None when there is no row, or (then with ``ref``) one that is not whole.

    ``used``: seconds since the epoch. ``versions``: of the entry's tags and the asked ones, as far as they have any.
    """

    entry: Entry | None
    used: int
    ref: RowRef | None
    versions: dict[str, int]


class Written(NamedTuple):
    """What became of each put, in order, how many entries made way for them, and the bytes that are now kept."""

    results: list[PutResult | Exception]
    evicted: int
    kept: int


def read(connection: sqlite3.Connection, digest: bytes, tags: Sequence[str]) -> Look:
    """The row under ``digest``, expired or not, and then the versions: never older ones than the row."""
    row = connection.execute(_FIND, (digest,)).fetchone()
    if row is None:
        return Look(None, 0, None, versions.read(connection, tags))
    number, used, value = row
    entry = envelope.decode(digest, value)
    wanted = tags if entry is None else {*entry.tags, *tags}
    return Look(entry, used, (number, head_of(value)), versions.read(connection, wanted))


def scan(connection: sqlite3.Connection, after: bytes, count: int, now: float | None) -> Page:
    """About ``count`` whole entries whose digests follow ``after``: those current at ``now``, or all of them."""
    rows = connection.execute(_SCAN, (after, count)).fetchall()
    found = [(digest, envelope.decode(digest, value)) for digest, value in rows]
    tags = {tag for _, entry in found if entry is not None for tag in entry.tags}
    known = versions.read(connection, tags)
    entries = [
        (digest, entry)
        for digest, entry in found
        if entry is not None
        and (now is None or entry.gone_at > now)
        and (now is None or all(known.get(tag) == version for tag, version in entry.versions))
    ]
    return Page(entries, rows[-1][0] if len(rows) == count else None)


def snapshot(connection: sqlite3.Connection, tags: Sequence[str], now: float) -> Versions:
    """The versions of ``tags``; one that has none is given one."""
    with transaction(connection):
        return versions.ensure(connection, tags, now)


def write(
    connection: sqlite3.Connection,
    asked: Sequence[tuple[bytes, Entry, bool]],
    now: float,
    max_bytes: int,
    uses: Mapping[bytes, int],
) -> Written:
    """Store what was ``asked`` (digest, entry, whether it is declined) in one transaction.

    When they do not fit together, each is tried in a transaction of its own, so that none fails for another's sake.
    """
    encoded = [_encode(*one) for one in asked]
    puts = [put for put in encoded if isinstance(put, Put)]
    written = _write(connection, puts, now, max_bytes, uses)
    results = iter(written.results)
    merged = [next(results) if isinstance(put, Put) else put for put in encoded]
    return written._replace(results=merged)


def invalidate(
    connection: sqlite3.Connection,
    tags: Sequence[str],
    digests: Sequence[bytes],
    now: float,
    counter: Counter,
) -> Invalidated:
    """Give ``tags`` new versions and remove ``digests``, in one transaction."""
    with batch(connection, now) as writing:
        most, _ = totals(connection)
        carried = versions.count(connection, tags)
        removed = sum([writing.remove(digest) for digest in digests])
        told = Invalidated(min(most, carried + removed), versions.bump(connection, tags, now))
        note(connection, told, digests)
        counter.advance()  # before the commit: who sees the file changed sees the counter changed
    shrink(connection)
    return told


def foresee(
    connection: sqlite3.Connection, tags: Sequence[str], digests: Sequence[bytes]
) -> tuple[int, dict[str, int]]:
    """How many entries an invalidation would affect at most, and the versions of those tags that have one."""
    most, _ = totals(connection)
    there = sum(connection.execute(_FIND, (digest,)).fetchone() is not None for digest in set(digests))
    return min(most, versions.count(connection, tags) + there), versions.read(connection, tags)


def discard(connection: sqlite3.Connection, ref: RowRef, now: float) -> None:
    """Remove the row if it still has the content that ``ref`` names."""
    with batch(connection, now) as writing:
        writing.discard(ref)


def note_uses(connection: sqlite3.Connection, uses: Mapping[bytes, int]) -> None:
    """Write when entries were last used (seconds since the epoch)."""
    with transaction(connection):
        _note_uses(connection, uses)


def fault(connection: sqlite3.Connection, max_bytes: int) -> str:
    """The first broken invariant of the whole file, or "". Reads everything, as of one moment."""
    connection.execute("BEGIN")
    try:
        verdict: str = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if verdict != "ok":
            return f"the file is damaged: {verdict}"
        carried: collections.Counter[Version] = collections.Counter()
        return _entries_fault(connection, max_bytes, carried) or _versions_fault(connection, carried)
    finally:
        connection.execute("ROLLBACK")


def _encode(digest: bytes, entry: Entry, declined: bool) -> Put | UnicodeEncodeError:
    try:
        return Put(digest, entry, None if declined else envelope.encode(digest, entry))
    except UnicodeEncodeError as error:
        return error


def _write(
    connection: sqlite3.Connection,
    puts: Sequence[Put],
    now: float,
    max_bytes: int,
    uses: Mapping[bytes, int],
) -> Written:
    try:
        with batch(connection, now) as writing:
            _note_uses(connection, uses)
            writing.sweep(min(_SWEEP * len(puts), _MOST_SWEPT))
            results: list[PutResult | Exception] = [writing.put(put, max_bytes) for put in puts]
            kept = totals(connection)[1]
    except sqlite3.Error as error:
        if not is_too_much(error):
            raise
        if len(puts) == 1:
            return Written([error], 0, totals(connection)[1])
        alone = [_write(connection, [put], now, max_bytes, {}) for put in puts]
        evicted = sum(one.evicted for one in alone)
        return Written([one.results[0] for one in alone], evicted, totals(connection)[1])
    shrink(connection)
    return Written(results, writing.evicted, kept)


def _entries_fault(
    connection: sqlite3.Connection, max_bytes: int, carried: collections.Counter[Version]
) -> str:
    """Counts in ``carried`` the entries per version."""
    entries, size = 0, 0
    for digest, expires, charged, value in connection.execute(
        "SELECT digest, expires, size, CAST(value AS BLOB) FROM entries"
    ):
        entry = envelope.decode(digest, value)
        if entry is None:
            return f"the row of {digest!r} is torn or foreign"
        if charged != cost_of(entry):
            return f"the row of {digest.hex()} is charged {charged} bytes instead of {cost_of(entry)}"
        if expires != whole_seconds(entry.gone_at):
            return f"the row of {digest.hex()} is swept at {expires} where it is gone at {entry.gone_at}"
        carried.update(entry.versions)
        entries, size = entries + 1, size + charged
    if (entries, size) != totals(connection):
        return f"the totals say {totals(connection)} where {(entries, size)} entries and bytes are kept"
    return f"{size} bytes are kept where {max_bytes} are allowed" if size > max_bytes else ""


def _versions_fault(connection: sqlite3.Connection, carried: collections.Counter[Version]) -> str:
    rows = connection.execute("SELECT tag, version, carried FROM versions").fetchall()
    for tag, version, told in rows:
        if told < carried[tag, version]:
            return f"{carried[tag, version]} entries carry {tag!r} where {told} are counted"
    tags, latest = connection.execute("SELECT tags, latest FROM totals").fetchone()
    if tags != len(rows):
        return f"the totals say {tags} tags where {len(rows)} are kept"
    return "a version is higher than the latest" if any(row[1] > latest for row in rows) else ""


def _note_uses(connection: sqlite3.Connection, uses: Mapping[bytes, int]) -> None:
    connection.executemany(
        "UPDATE entries SET used = ? WHERE digest = ?", [(used, digest) for digest, used in uses.items()]
    )
