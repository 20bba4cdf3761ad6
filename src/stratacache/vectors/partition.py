"""One partition's rows: which there are, which its core has, and which changes the core still lacks."""

from __future__ import annotations

from array import array

import msgspec
import numpy as np

from stratacache.vectors.core import Core
from stratacache.vectors.rows import Rows, Slots


class Journal(msgspec.Struct, gc=False):
    """What changed since a core began to be built."""

    added: dict[int, None]
    removed: list[int]


class Large(msgspec.Struct):
    """What a partition has beside its list of rows once it has, or gets, a core.

    ``fresh`` rows are not in the core and are compared one by one; ``moving`` ones are being taken in; ``dropped`` ones
    are gone but still in the core, and cleared, not released: until then no other question may get such a row, since
    the graph leads through its vector. ``churn`` counts rows dropped since the core was built.
    """

    core: Core | None = None
    fresh: dict[int, None] = msgspec.field(default_factory=dict)
    moving: dict[int, None] = msgspec.field(default_factory=dict)
    dropped: list[int] = msgspec.field(default_factory=list)
    journal: Journal | None = None
    churn: int = 0
    tended: bool = False
    retry_at: float = 0.0


class Partition(msgspec.Struct, gc=False):
    """All rows of a partition in ``slots``, each knowing its place there. ``large`` is None for most."""

    key: bytes
    number: int
    slots: array[int]
    large: Large | None = None

    def add(self, row: int) -> None:
        """Take ``row`` in; its place must be the length of ``slots``."""
        self.slots.append(row)
        large = self.large
        if large is not None:
            if large.core is not None:
                large.fresh[row] = None
            if large.journal is not None:
                large.journal.added[row] = None

    def remove(self, row: int, rows: Rows) -> None:
        """Take ``row`` out, clear it, and release it as soon as no core refers to it."""
        place, last = int(rows.places[row]), self.slots.pop()
        if last != row:
            self.slots[place] = last
            rows.places[last] = place
        rows.clear(row)
        if self.large is None or not self._still_in_a_core(self.large, row):
            rows.release(row)

    @staticmethod
    def _still_in_a_core(large: Large, row: int) -> bool:
        """Note that ``row`` is gone; whether it is, or may be, in the core or the one that is being built."""
        was_fresh = row in large.fresh
        large.fresh.pop(row, None)
        large.moving.pop(row, None)
        if large.journal is not None and row not in large.journal.added:
            large.journal.removed.append(row)
            return True
        if large.journal is not None:
            del large.journal.added[row]
        if large.core is None or was_fresh:
            return False
        large.dropped.append(row)
        large.churn += 1
        return True

    def rows(self) -> Slots:
        """A copy of the list of rows."""
        return np.array(self.slots, np.uint32)

    def begin_build(self) -> Slots:
        """The rows to build a core of; what changes from now on is noted for it."""
        assert self.large is not None
        assert self.large.journal is None
        self.large.journal = Journal({}, [])
        return self.rows()

    def swap(self, core: Core, rows: Rows) -> None:
        """Search with the ``core`` that was built; what changed meanwhile is still to be applied to it."""
        large = self.large
        assert large is not None
        assert large.journal is not None
        for row in large.dropped:
            rows.release(row)
        large.core, large.fresh, large.dropped = core, large.journal.added, large.journal.removed
        large.churn, large.journal = len(large.dropped), None

    def give_up_build(self, rows: Rows) -> None:
        """The core could not be built: go on with the old one, or none."""
        large = self.large
        assert large is not None
        if large.journal is not None:
            if large.core is None:
                for row in large.journal.removed:
                    rows.release(row)
            else:
                large.dropped += large.journal.removed
            large.journal = None

    def begin_settle(self, most: int) -> tuple[Slots, list[int]]:
        """Rows to take into the core, at most ``most``, and rows to take out."""
        large = self.large
        assert large is not None
        assert large.journal is None
        batch = list(large.fresh)[:most] if len(large.fresh) > most else list(large.fresh)
        for row in batch:
            del large.fresh[row]
        large.moving = dict.fromkeys(batch)
        drops, large.dropped = large.dropped, []
        return np.array(batch, np.uint32), drops

    def end_settle(self, drops: list[int], rows: Rows) -> None:
        assert self.large is not None
        self.large.moving = {}
        for row in drops:
            rows.release(row)

    def undo_settle(self, drops: list[int]) -> None:
        """The core could not be changed, or only in part: the changes are still to be made."""
        large = self.large
        assert large is not None
        large.fresh, large.moving = {**large.moving, **large.fresh}, {}
        large.dropped = drops + large.dropped

    def drop_core(self, rows: Rows) -> None:
        """Compare the rows one by one from now on."""
        large = self.large
        assert large is not None
        assert large.journal is None
        for row in large.dropped:
            rows.release(row)
        self.large = None

    def check(self, rows: Rows) -> str:
        """The first broken invariant, or ""; costs as much as there are rows."""
        slots = self.rows()
        if len(np.unique(slots)) != len(slots):
            return "a row is listed twice"
        if not np.array_equal(rows.places[slots], np.arange(len(slots), dtype=np.uint32)):
            return "a row does not know its place"
        if (rows.owners[slots] != self.number).any():
            return "a row belongs to another partition"
        large = self.large
        if large is None or large.core is None or large.tended:
            return ""
        held, listed = set(large.core.slots().tolist()), set(slots.tolist())
        if large.moving or large.journal is not None:
            return "something is under way that nobody does"
        if held != (listed - set(large.fresh)) | set(large.dropped):
            return "the core has other rows than it should"
        return ""
