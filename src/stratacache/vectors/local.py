"""The vector index of one process: exact where a partition is small, a graph or product codes where it is large."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stratacache.errors import VectorIndexError
from stratacache.ports import Clock, Vector
from stratacache.types import Candidate, IndexStats, Question
from stratacache.vectors import ivfpq, snapshot
from stratacache.vectors.arena import Arena
from stratacache.vectors.core import Core, Load
from stratacache.vectors.exact import nearest, similarities
from stratacache.vectors.hnsw import HnswCore
from stratacache.vectors.limits import IndexLimits
from stratacache.vectors.partition import Large
from stratacache.vectors.pool import SearchPool
from stratacache.vectors.rows import Rows, Slots, unit
from stratacache.vectors.table import Table
from stratacache.vectors.upkeep import Upkeep

_INLINE = 512  # rows compared in the event loop: 0.1 ms, less than a change of threads costs
_BATCH = 1024  # questions read, or rows checked, before the event loop gets its turn

log = logging.getLogger(__name__)


class LocalIndex:
    """A ``ports.VectorIndex`` in this process's memory. For one event loop.

    No search waits for another partition, a build or a snapshot. Changes are seen by the next search. Large partitions
    are searched through a core (graph or codes), and changes that it lacks row by row.

    Args:
        dimension: of the vectors.
        fingerprint: of the embedder that makes them; a snapshot of another is refused.
        limits: bounds, and what searches large partitions.
        folder: where snapshots go, for this process alone; None keeps none.
        position: tells the log position that the index has; None: snapshots are made only by ``save``.
    """

    def __init__(
        self,
        dimension: int,
        fingerprint: str,
        clock: Clock,
        limits: IndexLimits | None = None,
        *,
        folder: Path | None = None,
    ) -> None:
        self._set_up(dimension, fingerprint, clock, limits or IndexLimits(), folder, None)

    def _set_up(
        self,
        dimension: int,
        fingerprint: str,
        clock: Clock,
        limits: IndexLimits,
        folder: Path | None,
        saved: Path | None,
    ) -> None:
        kind = limits.resolve(dimension)
        if kind == "ivfpq":
            ivfpq.faiss()  # says now that it is not installed
        self.dimension = dimension
        self.fingerprint = fingerprint
        self.kind = kind
        self.position: Callable[[], bytes] | None = None
        self._clock = clock
        self._limits = limits
        self._folder = folder
        self._arena = Arena(limits.rows, dimension, in_file=kind == "ivfpq", folder=folder, snapshot=saved)
        self._table = Table(Rows(limits.rows, dimension, self._arena.vectors), limits.max_vectors)
        self._pool = SearchPool()
        vectors = self._arena.vectors
        build = {
            "exact": None,
            "hnsw": partial(HnswCore.build, vectors),
            "ivfpq": partial(ivfpq.IvfPqCore.build, vectors),
        }[kind]
        least = ivfpq.LEAST_ROWS if kind == "ivfpq" else 0
        self._upkeep = Upkeep(self._table, self._pool, clock, limits, build, least)
        self._sweeper: asyncio.Task[None] | None = None
        self._saving = asyncio.Lock()
        self._changes = 0
        self._closed = False

    @classmethod
    def load(
        cls,
        folder: Path,
        dimension: int,
        fingerprint: str,
        clock: Clock,
        limits: IndexLimits | None = None,
    ) -> tuple[LocalIndex, bytes]:
        """The index that was saved in ``folder``, and the log position to go on from. Seconds for a million vectors:
        call it in a thread. Vectors and graphs are mapped, not read.

        Raises:
            VectorIndexError: why there is no snapshot that can be used; begin with an empty index.
        """
        limits = limits or IndexLimits()
        path, manifest = snapshot.read_manifest(folder, fingerprint, dimension)
        if manifest.high > limits.rows:
            raise VectorIndexError(f"the snapshot has {manifest.high} rows, more than max_vectors allows")
        index = cls.__new__(cls)
        index._set_up(dimension, fingerprint, clock, limits, folder, path / "vectors")
        snapshot.read_rows(path, manifest, index._table.rows)
        index._table.adopt(manifest.partitions)
        index._adopt_cores(path, manifest)
        index._table.make_room(0)
        return index, manifest.cursor

    def _adopt_cores(self, path: Path, manifest: snapshot.Manifest) -> None:
        """Give partitions the cores that were saved with them, and what these lack."""
        loads: dict[str, Load] = {
            "hnsw": partial(HnswCore.load, self._arena.vectors),
            "ivfpq": partial(ivfpq.IvfPqCore.load, self._arena.vectors),
        }
        for number, kind in manifest.cores.items():
            partition = self._table.partitions.get(manifest.partitions.get(number, b""))
            if partition is None or kind != self.kind:
                continue
            core = loads[kind](path / f"core-{number}")
            held, listed = core.slots(), partition.rows()
            fresh = np.setdiff1d(listed, held).tolist()
            gone = np.setdiff1d(held, listed).tolist()
            partition.large = Large(core, dict.fromkeys(fresh), dropped=gone, churn=len(gone))
            self._table.large[number] = partition
            self._table.rows.reserve(gone)
        self._upkeep.note_large()

    async def search(self, partition: bytes, vector: Vector, count: int) -> Sequence[Candidate]:
        """As ``ports.VectorIndex``; raises also for a vector that is not finite, of length 0 or of another shape."""
        self._require_open()
        query = unit(vector, self.dimension)
        self._begin_upkeep()
        found = self._table.partitions.get(partition)
        if found is None or count < 1:
            return ()
        large = found.large
        if (large is None or large.core is None) and len(found.slots) <= _INLINE:
            return self._best(partition, self._nearest(found.rows(), query, count), query, count)
        for wanted in (count + 16, 16 * (count + 16)):
            if found.large is None or found.large.core is None:
                break
            chosen = await self._pool.search(
                self._ask, found.large.core, self._beside(found.large), query, wanted
            )
            self._require_open()
            best = self._best(partition, chosen, query, count)
            if len(best) == min(count, len(found.slots)):
                return best
        # No core, or most of what it gives has expired: those left are compared one by one.
        chosen = await self._pool.search(self._nearest, found.rows(), query, count + 16)
        self._require_open()
        return self._best(partition, chosen, query, count)

    @staticmethod
    def _beside(large: Large | None) -> Slots:
        """The rows that the core lacks."""
        assert large is not None
        return np.fromiter(chain(large.fresh, large.moving), np.uint32)

    def _nearest(self, slots: Slots, query: NDArray[np.float32], count: int) -> Slots:
        """Of the rows ``slots`` that have not expired, the ``count`` nearest."""
        live = slots[self._table.rows.expires[slots] > self._clock.now()]
        return nearest(self._arena.vectors, live, query, count)

    def _ask(self, core: Core, beside: Slots, query: NDArray[np.float32], count: int) -> Slots:
        return np.concatenate((core.search(query, count), self._nearest(beside, query, count)))

    def _best(self, key: bytes, chosen: Slots, query: NDArray[np.float32], count: int) -> Sequence[Candidate]:
        """Of the rows ``chosen``, those that hold a live question of the partition now, by exact similarity."""
        partition = self._table.partitions.get(key)
        if partition is None:
            return ()
        rows = self._table.rows
        slots = np.unique(chosen)
        slots = slots[(rows.owners[slots] == partition.number) & (rows.expires[slots] > self._clock.now())]
        scores = similarities(rows.vectors, slots, query)
        order = np.lexsort((-rows.created[slots], -scores))[:count]
        return [Candidate(rows.question(int(slots[at]), key), min(1.0, float(scores[at]))) for at in order]

    async def add(self, question: Question, vector: Vector) -> None:
        """As ``ports.VectorIndex``. What has expired is not taken in; what it would replace is forgotten.

        Raises:
            VectorIndexError: as ``search``, or the index is full until its upkeep is done.
        """
        self._require_open()
        found = unit(vector, self.dimension)
        self._begin_upkeep()
        if not question.expires_at > self._clock.now():
            self._remove(question.digest)
            return
        partition = self._table.add(question, found)
        self._changes += 1
        if self._limits.max_bytes is not None and self._changes % 64 == 0:
            self._keep_to_bytes(self._limits.max_bytes)
        self._upkeep.look_at(partition)

    def _keep_to_bytes(self, most: int) -> None:
        """Push out until the index is within its bytes; a few rows per change, so it never takes long."""
        for _ in range(256):
            if len(self._table) == 0 or self._bytes() <= most:
                return
            partition = self._table.remove_row(self._table.rows.victim())
            if partition is not None:
                self._upkeep.look_at(partition)

    async def remove(self, digests: Sequence[bytes]) -> None:
        self._require_open()
        for number, digest in enumerate(digests, start=1):
            self._remove(digest)
            if number % 256 == 0:
                await asyncio.sleep(0)

    def _remove(self, digest: bytes) -> None:
        partition = self._table.remove(digest)
        if partition is not None:
            self._upkeep.look_at(partition)

    async def clear(self) -> None:
        """Forget all questions: what they were derived from is not known any more."""
        self._require_open()
        async for questions in self.questions():
            await self.remove([question.digest for question in questions])

    async def questions(self) -> AsyncIterator[Sequence[Question]]:
        """Every question that has not expired, in batches; what changes meanwhile may be there or not."""
        start = 0
        while start < self._table.rows.high:
            rows, now = self._table.rows, self._clock.now()
            taken = np.flatnonzero(rows.owners[start : start + _BATCH]) + start
            live = taken[rows.expires[taken] > now].tolist()
            yield [rows.question(row, self._table.owner(row).key) for row in live]
            start += _BATCH
            await asyncio.sleep(0)

    def find(self, digest: bytes) -> Question | None:
        """The question under ``digest``, None when there is none."""
        row = self._table.rows.table.find(digest)
        return self._table.rows.question(row, self._table.owner(row).key) if row >= 0 else None

    async def sweep(self) -> int:
        """Remove what has expired; returns how many. Also done by itself every ``sweep_seconds``."""
        self._require_open()
        return await self._upkeep.sweep()

    async def settled(self) -> None:
        """Return when the cores have every change that was made before this call. For tests and benchmarks."""
        await self._upkeep.settled()

    async def save(self, cursor: bytes = b"") -> None:
        """Write a snapshot; ``cursor`` is a position of the log that the index has, read just before this call.

        Raises:
            VectorIndexError: there is no folder, or the disk refused; an older snapshot stays.
        """
        self._require_open()
        await self._save(cursor)

    async def _save(self, cursor: bytes) -> None:
        if self._folder is None:
            raise VectorIndexError("the index has no folder to be saved in")
        # Shielded: a thread would go on writing the folder that the next call removes.
        await asyncio.shield(asyncio.create_task(self._write(self._folder, cursor), name="save index"))

    async def _write(self, folder: Path, cursor: bytes) -> None:
        async with self._saving:
            await snapshot.write(self._table, self._upkeep, folder, self.fingerprint, cursor)

    async def stats(self) -> IndexStats:
        """As ``ports.VectorIndex``; what expired since the last sweep is counted in."""
        self._require_open()
        return IndexStats(len(self._table), len(self._table.partitions), self._bytes())

    def _bytes(self) -> int:
        return self._table.memory(with_vectors=not self._arena.in_file)

    async def check(self) -> None:
        """As ``ports.VectorIndex``; reads every row, and lets the event loop run in between."""
        self._require_open()
        if self._upkeep.failure:
            raise VectorIndexError(self._upkeep.failure)
        wrong = self._table.check_counts()
        for partition in list(self._table.partitions.values()):
            await asyncio.sleep(0)
            if self._table.partitions.get(partition.key) is partition:
                wrong = wrong or self._table.check_partition(partition)
        for start in range(0, self._table.rows.high, _BATCH):
            wrong = wrong or self._table.check_rows(start, start + _BATCH)
            await asyncio.sleep(0)
        if wrong:
            raise VectorIndexError(f"the index is broken: {wrong}")

    async def close(self) -> None:
        """As ``ports.VectorIndex``: saves when there are a folder and a ``position``. Builds are given up."""
        if self._closed:
            return
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        await self._upkeep.stop()
        try:
            if self._folder is not None and self.position is not None:
                await self._save(self.position())
        finally:
            self._pool.close()

    def _require_open(self) -> None:
        if self._closed:
            raise VectorIndexError("the index is closed")

    def _begin_upkeep(self) -> None:
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep_for_ever(), name="vector index sweep")

    async def _sweep_for_ever(self) -> None:
        saved_at = self._clock.monotonic()
        while True:
            with contextlib.suppress(VectorIndexError):  # told by the log, and tried again
                await self._upkeep.sweep()
            self._arena.rest()
            await asyncio.sleep(self._limits.sweep_seconds)
            due = self._clock.monotonic() - saved_at >= self._limits.save_seconds
            if due and self._folder is not None and self.position is not None:
                saved_at = self._clock.monotonic()
                try:
                    await self._save(self.position())
                except VectorIndexError as error:
                    log.warning("%s", error)
