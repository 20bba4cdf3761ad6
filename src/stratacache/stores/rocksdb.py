"""The durable store for one process that keeps more than SQLite likes to: a RocksDB folder."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from stratacache.errors import SettingsError, StoreError
from stratacache.ports import Clock, Page
from stratacache.stores.lane import Lane
from stratacache.stores.rocksdb_file import is_damage, mark_damaged, open_database
from stratacache.stores.rocksdb_shelf import Shelf
from stratacache.types import Absent, Entry, Invalidated, PutResult, StoreStats

T = TypeVar("T")
P = ParamSpec("P")

_log = logging.getLogger(__name__)


class RocksDBStore:
    """A ``ports.Store`` in a RocksDB folder, which one process at a time can open. Survives ``kill -9``.

    Opened at once: the constructor blocks, and raises StoreError when the folder is not ours or in use. A damaged one
    is moved aside, with a warning, and a fresh one started. One thread does all the work; but the library holds the
    interpreter while it writes, so a disk that stalls is felt by the event loop, unlike with SQLite. What was used
    least recently goes first; recency is kept roughly: a use is written with the next put, at most once a minute per
    entry.

    Args:
        path: the folder; it is made.
        max_bytes: bound of payload and overhead. The folder stays within 1.3 times of it, but for moments in which
            files are being rewritten (1.5 times was seen while it was filled as fast as the disk allowed).
        clock: wall time judges expiry, as entries outlive the process.
    """

    waits = True

    def __init__(self, path: Path, max_bytes: int, clock: Clock) -> None:
        if max_bytes <= 0:
            raise SettingsError(f"a RocksDB store needs a positive max_bytes, not {max_bytes}")
        self._path = path
        self._clock = clock
        self._closed = False
        self._lane = Lane("rocksdb", partial(_open, path, max_bytes, clock.now))

    async def get(self, digest: bytes, tags: Sequence[str] = ()) -> Entry | Absent:
        """As ``ports.Store``. An entry that is not whole, expired or outdated is removed."""
        return await self._run(Shelf.get, digest, tags, self._clock.now())

    async def put(self, digest: bytes, entry: Entry) -> PutResult:
        """As ``ports.Store``; declines what is expired or too large."""
        return await self._run(Shelf.put, digest, entry, self._clock.now())

    async def invalidate(
        self, tags: Sequence[str], digests: Sequence[bytes] = (), *, dry_run: bool = False
    ) -> Invalidated:
        """As ``ports.Store``. When it returns it is on the disk, so that no power cut undoes it."""
        return await self._run(Shelf.invalidate, tags, digests, self._clock.now(), dry_run=dry_run)

    async def scan(self, after: bytes, count: int, *, dead: bool = False) -> Page:
        """As ``ports.Listing``, by digest."""
        return await self._run(Shelf.scan, after, count, None if dead else self._clock.now())

    async def stats(self) -> StoreStats:
        return await self._run(_stats)

    async def check(self) -> None:
        """Reads all but the entries' content."""
        fault = await self._run(Shelf.fault)
        if fault:
            raise StoreError(f"RocksDB store {self._path}: {fault}")

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            await self._lane.close()
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing more specific; it is closed all the same
            _log.warning("RocksDB store %s: %s", self._path, error)

    async def _run(self, step: Callable[Concatenate[Shelf, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._closed:
            raise StoreError(f"the RocksDB store {self._path} is closed")
        try:
            return await self._lane.run(step, *args, **kwargs)
        except StoreError:
            raise
        except UnicodeEncodeError as error:  # half of a surrogate pair, which JSON can smuggle into a name
            raise StoreError(
                f"RocksDB store {self._path}: the entry holds text that has no UTF-8: {error}"
            ) from error
        except Exception as error:  # rocksdict raises nothing more specific
            advice = ""
            if is_damage(error):
                mark_damaged(self._path)
                advice = "; the folder is damaged and will be replaced at the next start"
            raise StoreError(f"RocksDB store {self._path}: {error}{advice}") from error


def _open(path: Path, max_bytes: int, now: Callable[[], float]) -> Shelf:
    return Shelf(lambda: open_database(path, max_bytes, now()), max_bytes)


def _stats(shelf: Shelf) -> StoreStats:
    return StoreStats(
        entries=shelf.totals.entries,
        bytes=shelf.totals.bytes,
        evictions=shelf.evictions,
        rejections=shelf.rejections,
    )
