"""One SQLite file and the two threads that work on it: one writes, one reads."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from stratacache.errors import StoreError
from stratacache.stores.lane import Lane
from stratacache.stores.sqlite_file import Layout, is_damage, mark_damaged, open_reader, open_writer

T = TypeVar("T")
P = ParamSpec("P")


class Handle:
    """A connection to whatever file is at the path now.

    When another has taken the place of the one that is open, such as after damage, it is opened before the next step:
    processes that wrote to different files would not see each other's invalidations.
    """

    def __init__(self, path: Path, connect: Callable[[], sqlite3.Connection]) -> None:
        self._path = path
        self._connect = connect
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._live()

    def read(
        self, step: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        try:
            return step(self._live(), *args, **kwargs)
        except sqlite3.Error as error:
            if is_damage(error):
                mark_damaged(self._path)
                self._identity = None  # so that the next step opens a fresh file
            raise

    def write(
        self, step: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """As ``read``; what was written to a file that had just been replaced is written again."""
        result = self.read(step, *args, **kwargs)
        return result if self._is_live else self.read(step, *args, **kwargs)

    def close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()

    @property
    def _is_live(self) -> bool:
        return _identity(self._path) == self._identity

    def _live(self) -> sqlite3.Connection:
        if self._connection is None or not self._is_live:
            self.close()
            before = _identity(self._path)
            self._connection = self._connect()
            now = _identity(self._path)
            # Unknown when it was replaced at this very moment: then it is opened once more next time.
            self._identity = now if before in (now, None) else None
        return self._connection


class Lanes:
    """The event loop touches neither connection. In WAL mode a read never waits for a write.

    Opened at once: the constructor blocks, and raises StoreError when the file is not ours. A file that is seen to be
    damaged, then or later, is moved aside and a fresh one started, which the other processes then open too.

    Args:
        name: of the threads.
        busy_seconds: how long a write waits for another process before StoreError.
        now: gives seconds since the epoch.
    """

    def __init__(
        self, name: str, path: Path, layout: Layout, busy_seconds: float, now: Callable[[], float]
    ) -> None:
        self.path = path
        self._writer = Lane(
            f"{name}-writer", lambda: Handle(path, lambda: open_writer(path, layout, busy_seconds, now()))
        )
        self._reader = Lane(
            f"{name}-reader", lambda: Handle(path, lambda: open_reader(path, layout, busy_seconds, now()))
        )

    async def read(
        self, step: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """``step(connection, ...)`` in the reading thread; SQLite's errors come as StoreError."""
        try:
            return await self._reader.run(lambda handle: handle.read(step, *args, **kwargs))
        except (sqlite3.Error, UnicodeEncodeError) as error:
            raise self.told(error) from error

    async def write(
        self, step: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """The same in the writing thread."""
        try:
            return await self._writer.run(lambda handle: handle.write(step, *args, **kwargs))
        except (sqlite3.Error, UnicodeEncodeError) as error:
            raise self.told(error) from error

    async def close(self) -> None:
        """After the work that waits. Call once."""
        await self._reader.close()
        await self._writer.close()

    def told(self, error: Exception) -> StoreError:
        """What callers are told of ``error``."""
        fault = str(error)
        if isinstance(
            error, UnicodeEncodeError
        ):  # half of a surrogate pair, which JSON can smuggle into a name
            fault = f"the entry holds text that has no UTF-8: {error}"
        elif isinstance(error, sqlite3.Error) and is_damage(error):
            fault = f"{error}; the file is damaged and will be replaced"
        told = StoreError(f"SQLite store {self.path}: {fault}")
        told.__cause__ = error
        return told


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
