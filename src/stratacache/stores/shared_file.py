"""A small SQLite file that the processes of a machine share, used in a thread of its own; or one in memory."""

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
        self._closed = False
        self._lane: Lane[sqlite3.Connection] | None = None
        self._memory: sqlite3.Connection | None = None
        if path is None:  # work in memory is too short for a thread to be worth its while
            self._memory = _in_memory(layout)
        else:
            self._lane = Lane(name, lambda: open_writer(path, layout, _BUSY_SECONDS, now))

    async def run(self, work: Callable[..., T], *args: object) -> T:
        """The result of ``work(connection, ...)``. Raises StoreError."""
        if self._closed:
            raise StoreError(f"the {self._name} is closed")
        try:
            if self._lane is None:
                return work(self._memory, *args)
            return await self._lane.run(work, *args)
        except (sqlite3.Error, msgspec.MsgspecError) as error:
            raise StoreError(f"the {self._name} failed: {error}") from error

    async def close(self) -> None:
        """Idempotent."""
        if not self._closed:
            self._closed = True
            if self._lane is not None:
                await self._lane.close()
            if self._memory is not None:
                self._memory.close()


def _in_memory(layout: Layout) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(layout.script)
    return connection
