"""Tag versions in the SQLite file: made, compared, counted and forgotten. All but ``read`` belong in a transaction."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from stratacache.stores.sqlite_rows import whole_seconds
from stratacache.types import Version, Versions

MAX_TAGS = 262_144  # versions kept; callers name tags, so there may be any number of them
_KEEP_SECONDS = 3600  # after it was last written: an answer in flight must find its snapshot again
_SWEEP = 32  # forgotten per call: more than most calls add, so the backlog shrinks


_INSERT = "INSERT INTO versions (tag, version, carried, expires) VALUES (?, ?, 0, ?)"
_BUMP = f"{_INSERT} ON CONFLICT (tag) DO UPDATE SET version = excluded.version, carried = 0, expires = excluded.expires"
_CARRY = "UPDATE versions SET carried = carried + ?, expires = max(expires, ?) WHERE tag = ? AND version = ?"
_FORGET = "DELETE FROM versions WHERE tag IN (SELECT tag FROM versions WHERE {} ORDER BY expires LIMIT ?)"


def read(connection: sqlite3.Connection, tags: Iterable[str]) -> dict[str, int]:
    """The versions of those of ``tags`` that have one."""
    wanted = list(tags)
    marks = ",".join("?" * len(wanted))
    rows = connection.execute(f"SELECT tag, version FROM versions WHERE tag IN ({marks})", wanted)  # noqa: S608
    return dict(rows.fetchall())


def ensure(connection: sqlite3.Connection, tags: Sequence[str], now: float) -> Versions:
    """The versions of ``tags``; one that has none is given one."""
    known = read(connection, tags)
    missing = sorted({tag for tag in tags if tag not in known})
    if missing:
        _forget(connection, len(missing), now)
        fresh = _reserve(connection, missing, now)
        connection.executemany(_INSERT, [(*pair, _kept_until(now)) for pair in fresh.items()])
        known |= fresh
    return tuple(sorted(known.items()))


def bump(connection: sqlite3.Connection, tags: Iterable[str], now: float) -> Versions:
    """Give each tag a version that it never had."""
    named = sorted(set(tags))
    _forget(connection, len(named), now)
    fresh = _reserve(connection, named, now)
    connection.executemany(_BUMP, [(*pair, _kept_until(now)) for pair in fresh.items()])
    return tuple(fresh.items())


def count(connection: sqlite3.Connection, tags: Iterable[str]) -> int:
    """At most so many entries carry the present version of one of ``tags``."""
    wanted = list(set(tags))
    marks = ",".join("?" * len(wanted))
    query = f"SELECT coalesce(sum(carried), 0) FROM versions WHERE tag IN ({marks})"  # noqa: S608
    carried: int = connection.execute(query, wanted).fetchone()[0]
    return carried


def carry(
    connection: sqlite3.Connection, change: Counter[Version], gone_at: Mapping[Version, float], now: float
) -> None:
    """Note how many more entries carry each version; those that stay are gone at ``gone_at``."""
    least = _kept_until(now)
    connection.executemany(
        _CARRY,
        [(more, max(least, _hour(gone_at.get(pair, 0))), *pair) for pair, more in change.items() if more],
    )


def _reserve(connection: sqlite3.Connection, tags: Sequence[str], now: float) -> dict[str, int]:
    """A version for each tag, higher than any that was ever given out, so that a set clock repeats none."""
    latest: int = connection.execute("SELECT latest FROM totals").fetchone()[0]
    first = max(latest + 1, int(now * 1e6))
    connection.execute("UPDATE totals SET latest = ?", (first + len(tags) - 1,))
    return {tag: first + place for place, tag in enumerate(tags)}


def _forget(connection: sqlite3.Connection, coming: int, now: float) -> None:
    """Make room: tags whose entries are all gone, then those whose entries are gone first. They will miss."""
    connection.execute(_FORGET.format("expires <= ?"), (int(now), _SWEEP))
    kept: int = connection.execute("SELECT tags FROM totals").fetchone()[0]
    excess = kept + coming - MAX_TAGS
    if excess > 0:
        connection.execute(_FORGET.format("true"), (excess,))


def _kept_until(now: float) -> int:
    return _hour(now + _KEEP_SECONDS)


def _hour(moment: float) -> int:
    """Rounded up to whole hours, so that the index by expiry seldom moves."""
    return -(-whole_seconds(moment) // 3600) * 3600
