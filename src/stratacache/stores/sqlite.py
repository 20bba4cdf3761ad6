"""The durable store: one SQLite file, shared by the processes of one machine.

Recency is kept roughly: a use is written with the next put, at most once a minute per entry and only once the file is
half full, since a write per read would cost more than the read. Puts that wait for the writing thread are committed
together.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from stratacache.errors import SettingsError, StoreError
from stratacache.ports import Clock, Page
from stratacache.stores import sqlite_work as work
from stratacache.stores.sqlite_batch import RowRef, totals
from stratacache.stores.sqlite_bulletin import Counter, SQLiteBulletin
from stratacache.stores.sqlite_group import GroupCommit
from stratacache.stores.sqlite_lanes import Lanes
from stratacache.stores.sqlite_log import SQLiteQuestionLog
from stratacache.stores.sqlite_rows import cost_of
from stratacache.stores.sqlite_schema import CACHE
from stratacache.stores.versions import carries
from stratacache.types import Absent, Entry, Invalidated, PutResult, StoreStats, Versions

T = TypeVar("T")
P = ParamSpec("P")

LARGEST_SHARE = 4  # an entry above max_bytes / 4 is declined, as in the memory store
_USE_SECONDS = 60  # a use is not written again within this
_USES = 256  # uses that wait for a put before they are written on their own
_GROUP = (128, 4 << 20)  # puts and bytes per transaction, to bound how long another process waits

_log = logging.getLogger(__name__)


class SQLiteStore:
    """A ``ports.Store`` in a SQLite file. Safe with several processes on one file; survives ``kill -9``.

    Opened at once: the constructor blocks, and raises StoreError when the file is not ours. A damaged file is
    moved aside, with a warning, and a fresh one started; processes that have it open follow.

    Args:
        path: the file; its folder is made. Beside it live ``-wal``, ``-shm``, ``.lock``, ``.bumps`` and ``.asked``.
        max_bytes: bound of payload and overhead, the same in every process on the file. The log may add 4 MiB.
        clock: wall time judges expiry, as entries outlive the process.
        busy_seconds: how long a write waits for another process before StoreError.
    """

    waits = True

    def __init__(self, path: Path | str, max_bytes: int, clock: Clock, *, busy_seconds: float = 2.0) -> None:
        if max_bytes <= 0:
            raise SettingsError(f"a SQLite store needs a positive max_bytes, not {max_bytes}")
        self._max_bytes = max_bytes
        self._clock = clock
        self._uses: dict[bytes, int] = {}
        self._is_half_full = True  # as of this process's last put
        self._condemned: set[RowRef] = set()  # rows seen expired, outdated or broken, until they are gone
        self._tasks: set[asyncio.Task[None]] = set()
        self._evictions = 0
        self._rejections = 0
        self._closed = False
        file = Path(path)
        self._lanes = Lanes("sqlite", file, CACHE, busy_seconds, clock.now)
        self._counter = Counter(file.with_name(file.name + ".bumps"))
        self._puts: GroupCommit[tuple[bytes, Entry, bool], PutResult] = GroupCommit(
            self._write, lambda put: put[1].size, _GROUP
        )

    async def get(self, digest: bytes, tags: Sequence[str] = ()) -> Entry | Absent:
        """As ``ports.Store``. A row that is not whole is a miss, and is deleted."""
        look = await self._read(work.read, digest, tags)
        entry = look.entry
        if look.ref is None or look.ref in self._condemned:
            return Absent("not_found", await self._snapshot(tags, look.versions))
        now = self._clock.now()
        if entry is None or entry.gone_at <= now:
            self._condemn(look.ref)
            return Absent("not_found", await self._snapshot(tags, look.versions))
        if any(look.versions.get(tag) != version for tag, version in entry.versions):
            self._condemn(look.ref)
            return Absent("outdated", await self._snapshot((*entry.tags, *tags), look.versions))
        if not carries(entry, tags):
            return Absent("untagged", await self._snapshot((*entry.tags, *tags), look.versions))
        if self._is_half_full and abs(now - look.used) >= _USE_SECONDS:
            self._uses[digest] = int(now)
            if len(self._uses) >= _USES:
                self._write_uses()
        return entry

    async def put(self, digest: bytes, entry: Entry) -> PutResult:
        """As ``ports.Store``; declines what is expired or too large, and then nothing is there."""
        self._require_open()
        declined = not entry.gone_at > self._clock.now() or cost_of(entry) * LARGEST_SHARE > self._max_bytes
        result = await self._puts.run((digest, entry, declined))
        if result == "declined":
            self._rejections += 1
        return result

    async def invalidate(
        self, tags: Sequence[str], digests: Sequence[bytes] = (), *, dry_run: bool = False
    ) -> Invalidated:
        if dry_run:
            affected, known = await self._read(work.foresee, tags, digests)
            return Invalidated(affected, await self._snapshot(tags, known))
        self._require_open()
        return await self._lanes.write(work.invalidate, tags, digests, self._clock.now(), self._counter)

    async def scan(self, after: bytes, count: int, *, dead: bool = False) -> Page:
        """As ``ports.Listing``, by digest."""
        return await self._read(work.scan, after, count, None if dead else self._clock.now())

    def bulletin(self) -> SQLiteBulletin:
        """News of all invalidations on this file; close it before the store."""
        return SQLiteBulletin(self._lanes, self._counter)

    def question_log(self) -> SQLiteQuestionLog:
        """The log of the questions in this file; close it before the store."""
        return SQLiteQuestionLog(self._lanes, self._clock)

    async def stats(self) -> StoreStats:
        """Entries and bytes of the whole file; evictions and rejections of this process."""
        entries, size = await self._read(totals)
        return StoreStats(entries=entries, bytes=size, evictions=self._evictions, rejections=self._rejections)

    async def check(self) -> None:
        """Reads the whole file, in the reading thread."""
        fault = await self._read(work.fault, self._max_bytes)
        if fault:
            raise StoreError(f"SQLite store {self._lanes.path}: {fault}")

    async def close(self) -> None:
        """Write what waits, then release threads and file."""
        if self._closed:
            return
        self._closed = True
        await self._puts.settled()
        if self._uses:
            self._write_uses()
        await asyncio.gather(*self._tasks)
        await self._lanes.close()
        self._counter.close()

    def _require_open(self) -> None:
        if self._closed:
            raise StoreError(f"the SQLite store {self._lanes.path} is closed")

    async def _read(
        self, step: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        self._require_open()
        return await self._lanes.read(step, *args, **kwargs)

    async def _snapshot(self, tags: Sequence[str], known: Mapping[str, int]) -> Versions:
        """The versions of ``tags``; those that are not ``known`` are made."""
        if all(tag in known for tag in tags):
            return tuple([(tag, known[tag]) for tag in sorted(set(tags))])
        self._require_open()
        return await self._lanes.write(work.snapshot, tags, self._clock.now())

    async def _write(self, group: Sequence[tuple[bytes, Entry, bool]]) -> list[PutResult | Exception]:
        uses, self._uses = self._uses, {}
        written = await self._lanes.write(work.write, group, self._clock.now(), self._max_bytes, uses)
        self._evictions += written.evicted
        self._is_half_full = written.kept * 2 > self._max_bytes
        return [
            self._lanes.told(result) if isinstance(result, Exception) else result
            for result in written.results
        ]

    def _condemn(self, ref: RowRef) -> None:
        """Have a row deleted without keeping the reader waiting; until then no read returns it.

        So an entry that was seen expired stays gone even if the wall clock is set back meanwhile.
        """

        async def remove() -> None:
            await self._lanes.write(work.discard, ref, self._clock.now())
            # Reads that began before the removal may still bring the row; let them pass before it is forgotten.
            await self._lanes.read(lambda _: None)

        self._condemned.add(ref)
        self._in_background(remove()).add_done_callback(lambda _: self._condemned.discard(ref))

    def _write_uses(self) -> None:
        uses, self._uses = self._uses, {}
        self._in_background(self._lanes.write(work.note_uses, uses))

    def _in_background(self, step: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``step`` beside the caller; its failure is logged, as nobody waits for it."""

        async def guarded() -> None:
            try:
                await step
            except StoreError as error:
                _log.warning("%s", error)

        task = asyncio.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
