"""The durable store: one SQLite file, shared by the processes of one machine.

One thread writes, one reads; the event loop touches neither connection. In WAL mode a read never waits for a
write. Recency is kept roughly: a use is written with the next put, at most once a minute per entry, since a
write per read would cost more than the read.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from stratacache.errors import SettingsError, StoreError
from stratacache.ports import Clock
from stratacache.stores import sqlite_work as work
from stratacache.stores.lane import Lane
from stratacache.stores.sqlite_file import is_damage, mark_damaged, open_reader, open_writer
from stratacache.stores.sqlite_rows import cost_of
from stratacache.types import Entry, StoreStats

T = TypeVar("T")
P = ParamSpec("P")

LARGEST_SHARE = 4  # an entry above max_bytes / 4 is declined, as in the memory store
_USE_SECONDS = 60  # a use is not written again within this
_USES = 256  # uses that wait for a put before they are written on their own

_log = logging.getLogger(__name__)


class SQLiteStore:
    """A ``ports.Store`` in a SQLite file. Safe with several processes on one file; survives ``kill -9``.

    Opened at once: the constructor blocks, and raises StoreError when the file is not ours. A damaged file is
    moved aside, with a warning, and a fresh one started.

    Args:
        path: the file; its folder is made. Beside it live ``-wal``, ``-shm`` and ``.lock``.
        max_bytes: bound of payload and overhead, the same in every process on the file. The log may add 4 MiB.
        clock: wall time judges expiry, as entries outlive the process.
        busy_seconds: how long a write waits for another process before StoreError.
    """

    waits = True

    def __init__(self, path: Path | str, max_bytes: int, clock: Clock, *, busy_seconds: float = 2.0) -> None:
        if max_bytes <= 0:
            raise SettingsError(f"a SQLite store needs a positive max_bytes, not {max_bytes}")
        self._path = Path(path)
        self._max_bytes = max_bytes
        self._clock = clock
        self._uses: dict[bytes, int] = {}
        self._condemned: set[work.RowRef] = set()  # rows seen expired or broken, until they are gone
        self._tasks: set[asyncio.Task[None]] = set()
        self._evictions = 0
        self._rejections = 0
        self._closed = False
        self._writer = Lane("sqlite-writer", partial(open_writer, self._path, busy_seconds, clock.now()))
        self._reader = Lane("sqlite-reader", partial(open_reader, self._path, busy_seconds))

    async def get(self, digest: bytes) -> Entry | None:
        """The entry unless absent or expired. A row that is not whole is a miss, and is deleted."""
        found = await self._run(self._reader, work.read, digest)
        if found is None or found.ref in self._condemned:
            return None
        now = self._clock.now()
        if found.entry is None or found.entry.expires_at <= now:
            self._condemn(found.ref)
            return None
        if abs(now - found.used) >= _USE_SECONDS:
            self._uses[digest] = int(now)
            if len(self._uses) >= _USES:
                self._write_uses()
        return found.entry

    async def put(self, digest: bytes, entry: Entry) -> bool:
        """Keep ``entry``, replacing what was there; False, and nothing there, when it is expired or too large."""
        now = self._clock.now()
        if not entry.expires_at > now or cost_of(entry) * LARGEST_SHARE > self._max_bytes:
            self._rejections += 1
            await self.delete([digest])
            return False
        uses, self._uses = self._uses, {}
        self._evictions += await self._run(
            self._writer, work.write, digest, entry, now, self._max_bytes, uses
        )
        return True

    async def delete(self, digests: Sequence[bytes]) -> int:
        return await self._run(self._writer, work.delete, list(digests))

    async def stats(self) -> StoreStats:
        """Entries and bytes of the whole file; evictions and rejections of this process."""
        entries, size = await self._run(self._reader, work.totals)
        return StoreStats(entries=entries, bytes=size, evictions=self._evictions, rejections=self._rejections)

    async def check(self) -> None:
        """Reads the whole file, in the reading thread."""
        fault = await self._run(self._reader, work.fault, self._max_bytes)
        if fault:
            raise StoreError(f"SQLite store {self._path}: {fault}")

    async def close(self) -> None:
        """Write what waits, then release threads and file."""
        if self._closed:
            return
        if self._uses:
            self._write_uses()
        self._closed = True
        await asyncio.gather(*self._tasks)
        await self._reader.close()
        await self._writer.close()

    async def _run(
        self,
        lane: Lane,
        step: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        if self._closed:
            raise StoreError(f"the SQLite store {self._path} is closed")
        return await self._perform(lane, step, *args, **kwargs)

    async def _perform(
        self,
        lane: Lane,
        step: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """``step`` in its thread, with SQLite's errors as StoreError."""
        try:
            return await lane.run(step, *args, **kwargs)
        except UnicodeEncodeError as error:  # half of a surrogate pair, which JSON can smuggle into a name
            raise StoreError(
                f"SQLite store {self._path}: the entry holds text that has no UTF-8: {error}"
            ) from error
        except sqlite3.Error as error:
            advice = ""
            if is_damage(error):
                mark_damaged(self._path)
                advice = "; the file is damaged and will be replaced at the next start"
            raise StoreError(f"SQLite store {self._path}: {error}{advice}") from error

    def _condemn(self, ref: work.RowRef) -> None:
        """Have a row deleted without keeping the reader waiting; until then no read returns it.

        So an entry that was seen expired stays gone even if the wall clock is set back meanwhile.
        """

        async def remove() -> None:
            await self._perform(self._writer, work.discard, ref)
            # Reads that began before the removal may still bring the row; let them pass before it is forgotten.
            await self._perform(self._reader, lambda _: None)

        self._condemned.add(ref)
        self._in_background(remove()).add_done_callback(lambda _: self._condemned.discard(ref))

    def _write_uses(self) -> None:
        uses, self._uses = self._uses, {}
        self._in_background(self._perform(self._writer, work.note_uses, uses))

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
