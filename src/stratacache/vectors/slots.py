"""Finds a row by its digest: an open-addressing table of 4-byte row numbers, without an object per row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_EMPTY = 0  # row numbers are stored plus one


class SlotTable:
    """Row numbers by digest, with linear probing and backward-shift deletion (Knuth, TAOCP 3, 6.4, Algorithm R).

    A dict would cost about 150 bytes a row, this 8 to 16. It never grows: growing a large one would stall the event
    loop, and the number of rows is bounded anyway.

    Args:
        capacity: rows at most; the table is at most half full.
        records: the rows' records, each beginning with ``prefix(digest)``; compared on every hit.
    """

    __slots__ = ("_cells", "_count", "_mask", "_records")

    def __init__(self, capacity: int, records: Sequence[bytes]) -> None:
        size = 1 << max(3, (2 * capacity - 1).bit_length())
        self._cells = np.zeros(size, np.uint32).data
        self._mask = size - 1
        self._records = records
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def find(self, digest: bytes) -> int:
        """The row of ``digest``, or -1."""
        number = self._cells[self._cell_of(digest)]
        return number - 1

    def insert(self, digest: bytes, row: int) -> None:
        """Note that ``row``, whose record is in place, holds ``digest``, which must not be there yet."""
        cell = self._cell_of(digest)
        assert self._cells[cell] == _EMPTY
        self._cells[cell] = row + 1
        self._count += 1

    def remove(self, digest: bytes) -> None:
        """Forget ``digest``, which must be there; call it while its record still is."""
        cells, mask = self._cells, self._mask
        hole = self._cell_of(digest)
        assert cells[hole] != _EMPTY
        at = hole
        while True:
            at = (at + 1) & mask
            if cells[at] == _EMPTY:
                break
            home = hash(digest_of(self._records[cells[at] - 1])) & mask
            # Moves back unless its home lies cyclically in (hole, at]: then it would get out of reach.
            if (at - home) & mask >= (at - hole) & mask:
                cells[hole] = cells[at]
                hole = at
        cells[hole] = _EMPTY
        self._count -= 1

    def _cell_of(self, digest: bytes) -> int:
        """The cell that holds ``digest``, or the empty one where it would go."""
        cells, mask, records = self._cells, self._mask, self._records
        start = prefix(digest)
        cell = hash(digest) & mask
        while (number := cells[cell]) != _EMPTY:
            if records[number - 1].startswith(start):
                break
            cell = (cell + 1) & mask
        return cell


def prefix(digest: bytes) -> bytes:
    """What the record of ``digest``, of at most 255 bytes, begins with."""
    return bytes((len(digest),)) + digest


def digest_of(record: bytes) -> bytes:
    return record[1 : 1 + record[0]]
