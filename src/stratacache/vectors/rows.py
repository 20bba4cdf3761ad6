"""The stored questions of a local index, as columns: a few dozen bytes a row beside vector and text."""

from __future__ import annotations

import math
from array import array

import msgspec
import numpy as np
from numpy.typing import NDArray

from stratacache.errors import VectorIndexError
from stratacache.ports import Vector
from stratacache.types import Question
from stratacache.vectors.slots import SlotTable, digest_of, prefix

Half = NDArray[np.float16]
Slots = NDArray[np.uint32]

# Beside the vector: owner, place, created, expires 24; table 8 to 16; the record's object, its place in a list 48.
ROW_BYTES = 88
_WINDOW = 4096  # rows looked at for one to push out: exact below, a good sample above


class Text(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is packed behind the digest in a row's record."""

    text: str
    principal: str
    witnesses: tuple[str, ...]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Text).decode


def unit(vector: Vector, dimension: int) -> NDArray[np.float32]:
    """``vector`` at length 1, float32.

    Raises:
        VectorIndexError: another shape than (dimension,), a value that is not finite, or no length.
    """
    found = np.asarray(vector, np.float32)
    if found.shape != (dimension,):
        raise VectorIndexError(f"a vector has shape {found.shape}, the index holds ({dimension},)")
    length = math.sqrt(float(np.dot(found, found)))
    if not math.isfinite(length):
        # Finite values may have a square that is not; those are no embedding either.
        raise VectorIndexError("a vector holds values that are not finite")
    if length < 1e-6:
        raise VectorIndexError("a vector of length zero points nowhere")
    return found / np.float32(length)


class Rows:
    """Rows 0 to ``high`` - 1, some of them free; a row keeps its number for life. For one thread.

    Worker threads may read ``vectors`` of rows that cannot be given to another question meanwhile (see ``release``).

    Args:
        capacity: rows at most.
        dimension: of the vectors.
        vectors: float16 memory of shape (capacity, dimension); without it new, committed as it is used.
    """

    def __init__(self, capacity: int, dimension: int, vectors: Half | None = None) -> None:
        self.capacity = capacity
        self.vectors: Half = np.zeros((capacity, dimension), np.float16) if vectors is None else vectors
        self.owners = np.zeros(capacity, np.uint32)  # the number of the row's partition; 0: no question here
        self.places = np.zeros(capacity, np.uint32)  # where in its partition's list
        self.created = np.zeros(capacity, np.float64)
        self.expires = np.zeros(capacity, np.float64)
        self.records: list[bytes] = []
        self.table = SlotTable(capacity, self.records)
        self.record_bytes = 0
        self.free = array("I")
        self._parked: array[int] | None = None
        self._hand = 0

    @property
    def high(self) -> int:
        return len(self.records)

    def __len__(self) -> int:
        return len(self.table)

    def full(self) -> bool:
        return not self.free and self.high >= self.capacity

    def add(self, question: Question, vector: NDArray[np.float32], owner: int, place: int) -> int:
        """Put ``question``, whose digest is not there yet, into a free row; returns its number."""
        if len(question.digest) > 255:
            raise VectorIndexError(f"a digest of {len(question.digest)} bytes")
        packed = _encode(Text(question.text, question.principal, question.witnesses))
        record = prefix(question.digest) + packed
        if self.free:
            row = self.free.pop()
            self.records[row] = record
        else:
            row = self.high
            self.records.append(record)
        self.vectors[row] = vector
        self.created[row], self.expires[row] = question.created_at, question.expires_at
        self.owners[row], self.places[row] = owner, place
        self.table.insert(question.digest, row)
        self.record_bytes += len(record)
        return row

    def clear(self, row: int) -> None:
        """Forget the question of ``row``; the row is not given to another before ``release``."""
        record = self.records[row]
        self.table.remove(digest_of(record))
        self.record_bytes -= len(record)
        self.records[row] = b""
        self.owners[row] = 0

    def release(self, row: int) -> None:
        """The cleared ``row`` may hold another question from now on."""
        (self.free if self._parked is None else self._parked).append(row)

    def reserve(self, rows: list[int]) -> None:
        """Give none of the cleared ``rows`` to a question before it is released; they may be above all others.

        Raises:
            VectorIndexError: there is no room for such rows.
        """
        most = max(rows, default=-1)
        if most >= self.capacity:
            raise VectorIndexError(f"the snapshot has a row {most}, more than max_vectors allows")
        self.free.extend(range(self.high, most + 1))
        self.records += [b""] * (most + 1 - self.high)
        kept = set(rows)
        self.free = array("I", (row for row in self.free if row not in kept))

    def park(self) -> None:
        """Give no released row to another question until ``unpark``: a snapshot is being written in slices."""
        self._parked = array("I")

    def unpark(self) -> None:
        if self._parked is not None:
            self.free.extend(self._parked)
        self._parked = None

    @property
    def parked(self) -> int:
        return len(self._parked or ())

    def question(self, row: int, partition: bytes) -> Question:
        record = self.records[row]
        packed = _decode(memoryview(record)[1 + record[0] :])
        return Question(
            digest_of(record),
            partition,
            packed.text,
            float(self.created[row]),
            float(self.expires[row]),
            packed.principal,
            packed.witnesses,
        )

    def expired(self, start: int, stop: int, now: float) -> Slots:
        """Rows of [start, stop) whose question has expired."""
        past = (self.owners[start:stop] > 0) & ~(self.expires[start:stop] > now)
        return (np.flatnonzero(past) + start).astype(np.uint32)

    def victim(self) -> int:
        """The row to push out: soonest to expire, among those the oldest, in a window that moves over the rows."""
        while True:
            start = min(self._hand, max(0, self.high - _WINDOW))  # never a window of a few rows at the end
            stop = min(start + _WINDOW, self.high)
            self._hand = stop if stop < self.high else 0
            taken = np.flatnonzero(self.owners[start:stop]) + start
            if len(taken):
                soonest = taken[self.expires[taken] == self.expires[taken].min()]
                return int(soonest[self.created[soonest].argmin()])
