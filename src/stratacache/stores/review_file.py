"""The review queue in a SQLite file that the processes of a machine share, or in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import msgspec

from stratacache.policy.review import STRATA, Item, Verdict
from stratacache.ports import Clock
from stratacache.stores.shared_file import SharedFile
from stratacache.stores.sqlite_file import Layout, transaction

MAX_SETTLED = 10_000  # verdicts that are kept, so that nobody is asked twice

_LAYOUT = Layout(
    application=0x53545256,  # "STRV"
    version=1,
    emptied=(),
    page_bytes=4096,
    synchronous="NORMAL",
    script="""
CREATE TABLE waiting (
    id TEXT PRIMARY KEY, stratum TEXT NOT NULL, rank REAL NOT NULL, expires REAL NOT NULL, item BLOB NOT NULL);
CREATE INDEX by_rank ON waiting (stratum, rank);
CREATE TABLE settled (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, verdict TEXT NOT NULL, item BLOB NOT NULL);
""",
    most_bytes=64 << 20,
)


class ReviewFile:
    """What waits for people and what they said. Every method may raise StoreError.

    Args:
        path: shared with other processes and kept; None for the memory of this one.
    """

    def __init__(self, path: Path | None, clock: Clock) -> None:
        self.kept = path is not None
        self._clock = clock
        self._file = SharedFile("review queue", path, _LAYOUT, clock.now())

    async def add(self, item: Item) -> float | None:
        """Keep ``item`` unless a verdict on it is known; then the rank from which on its full stratum takes no more."""
        return await self._file.run(_add, item, self._clock.now())

    async def waiting(self) -> list[Item]:
        """All that waits, by stratum and rank."""
        return await self._file.run(_waiting, self._clock.now())

    async def find(self, identity: str) -> Item | None:
        return await self._file.run(_find, identity)

    async def settle(self, item: Item, verdict: Verdict) -> bool:
        """``item`` waits no more; False when somebody else was faster."""
        return await self._file.run(_settle, item, verdict)

    async def drop(self, identities: Sequence[str]) -> None:
        """Forget items whose answers are gone."""
        await self._file.run(_drop, identities)

    async def verdicts(self) -> list[tuple[Item, Verdict]]:
        """What people said, oldest first."""
        return await self._file.run(_verdicts)

    async def erase(self, tenant: str) -> int:
        """Forget what waits of ``tenant`` and what was said of it; returns how many pairs."""
        return await self._file.run(_erase, tenant)

    async def close(self) -> None:
        """Idempotent."""
        await self._file.close()


def _decode(value: bytes) -> Item:
    return msgspec.msgpack.decode(value, type=Item)


def _add(connection: sqlite3.Connection, item: Item, now: float) -> float | None:
    with transaction(connection):
        if not connection.execute("SELECT 1 FROM settled WHERE id = ?", (item.id,)).fetchone():
            connection.execute(
                "INSERT OR REPLACE INTO waiting VALUES (?, ?, ?, ?, ?)",
                (item.id, item.stratum, item.rank, item.expires_at, msgspec.msgpack.encode(item)),
            )
        connection.execute("DELETE FROM waiting WHERE expires <= ?", (now,))
        most = STRATA[item.stratum]
        connection.execute(
            "DELETE FROM waiting WHERE id IN"
            " (SELECT id FROM waiting WHERE stratum = ? ORDER BY rank LIMIT -1 OFFSET ?)",
            (item.stratum, most),
        )
        row = connection.execute(
            "SELECT rank FROM waiting WHERE stratum = ? ORDER BY rank LIMIT 1 OFFSET ?",
            (item.stratum, most - 1),
        ).fetchone()
    return None if row is None else float(row[0])


def _waiting(connection: sqlite3.Connection, now: float) -> list[Item]:
    rows = connection.execute("SELECT item FROM waiting WHERE expires > ? ORDER BY stratum, rank", (now,))
    return [_decode(value) for (value,) in rows]


def _find(connection: sqlite3.Connection, identity: str) -> Item | None:
    row = connection.execute("SELECT item FROM waiting WHERE id = ?", (identity,)).fetchone()
    return None if row is None else _decode(row[0])


def _settle(connection: sqlite3.Connection, item: Item, verdict: Verdict) -> bool:
    with transaction(connection):
        if not connection.execute("DELETE FROM waiting WHERE id = ?", (item.id,)).rowcount:
            return False
        connection.execute(
            "INSERT OR REPLACE INTO settled (id, verdict, item) VALUES (?, ?, ?)",
            (item.id, verdict, msgspec.msgpack.encode(item)),
        )
        connection.execute(
            "DELETE FROM settled WHERE number <= (SELECT max(number) FROM settled) - ?", (MAX_SETTLED,)
        )
    return True


def _drop(connection: sqlite3.Connection, identities: Sequence[str]) -> None:
    with transaction(connection):
        connection.executemany("DELETE FROM waiting WHERE id = ?", [(one,) for one in identities])


def _verdicts(connection: sqlite3.Connection) -> list[tuple[Item, Verdict]]:
    rows = connection.execute("SELECT item, verdict FROM settled ORDER BY number")
    return [(_decode(value), verdict) for value, verdict in rows]


def _erase(connection: sqlite3.Connection, tenant: str) -> int:
    erased = 0
    with transaction(connection):
        for table in ("waiting", "settled"):
            rows = connection.execute(f"SELECT id, item FROM {table}").fetchall()  # noqa: S608 - one of the two
            gone = [(identity,) for identity, value in rows if _decode(value).tenant == tenant]
            connection.executemany(f"DELETE FROM {table} WHERE id = ?", gone)  # noqa: S608
            erased += len(gone)
    return erased
