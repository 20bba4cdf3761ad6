"""The relay's tables and what its threads do with them: one function per operation, no state of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from stratacache.ports import Standing
from stratacache.stores.sqlite_file import Layout, shrink, transaction

LONGEST = (
    3600.0  # no lease and no ending lasts longer, whatever is asked: bounds what a set clock leaves behind
)
# Steps take the time before they wait for their turn, so one may meet a flight that was granted later than its "now": a
# clock that was set back looks the same. Up to so many seconds it is taken for the former, which ends all doubt within
# the time that any step is waited for.
_WAITED = 1.0
_SWEEP = 32  # flights removed per claim: more than a claim adds, so the backlog shrinks
_MOST_FRAMES = 256  # per look

# But for _WAITED, a flight is led while granted <= now < expires, and can be read while granted <= now < kept.
# AUTOINCREMENT, so that an id is never that of another flight. A place may have several: the one with the highest id is
# the one that counts.
_SCRIPT = """
CREATE TABLE flights (
    id INTEGER PRIMARY KEY AUTOINCREMENT, place BLOB NOT NULL, granted REAL NOT NULL, expires REAL NOT NULL,
    kept REAL NOT NULL, wanted INTEGER NOT NULL, frames INTEGER NOT NULL);
CREATE INDEX by_place ON flights (place, id);
CREATE INDEX by_kept ON flights (kept);
CREATE TABLE frames (flight INTEGER NOT NULL, number INTEGER NOT NULL, data BLOB NOT NULL);
CREATE INDEX by_flight ON frames (flight, number);
CREATE TRIGGER landed AFTER DELETE ON flights BEGIN DELETE FROM frames WHERE flight = old.id; END;
"""

LAYOUT = Layout(
    application=0x53545246,  # "STRF"
    version=1,
    emptied=(),
    page_bytes=4096,
    synchronous="OFF",  # nothing in it outlives the processes
    script=_SCRIPT,
    most_bytes=256 << 20,
)


class Look(NamedTuple):
    """What a follower finds."""

    frames: list[bytes]
    led: bool
    wanted: bool


def claim(connection: sqlite3.Connection, place: bytes, seconds: float, now: float) -> int | None:
    """The new flight, or None when somebody leads. Removes what is over elsewhere."""
    with transaction(connection):
        led = "SELECT 1 FROM flights WHERE place = ? AND granted <= ? AND ? < expires"
        if connection.execute(led, (place, now + _WAITED, now)).fetchone():
            return None
        connection.execute(
            "DELETE FROM flights WHERE id IN (SELECT id FROM flights WHERE kept <= ? OR kept > ? LIMIT ?)",
            (now, now + LONGEST, _SWEEP),
        )
        until = _until(now, seconds)
        added = connection.execute(
            "INSERT INTO flights (place, granted, expires, kept, wanted, frames) VALUES (?, ?, ?, ?, 0, 0)",
            (place, now, until, until),
        )
        flight = added.lastrowid
    shrink(connection)
    return flight


def renew(connection: sqlite3.Connection, place: bytes, flight: int, seconds: float, now: float) -> Standing:
    """Extend the lease, also one that has run out, unless another flight has the place or this one is released."""
    until = _until(now, seconds)
    renewed = connection.execute(
        "UPDATE flights SET granted = ?, expires = ?, kept = ? WHERE id = ? AND expires > 0"
        " AND id = (SELECT max(id) FROM flights WHERE place = ?) RETURNING wanted",
        (now, until, until, flight, place),
    ).fetchone()
    return Standing(held=renewed is not None, wanted=renewed is not None and bool(renewed[0]))


def publish(
    connection: sqlite3.Connection, place: bytes, flight: int, frames: Sequence[bytes], now: float
) -> None:
    """Append ``frames`` while the flight leads."""
    with transaction(connection):
        leading = connection.execute(
            "UPDATE flights SET frames = frames + ? WHERE id = ? AND granted <= ? AND ? < expires"
            " AND id = (SELECT max(id) FROM flights WHERE place = ?) RETURNING frames",
            (len(frames), flight, now + _WAITED, now, place),
        ).fetchone()
        if leading is None:
            return
        first = leading[0] - len(frames)
        connection.executemany(
            "INSERT INTO frames (flight, number, data) VALUES (?, ?, ?)",
            [(flight, first + place, frame) for place, frame in enumerate(frames)],
        )


def latest(connection: sqlite3.Connection, place: bytes, now: float) -> int | None:
    """The flight of ``place`` that can be read."""
    row = connection.execute(
        "SELECT id FROM flights WHERE place = ? AND granted <= ? AND ? < kept ORDER BY id DESC LIMIT 1",
        (place, now + _WAITED, now),
    ).fetchone()
    return None if row is None else row[0]


def look(connection: sqlite3.Connection, flight: int, heard: int, now: float) -> Look:
    """How the flight stands, and then frames from number ``heard`` on: at least those that there were."""
    row = connection.execute(
        "SELECT granted <= ? AND ? < expires, wanted, frames FROM flights WHERE id = ? AND granted <= ? AND ? < kept",
        (now + _WAITED, now, flight, now + _WAITED, now),
    ).fetchone()
    if row is None:
        return Look([], led=False, wanted=False)
    led, wanted, count = row
    if count <= heard:
        return Look([], bool(led), bool(wanted))
    found = connection.execute(
        "SELECT data FROM frames WHERE flight = ? AND number >= ? AND number < ? ORDER BY number",
        (flight, heard, min(count, heard + _MOST_FRAMES)),
    ).fetchall()
    return Look([data for (data,) in found], bool(led), bool(wanted))


def want(connection: sqlite3.Connection, flight: int) -> None:
    """Tell the leader that somebody follows."""
    connection.execute("UPDATE flights SET wanted = 1 WHERE id = ?", (flight,))


def release(connection: sqlite3.Connection, flight: int, keep: float, now: float) -> None:
    """End the lease; the flight can be read ``keep`` seconds more."""
    with transaction(connection):
        if keep > 0:
            connection.execute(
                "UPDATE flights SET granted = ?, expires = 0, kept = ? WHERE id = ?",
                (now, _until(now, keep), flight),
            )
        else:
            connection.execute("DELETE FROM flights WHERE id = ?", (flight,))


def _until(now: float, seconds: float) -> float:
    return now + min(seconds, LONGEST)
