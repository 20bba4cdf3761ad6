"""Rows and partitions together: every change of the stored questions, without I/O or threads."""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

from stratacache.errors import VectorIndexError
from stratacache.types import Question
from stratacache.vectors.partition import Partition
from stratacache.vectors.rows import ROW_BYTES, Rows
from stratacache.vectors.slots import digest_of

_PARTITION_BYTES = 420  # key, object, list of rows, places in a dict and a list


class Table:
    """The stored questions by digest and by partition. For one thread."""

    def __init__(self, rows: Rows, most: int) -> None:
        self.rows = rows
        self.most = most
        self.partitions: dict[bytes, Partition] = {}
        self.large: dict[int, Partition] = {}  # those with a core, or one in the making
        self._numbered: list[Partition | None] = [None]
        self._free_numbers: list[int] = []
        self.retired: dict[int, bytes] | None = (
            None  # while a snapshot is written: numbers not to be used again
        )

    def __len__(self) -> int:
        return len(self.rows)

    def memory(self, *, with_vectors: bool) -> int:
        """Memory for rows, questions, partitions and cores, estimated."""
        rows = self.rows
        each = ROW_BYTES + (2 * rows.vectors.shape[1] if with_vectors else 0)
        cores = sum(p.large.core.memory() for p in self.large.values() if p.large and p.large.core)
        return len(rows) * each + rows.record_bytes + len(self.partitions) * _PARTITION_BYTES + cores

    def add(self, question: Question, vector: NDArray[np.float32]) -> Partition:
        """Insert or replace; the soonest to expire makes room. Returns the partition.

        Raises:
            VectorIndexError: every row that is free waits for a core or a snapshot to be done with it.
        """
        previous = self.rows.table.find(question.digest)
        if self.rows.full():
            raise VectorIndexError("the index is full until its upkeep is done")
        if previous >= 0:
            self.remove_row(previous)
        self.make_room(1)
        partition = self.partitions.get(question.partition) or self._new(question.partition)
        row = self.rows.add(question, vector, partition.number, len(partition.slots))
        partition.add(row)
        return partition

    def make_room(self, more: int) -> None:
        """Push questions out until so many ``more`` are within the bound."""
        while len(self) + more > self.most:
            self.remove_row(self.rows.victim())

    def remove(self, digest: bytes) -> Partition | None:
        """Forget ``digest``; returns its partition if it was there and others are."""
        row = self.rows.table.find(digest)
        return self.remove_row(row) if row >= 0 else None

    def remove_row(self, row: int) -> Partition | None:
        partition = self.owner(row)
        partition.remove(row, self.rows)
        if partition.slots or partition.large is not None:
            return partition
        self.forget(partition)
        return None

    def owner(self, row: int) -> Partition:
        partition = self._numbered[int(self.rows.owners[row])]
        assert partition is not None
        return partition

    def forget(self, partition: Partition) -> None:
        """Give up an empty partition without a core."""
        del self.partitions[partition.key]
        self._numbered[partition.number] = None
        if self.retired is None:
            self._free_numbers.append(partition.number)
        else:
            self.retired[partition.number] = partition.key

    def park(self) -> None:
        """Use no row and no number of a partition again until ``unpark``."""
        self.rows.park()
        self.retired = {}

    def unpark(self) -> None:
        self.rows.unpark()
        self._free_numbers += self.retired or ()
        self.retired = None

    def _new(self, key: bytes) -> Partition:
        if self._free_numbers:
            number = self._free_numbers.pop()
        else:
            number = len(self._numbered)
            self._numbered.append(None)
        partition = Partition(key, number, array("I"))
        self.partitions[key] = self._numbered[number] = partition
        return partition

    def adopt(self, keys: dict[int, bytes]) -> None:
        """Group the rows that were put in place by their owners' numbers; ``keys`` of all of these.

        Only for a new table, by who loads a snapshot.
        """
        owners = self.rows.owners[: self.rows.high]
        order = np.argsort(owners, kind="stable").astype(np.uint32)
        numbers, starts = np.unique(owners[order], return_index=True)
        bounds = [*starts.tolist(), len(order)]
        self._numbered += [None] * int(owners.max(initial=0))
        for number, start, stop in zip(numbers.tolist(), bounds, bounds[1:], strict=False):
            slots = order[start:stop]
            if number == 0:
                self.rows.free.frombytes(slots.tobytes())
                continue
            self.rows.places[slots] = np.arange(len(slots), dtype=np.uint32)
            partition = Partition(keys[number], number, array("I", slots.tobytes()))
            self.partitions[partition.key] = self._numbered[number] = partition
        self._free_numbers = [n for n, found in enumerate(self._numbered) if n and found is None]

    def check_partition(self, partition: Partition) -> str:
        """The first broken invariant, or ""."""
        if self.partitions.get(partition.key) is not partition:
            return "a partition is not found by its key"
        if self._numbered[partition.number] is not partition:
            return "a partition is not found by its number"
        if (partition.large is not None) != (partition.number in self.large):
            return "a partition with a core is not known as such"
        return partition.check(self.rows)

    def check_rows(self, start: int, stop: int) -> str:
        """The first broken invariant of rows [start, stop), or ""."""
        rows = self.rows
        for row in range(start, min(stop, rows.high)):
            record, number = rows.records[row], int(rows.owners[row])
            if bool(record) != bool(number):
                return "a row has an owner and no question, or the other way round"
            if not record:
                continue
            if rows.table.find(digest_of(record)) != row:
                return "a row is not found by its digest"
            if number >= len(self._numbered) or self._numbered[number] is None:
                return "a row belongs to a partition that does not exist"
        live = rows.vectors[start : min(stop, rows.high)][rows.owners[start : min(stop, rows.high)] > 0]
        lengths = np.linalg.norm(live.astype(np.float32), axis=1)
        return "" if np.all(np.abs(lengths - 1) < 0.01) else "a vector is not of length 1"

    def check_counts(self) -> str:
        """The first broken invariant of the whole, or ""; linear in partitions."""
        rows, listed = self.rows, sum(len(partition.slots) for partition in self.partitions.values())
        pending = sum(
            len(set(p.large.dropped) | set(p.large.journal.removed if p.large.journal else ()))
            for p in self.large.values()
            if p.large and not p.large.tended
        )
        if listed != len(rows):
            return "the partitions list another number of rows than there are questions"
        busy = any(p.large and p.large.tended for p in self.large.values())
        if not busy and len(rows) + len(rows.free) + rows.parked + pending != rows.high:
            return "a row is neither free nor in use, or both"
        if len(rows) > self.most:
            return "there are more questions than the bound allows"
        return ""
