"""The usage ledger in a SQLite file that the processes of a machine share, or in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from stratacache.stores.shared_file import SharedFile
from stratacache.stores.sqlite_file import Layout, transaction

KEPT_DAYS = 400
MAX_ACCOUNTS = 1000
"""Of one day. What comes beyond is kept under :data:`REST`."""
REST = "other"

Account = tuple[int, str, str]
"""Day (since 1970-01-01, UTC), tenant, model."""

Sheet = Mapping[str, float]
"""Figures by name. What several processes write of one account is added up."""

_LAYOUT = Layout(
    application=0x5354524C,  # "STRL"
    version=1,
    emptied=(),
    page_bytes=4096,
    synchronous="NORMAL",
    script="""
CREATE TABLE account (
    day INTEGER NOT NULL, tenant TEXT NOT NULL, model TEXT NOT NULL, sheet BLOB NOT NULL,
    PRIMARY KEY (day, tenant, model)) WITHOUT ROWID;
""",
    most_bytes=512 << 20,
)
_decoder: msgspec.msgpack.Decoder[dict[str, float]] = msgspec.msgpack.Decoder(dict[str, float])


class LedgerFile:
    """Sheets by account. Every method may raise StoreError.

    Args:
        path: shared with other processes and kept; None for the memory of this one.
        now: seconds since the epoch, of the opening.
    """

    def __init__(self, path: Path | None, now: float) -> None:
        self.kept = path is not None
        self._file = SharedFile("ledger", path, _LAYOUT, now)

    async def add(self, sheets: Sequence[tuple[Account, Sheet]]) -> None:
        """Add figures to what the accounts hold, all or nothing; forgets days that are older than is kept."""
        await self._file.run(_add, sheets)

    async def read(self, first: int, last: int) -> list[tuple[Account, Sheet]]:
        """The accounts of the days from ``first`` to ``last``."""
        return await self._file.run(_read, first, last)

    async def erase(self, tenant: str) -> int:
        """Forget all accounts of ``tenant``; returns how many there were."""
        return await self._file.run(_erase, tenant)

    async def close(self) -> None:
        """Idempotent."""
        await self._file.close()


def _erase(connection: sqlite3.Connection, tenant: str) -> int:
    with transaction(connection):
        return connection.execute("DELETE FROM account WHERE tenant = ?", (tenant,)).rowcount


def _add(connection: sqlite3.Connection, sheets: Iterable[tuple[Account, Sheet]]) -> None:
    with transaction(connection):
        for account, sheet in sheets:
            _add_one(connection, account, sheet)
        newest = max((account[0] for account, _ in sheets), default=0)
        connection.execute("DELETE FROM account WHERE day <= ?", (newest - KEPT_DAYS,))


def _add_one(connection: sqlite3.Connection, account: Account, sheet: Sheet) -> None:
    held = _sheet(connection, account)
    if held is None:
        (count,) = connection.execute("SELECT count(*) FROM account WHERE day = ?", account[:1]).fetchone()
        if count >= MAX_ACCOUNTS:
            account = (account[0], REST, REST)
            held = _sheet(connection, account)
    made = dict(held or {})
    for name, number in sheet.items():
        made[name] = made.get(name, 0.0) + number
    row = (*account, msgspec.msgpack.encode(made))
    connection.execute("INSERT OR REPLACE INTO account VALUES (?, ?, ?, ?)", row)


def _sheet(connection: sqlite3.Connection, account: Account) -> dict[str, float] | None:
    found = connection.execute(
        "SELECT sheet FROM account WHERE day = ? AND tenant = ? AND model = ?", account
    ).fetchone()
    return None if found is None else _decoder.decode(found[0])


def _read(connection: sqlite3.Connection, first: int, last: int) -> list[tuple[Account, Sheet]]:
    rows = connection.execute(
        "SELECT day, tenant, model, sheet FROM account WHERE day BETWEEN ? AND ? ORDER BY day, tenant, model",
        (first, last),
    )
    return [((day, tenant, model), _decoder.decode(sheet)) for day, tenant, model, sheet in rows]
