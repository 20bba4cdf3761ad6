"""A small SQLite file that the processes of a machine share, or one in memory, used in a thread of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from stratacache.errors import StoreError
from stratacache.stores.lane import Lane
from stratacache.stores.sqlite_file import Layout, open_writer

_BUSY_SECONDS = 2.0

T = TypeVar("T")


class SharedFile:
    """Runs work on the file, one piece at a time.

    Args:
        name: of what it holds, for messages.
        path: shared with other processes and kept; None for the memory of this one.
        now: seconds since the epoch, of the opening.
    """

    def __init__(self, name: str, path: Path | None, layout: Layout, now: float) -> None:
        self._name = name
        self._lane: Lane[sqlite3.Connection] = Lane(name, lambda: _open(path, layout, now))
        self._closed = False

    async def run(self, work: Callable[..., T], *args: object) -> T:
        """The result of ``work(connection, ...)``. Raises StoreError."""
        if self._closed:
            raise StoreError(f"the {self._name} is closed")
        try:
            return await self._lane.run(work, *args)
        except (sqlite3.Error, msgspec.MsgspecError) as error:
            raise StoreError(f"the {self._name} failed: {error}") from error

    async def close(self) -> None:
        """Idempotent."""
        if not self._closed:
            self._closed = True
            await self._lane.close()


def _open(path: Path | None, layout: Layout, now: float) -> sqlite3.Connection:
    if path is not None:
        return open_writer(path, layout, _BUSY_SECONDS, now)
    # As open_writer's: used by the lane's thread alone, closed by it.
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(layout.script)
    return connection
