"""News of the invalidations that any process makes on one SQLite file.

A counter in a file that all of them map into memory moves with each invalidation, inside its transaction: comparing it
takes no I/O. What happened is in a table of the database, read when the counter has moved.
"""

from __future__ import annotations

import asyncio
import logging
import mmap
import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from stratacache.errors import StoreError
from stratacache.stores.sqlite_file import transaction
from stratacache.stores.sqlite_lanes import Lanes
from stratacache.types import Invalidated

KEPT = 1024  # invalidations in the table; who missed more starts afresh
_MOST_DIGESTS = 4096  # in one row; more are told as "everything", to bound the table
_WORD = 2**64
_RETRY_SECONDS = 0.1
_WATCH_SECONDS = 0.05  # between looks at the counter, when nobody asks

Hear = Callable[[Invalidated | None, Sequence[bytes]], None]

_log = logging.getLogger(__name__)


class Told(msgspec.Struct, array_like=True, frozen=True):
    """One invalidation, as the table holds it."""

    what: Invalidated
    digests: list[bytes]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Told)


class Counter:
    """A number in a file that the processes of one machine map. Changed only under the database's write lock.

    Never replaced or shortened while a process may have it mapped, and so not when the database is.
    """

    def __init__(self, path: Path) -> None:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                # Not a hole: writing to a mapped hole on a full disk is a bus error.
                os.posix_fallocate(descriptor, 0, 8)
                self._map = mmap.mmap(descriptor, 8)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise StoreError(f"cannot open {path}: {error}") from error
        self._words = memoryview(self._map).cast("Q")

    def read(self) -> int:
        return self._words[0]

    def advance(self) -> None:
        self._words[0] = (self._words[0] + 1) % _WORD

    def close(self) -> None:
        self._words.release()
        self._map.close()


class Place(NamedTuple):
    """How far the news were read: the file that they are in, and the number of the latest."""

    born: int
    number: int


def note(connection: sqlite3.Connection, what: Invalidated, digests: Sequence[bytes]) -> None:
    """Add an invalidation to the table, in the transaction that makes it."""
    told = _encoder.encode(Told(what, list(digests))) if len(digests) <= _MOST_DIGESTS else None
    number = connection.execute("INSERT INTO bumps (told) VALUES (?)", (told,)).lastrowid
    connection.execute("DELETE FROM bumps WHERE number <= ?", ((number or 0) - KEPT,))


def read_news(
    connection: sqlite3.Connection, counter: Counter, since: Place | None
) -> tuple[int, Place, list[Told | None]]:
    """The counter, and what is new ``since``; None in the list when something was lost.

    Both under the write lock: no invalidation is between its count and its commit.
    """
    with transaction(connection):
        count = counter.read()
        born = connection.execute("SELECT born FROM totals").fetchone()[0]
        bounds = "SELECT coalesce(min(number), 1), coalesce(max(number), 0) FROM bumps"
        oldest, latest = connection.execute(bounds).fetchone()
        here = Place(born, latest)
        if since is None or born != since.born or oldest > since.number + 1:
            return count, here, [None]
        query = "SELECT told FROM bumps WHERE number > ? ORDER BY number"
        rows = connection.execute(query, (since.number,)).fetchall()
    return count, here, [None if told is None else _decoder.decode(told) for (told,) in rows]


class SQLiteBulletin:
    """A ``ports.Bulletin`` of the processes that share a SQLite store.

    Args:
        lanes: the store's; it closes them.
        counter: the store's, moved by each of its invalidations.
    """

    def __init__(self, lanes: Lanes, counter: Counter) -> None:
        self._lanes = lanes
        self._counter = counter
        self._hear: Hear | None = None
        self._heard: int | None = None
        self._place: Place | None = None
        self._task: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None

    def current(self) -> bool:
        """As ``ports.Bulletin``. When it is not, the news are fetched."""
        if self._hear is None:
            return False
        if self._counter.read() == self._heard:
            return True
        if self._task is None:
            self._task = asyncio.create_task(self._catch_up())
        return False

    async def start(self, hear: Hear) -> None:
        """As ``ports.Bulletin``. A file that cannot be read now is read later."""
        try:
            self._heard, self._place, _ = await self._lanes.write(read_news, self._counter, None)
        except StoreError as error:
            _log.warning("news of invalidations cannot be read yet: %s", error)
        self._hear = hear
        self._watch = asyncio.create_task(self._keep_looking())

    async def close(self) -> None:
        self._hear = None
        if self._watch is not None:
            self._watch.cancel()
        tasks = [task for task in (self._watch, self._task) if task is not None]
        if tasks:
            await asyncio.wait(tasks)

    async def _keep_looking(self) -> None:
        while True:
            self.current()
            await asyncio.sleep(_WATCH_SECONDS)

    async def _catch_up(self) -> None:
        try:
            heard, place, news = await self._lanes.write(read_news, self._counter, self._place)
            if self._hear is None:
                return
            for told in news:
                self._hear(told.what if told else None, told.digests if told else ())
            self._heard, self._place = heard, place
        except (StoreError, msgspec.MsgspecError) as error:
            _log.warning("news of invalidations cannot be read: %s", error)
            await asyncio.sleep(_RETRY_SECONDS)  # every request would try again
        finally:
            self._task = None
