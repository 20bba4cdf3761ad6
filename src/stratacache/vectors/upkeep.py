"""Background work of a local index: cores are built, brought up to date and dropped while searches go on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import numpy as np

from stratacache.ports import Clock
from stratacache.vectors.core import Abandoned, Core
from stratacache.vectors.limits import IndexLimits
from stratacache.vectors.partition import Large, Partition
from stratacache.vectors.pool import SearchPool
from stratacache.vectors.rows import Slots
from stratacache.vectors.table import Table

_SETTLE_AT = 64  # changes that a core lacks before it is brought up to date at once; fewer wait for the sweep
_BATCH = 512  # rows taken in by one piece of work
_RETRY_SECONDS = 60.0
_SWEPT = 8192  # rows looked at before the event loop gets its turn

log = logging.getLogger(__name__)


class Upkeep:
    """Decides which partition needs what, and does it: one piece of work per partition at a time.

    Args:
        build: makes a core in a worker thread; None: partitions are always compared row by row.
    """

    def __init__(
        self,
        table: Table,
        pool: SearchPool,
        clock: Clock,
        limits: IndexLimits,
        build: Callable[[Slots, Callable[[], bool]], Core] | None,
        least_rows: int,
    ) -> None:
        self._table = table
        self._pool = pool
        self._clock = clock
        self._limits = limits
        self._build_core = build
        self._least = max(limits.exact_below, least_rows)
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._stopped = False
        self.failure = ""  # why the last core could not be built or changed; "" when it could

    def note_large(self) -> None:
        """Give the next sweep those partitions that should have a core and have none: call it after loading."""
        for partition in self._table.partitions.values():
            if partition.large is None and self._build_core and len(partition.slots) > self._least:
                partition.large = Large()
                self._table.large[partition.number] = partition

    def look_at(self, partition: Partition, *, least: int = _SETTLE_AT) -> None:
        """Begin what ``partition`` needs, if anything: call it after each change."""
        if partition.large is None:
            if self._build_core is None or len(partition.slots) <= self._least:
                return
            partition.large = Large()
            self._table.large[partition.number] = partition
        large = partition.large
        if not large.tended and not self._stopped and self._needs(partition, least):
            large.tended = True
            task = asyncio.create_task(self._tend(partition, least), name="vector upkeep")
            self._tasks[partition.number] = task
            task.add_done_callback(lambda _: self._tasks.pop(partition.number, None))

    async def settled(self) -> None:
        """Return when every core has all changes that were made before this call."""
        for partition in list(self._table.large.values()):
            await self.idle(partition)
            self.look_at(partition, least=1)
            await self.idle(partition)

    async def idle(self, partition: Partition) -> None:
        """Return when nothing is being done for ``partition``."""
        while (task := self._tasks.get(partition.number)) is not None:
            await asyncio.wait([task])

    async def stop(self) -> None:
        """Give up what is under way; the rows stay as they are. Idempotent."""
        self._stopped = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._pool.upkeep(lambda: None)  # behind what a thread was still doing

    async def sweep(self) -> int:
        """Remove what has expired, and bring cores up to date; returns how many questions went."""
        removed = 0
        for start in range(0, self._table.rows.high, _SWEPT):
            expired = self._table.rows.expired(start, start + _SWEPT, self._clock.now())
            for number in range(0, len(expired), 256):
                for row in expired[number : number + 256].tolist():
                    removed += self._expire(row)
                await asyncio.sleep(0)
            await asyncio.sleep(0)
        for partition in list(self._table.large.values()):
            self.look_at(partition, least=1)
        return removed

    def _expire(self, row: int) -> bool:
        """Remove the question of ``row`` unless another has its place since it was found expired."""
        rows = self._table.rows
        if not rows.owners[row] or rows.expires[row] > self._clock.now():
            return False
        partition = self._table.remove_row(row)
        if partition is not None:
            self.look_at(partition)
        return True

    def _needs(self, partition: Partition, least: int) -> str:
        """``build``, ``drop``, ``settle`` or ""."""
        large, size = partition.large, len(partition.slots)
        if large is None:
            return ""
        if size <= self._least // 2:
            return "drop"
        may_build = self._clock.monotonic() >= large.retry_at
        if large.core is None:
            return "build" if may_build and size > self._least else ""
        if may_build and large.churn > self._limits.rebuild_share * size and size >= self._least:
            return "build"
        if may_build and len(large.fresh) + len(large.dropped) >= least:
            return "settle"
        return ""

    async def _tend(self, partition: Partition, least: int) -> None:
        large = partition.large
        assert large is not None
        try:
            while not self._stopped and (need := self._needs(partition, least)):
                if need == "build":
                    await self._build(partition, large)
                elif need == "settle":
                    await self._settle(partition, large)
                else:
                    self._drop(partition)
                    return
        finally:
            large.tended = False

    async def _build(self, partition: Partition, large: Large) -> None:
        assert self._build_core is not None
        try:
            core = await self._pool.upkeep(self._build_core, partition.begin_build(), lambda: self._stopped)
        except (
            Exception,
            asyncio.CancelledError,
        ) as error:  # whatever the library raises: the rows are all there
            partition.give_up_build(self._table.rows)
            if isinstance(error, asyncio.CancelledError):
                raise
            if not isinstance(error, Abandoned):
                self._failed("built", large, error)
        else:
            partition.swap(core, self._table.rows)
            self.failure = ""

    async def _settle(self, partition: Partition, large: Large) -> None:
        assert large.core is not None
        added, drops = partition.begin_settle(_BATCH)
        try:
            await self._pool.upkeep(large.core.apply, added, np.array(drops, np.uint32))
        except (Exception, asyncio.CancelledError) as error:  # whatever the library raises: it is done again
            partition.undo_settle(drops)
            if isinstance(error, asyncio.CancelledError):
                raise
            self._failed("brought up to date", large, error)
        else:
            partition.end_settle(drops, self._table.rows)
            self.failure = ""

    def _failed(self, what: str, large: Large, error: BaseException) -> None:
        self.failure = f"an index could not be {what}: {error}"
        log.warning("%s; again in %.0f s", self.failure, _RETRY_SECONDS, exc_info=error)
        large.retry_at = self._clock.monotonic() + _RETRY_SECONDS

    def _drop(self, partition: Partition) -> None:
        partition.drop_core(self._table.rows)
        self._table.large.pop(partition.number, None)
        if not partition.slots:
            self._table.forget(partition)
