"""Which entries are due to expire, found without a scan: a calendar of coarse slots."""

from __future__ import annotations

import math
from heapq import heappop, heappush
from itertools import islice


class Deadlines:
    """Digests by the slot of time that their deadline falls in; O(1) but for the small heap of slots.

    Rejected: one heap of entries, because replaced and evicted entries would stay in it until they are due.
    Coarse slots only delay when memory is given back: readers compare the exact deadline themselves.

    Args:
        width: seconds in a slot; 16 keeps the dicts of entries that live for hours from being nearly empty.
    """

    __slots__ = ("_heap", "_slots", "_width")

    def __init__(self, width: float = 16.0) -> None:
        self._width = width
        self._slots: dict[int, dict[bytes, None]] = {}
        self._heap: list[int] = []  # numbers of the slots in existence, the earliest first

    def __len__(self) -> int:
        return sum(map(len, self._slots.values()))

    def add(self, digest: bytes, deadline: float) -> None:
        """Note ``digest``; an infinite deadline is never due and needs no note."""
        if math.isinf(deadline):
            return
        number = int(deadline // self._width)
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = {}
            heappush(self._heap, number)
        slot[digest] = None

    def discard(self, digest: bytes, deadline: float) -> None:
        """Forget ``digest``, which was added with exactly ``deadline``. An emptied slot stays until it is due."""
        if not math.isinf(deadline):
            del self._slots[int(deadline // self._width)][digest]

    def due(self, now: float, limit: int) -> list[bytes]:
        """Up to ``limit`` digests of the earliest slot that has passed whole; remove each with ``discard``."""
        while self._heap and (self._heap[0] + 1) * self._width <= now:
            slot = self._slots[self._heap[0]]
            if slot:
                return list(islice(slot, limit))
            del self._slots[heappop(self._heap)]
        return []

    def check(self) -> str:
        """The first broken invariant, or ""."""
        return "" if sorted(self._heap) == sorted(self._slots) else "the calendar's heap and slots differ"
