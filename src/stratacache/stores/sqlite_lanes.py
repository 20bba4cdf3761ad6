"""One SQLite file and the two threads that work on it: one writes, one reads."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from stratacache.errors import StoreError
from stratacache.stores.lane import Lane
from stratacache.stores.sqlite_file import is_damage, mark_damaged, open_reader, open_writer

T = TypeVar("T")
P = ParamSpec("P")


class Lanes:
    """The event loop touches neither connection. In WAL mode a read never waits for a write.

    Opened at once: the constructor blocks, and raises StoreError when the file is not ours.

    Args:
        busy_seconds: how long a write waits for another process before StoreError.
        now: seconds since the epoch.
    """

    def __init__(self, path: Path, busy_seconds: float, now: float) -> None:
        self.path = path
        self._writer = Lane("sqlite-writer", partial(open_writer, path, busy_seconds, now))
        self._reader = Lane("sqlite-reader", partial(open_reader, path, busy_seconds))

    async def read(
        self, step: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """``step(connection, ...)`` in the reading thread; SQLite's errors come as StoreError."""
        return await self._perform(self._reader, step, *args, **kwargs)

    async def write(
        self, step: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """The same in the writing thread."""
        return await self._perform(self._writer, step, *args, **kwargs)

    async def close(self) -> None:
        """After the work that waits. Call once."""
        await self._reader.close()
        await self._writer.close()

    def told(self, error: Exception) -> StoreError:
        """What callers are told of ``error``; damage is noted, so that the next start begins afresh."""
        fault = str(error)
        if isinstance(
            error, UnicodeEncodeError
        ):  # half of a surrogate pair, which JSON can smuggle into a name
            fault = f"the entry holds text that has no UTF-8: {error}"
        elif isinstance(error, sqlite3.Error) and is_damage(error):
            mark_damaged(self.path)
            fault = f"{error}; the file is damaged and will be replaced at the next start"
        told = StoreError(f"SQLite store {self.path}: {fault}")
        told.__cause__ = error
        return told

    async def _perform(
        self,
        lane: Lane[sqlite3.Connection],
        step: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        try:
            return await lane.run(step, *args, **kwargs)
        except (sqlite3.Error, UnicodeEncodeError) as error:
            raise self.told(error) from error
