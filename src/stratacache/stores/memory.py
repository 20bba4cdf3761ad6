"""The in-process store: bounded by bytes, and hard to flush with questions that nobody asks twice.

W-TinyLFU: a newcomer enters a small LRU window; what falls out of the window stays only if it is asked for
more often than the entries it would push out of the main part, which is a segmented LRU (probation for what
was not asked for again, protected for what was). Einziger, Friedman, Manes: "TinyLFU: A Highly Efficient
Cache Admission Policy", ACM ToS 13(4), 2017, as in Caffeine. Entries differ in size, so a candidate must beat
the *sum* of its victims' frequencies ("aggregated victims": Einziger, Eytan, Friedman, Manes, "Lightweight
Robust Size Aware Cache Management", ACM ToS 18(3), 2022). The window's size is learnt (``climber``).
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from heapq import nsmallest
from itertools import chain, islice

import msgspec

from stratacache.errors import SettingsError, StoreError
from stratacache.ports import Clock, Page
from stratacache.stores.climber import WindowClimber
from stratacache.stores.deadlines import Deadlines
from stratacache.stores.sketch import FrequencySketch
from stratacache.stores.versions import Floors, VersionTable
from stratacache.types import Absent, Entry, Invalidated, PutResult, StoreStats

# What an entry costs beside its payload: four bytes objects, the Entry, its numbers, the slot, a place in an
# OrderedDict at its emptiest, in the calendar and in the sketch. benchmarks/store_speed.py measures it.
OVERHEAD = 640
LARGEST_SHARE = 4  # an entry above max_bytes / 4 is declined: one answer must not displace most others
_PROTECTED_SHARE = 0.8  # of what the window leaves, as in Caffeine
_BATCH = 64  # accesses counted together
_LEAST_SAMPLE = 1024  # accesses before the climber may conclude anything
_MOVES = 32  # entries that change segment per put: bounds the pause after the window was resized
_SHED = 256  # entries removed at once when all have to go: a tenth of a millisecond
_SWEEP = 16  # expired entries given back per put: more than a put can add, so the backlog shrinks


class _Slot(msgspec.Struct, gc=False):
    """An entry in its place; ``deadline`` is monotonic, so setting the wall clock back revives nothing.

    In ``generation`` of the version table the entry was last known to be current, and to carry ``asked``.
    """

    entry: Entry
    deadline: float
    cost: int
    generation: int
    asked: Sequence[str] = ()


class _Segment:
    """An LRU list with its size: the oldest first."""

    __slots__ = ("bytes", "slots")

    def __init__(self) -> None:
        self.slots: OrderedDict[bytes, _Slot] = OrderedDict()
        self.bytes = 0

    def add(self, digest: bytes, slot: _Slot) -> None:
        self.slots[digest] = slot
        self.bytes += slot.cost

    def pop(self, digest: bytes) -> _Slot:
        slot = self.slots.pop(digest)
        self.bytes -= slot.cost
        return slot

    def pop_oldest(self) -> tuple[bytes, _Slot]:
        digest, slot = self.slots.popitem(last=False)
        self.bytes -= slot.cost
        return digest, slot


class MemoryStore:
    """A ``ports.Store`` in this process's memory. Not shared, gone at exit. For one event loop.

    No method suspends, so each is atomic. ``get`` and ``put`` are O(1) (a ``put`` may push out several smaller
    entries).

    Args:
        max_bytes: bound of payload and estimated overhead together. An entry above a quarter is declined.
        clock: wall time judges ``gone_at``; monotonic time bounds the life that an entry had left at ``put``.
        versions: of the shared store whose entries are copied here; without it the store gives tags versions itself.
    """

    waits = False

    def __init__(self, max_bytes: int, clock: Clock, versions: Floors | None = None) -> None:
        if max_bytes <= 0:
            raise SettingsError(f"a memory store needs a positive max_bytes, not {max_bytes}")
        self._max_bytes = max_bytes
        self._clock = clock
        self._window = _Segment()
        self._probation = _Segment()
        self._protected = _Segment()
        self._climber = WindowClimber()
        self._window_bytes = self._protected_bytes = 0
        self._divide()
        self._deadlines = Deadlines()
        self._sketch = FrequencySketch()
        self._versions = versions or VersionTable(clock)
        self._accesses: list[bytes] = []
        self._sample = self._sample_hits = 0
        self._evictions = 0
        self._rejections = 0
        self._closed = False

    async def get(self, digest: bytes, tags: Sequence[str] = ()) -> Entry | Absent:
        """As ``ports.Store``. Counts an access either way: popularity includes what we lack."""
        self._require_open()
        accesses = self._accesses
        accesses.append(digest)
        if len(accesses) >= _BATCH:
            self._count_accesses()
        slot = self._protected.slots.get(digest)
        if slot is not None:
            segment = self._protected
        elif (slot := self._window.slots.get(digest)) is not None:
            segment = self._window
        elif (slot := self._probation.slots.get(digest)) is not None:
            segment = self._probation
        else:
            return Absent("not_found", self._versions.snapshot(tags))
        if self._expired(slot):
            self._remove(digest)
            return Absent("not_found", self._versions.snapshot(tags))
        if slot.generation != self._versions.generation or slot.asked is not tags:
            refused = self._versions.refuse(slot.entry, tags)
            if refused is not None:
                if refused.reason == "outdated":
                    self._remove(digest)
                return refused
            slot.generation, slot.asked = self._versions.generation, tags
        if segment is self._probation:
            self._protected.add(digest, segment.pop(digest))
            self._demote()
        else:
            segment.slots.move_to_end(digest)
        self._sample_hits += 1
        return slot.entry

    async def put(self, digest: bytes, entry: Entry) -> PutResult:
        """As ``ports.Store``; declines what is expired, too large or not popular enough.

        Unless ``entry`` is outdated, what was there is gone in every case: the caller holds something newer.
        """
        self._require_open()
        self._reclaim()
        if not self._versions.are_current(entry.versions):
            return "outdated"
        previous = self._remove(digest)
        cost = cost_of(entry)
        lifetime = entry.gone_at - self._clock.now()
        if not lifetime > 0 or cost * LARGEST_SHARE > self._max_bytes:
            self._rejections += 1
            return "declined"
        slot = _Slot(entry, self._clock.monotonic() + lifetime, cost, self._versions.generation)
        self._take_in(digest, slot)
        self._count_accesses()
        if previous is None and cost > self._window_bytes:
            # Through the window it would push out all that is there, even if it is then declined itself.
            self._admit(digest, slot)
        else:
            (previous or self._window).add(digest, slot)
        self._settle()
        if self._segment_of(digest) is None:
            self._rejections += 1
            self._evictions -= 1  # counted by _admit or _evict, but it never was an entry
            return "declined"
        return "stored"

    async def invalidate(
        self, tags: Sequence[str], digests: Sequence[bytes] = (), *, dry_run: bool = False
    ) -> Invalidated:
        self._require_open()
        assert isinstance(self._versions, VersionTable), "copies are invalidated by what is heard"
        before = self._versions.snapshot(tags)
        if dry_run:
            present = sum(self._segment_of(digest) is not None for digest in set(digests))
            return Invalidated(present + self._versions.count(before), before)
        removed = self.forget(digests)
        return Invalidated(removed + self._versions.count(before), self._versions.bump(tags))

    def forget(self, digests: Sequence[bytes]) -> int:
        """Remove; returns how many were present."""
        return sum(self._remove(digest) is not None for digest in digests)

    async def scan(self, after: bytes, count: int, *, dead: bool = False) -> Page:
        """As ``ports.Listing``, by digest. Looks at all digests each time, in some 100 ms for a million."""
        self._require_open()
        held = chain(*(segment.slots for segment in self._segments()))
        digests = nsmallest(count, (digest for digest in held if digest > after))
        entries = []
        for digest in digests:
            segment = self._segment_of(digest)
            slot = segment.slots[digest] if segment is not None else None
            if slot is not None and (dead or self._answers(slot)):
                entries.append((digest, slot.entry))
        return Page(entries, digests[-1] if len(digests) == count else None)

    async def stats(self) -> StoreStats:
        self._require_open()
        return StoreStats(
            entries=sum(len(segment.slots) for segment in self._segments()),
            bytes=self._bytes(),
            evictions=self._evictions,
            rejections=self._rejections,
        )

    async def check(self) -> None:
        self._require_open()
        fault = self._fault() or self._sketch.check() or self._deadlines.check()
        if fault:
            raise StoreError(f"memory store: {fault}")

    async def close(self) -> None:
        self._closed = True
        while self.shed():  # noqa: ASYNC110 - this does not wait: it lets others run in between
            await asyncio.sleep(0)

    def shed(self) -> bool:
        """Remove some entries; False when none is left. To free very many at once would hold up the event loop."""
        for digest in list(islice((d for segment in self._segments() for d in segment.slots), _SHED)):
            self._remove(digest)
        return any(segment.slots for segment in self._segments())

    def _require_open(self) -> None:
        if self._closed:
            raise StoreError("the memory store is closed")

    def _segments(self) -> tuple[_Segment, _Segment, _Segment]:
        return self._window, self._probation, self._protected

    def _segment_of(self, digest: bytes) -> _Segment | None:
        return next((segment for segment in self._segments() if digest in segment.slots), None)

    def _bytes(self) -> int:
        return self._window.bytes + self._probation.bytes + self._protected.bytes

    def _expired(self, slot: _Slot) -> bool:
        """By either clock: when they disagree the wall clock was set, and the earlier end is the safe one."""
        return self._clock.monotonic() >= slot.deadline or self._clock.now() >= slot.entry.gone_at

    def _answers(self, slot: _Slot) -> bool:
        return not self._expired(slot) and self._versions.are_current(slot.entry.versions)

    def _remove(self, digest: bytes) -> _Segment | None:
        """Drop ``digest`` and say which segment held it."""
        segment = self._segment_of(digest)
        if segment is not None:
            self._let_go(digest, segment.pop(digest))
        return segment

    def _take_in(self, digest: bytes, slot: _Slot) -> None:
        self._deadlines.add(digest, slot.deadline)
        self._versions.carry(slot.entry)

    def _let_go(self, digest: bytes, slot: _Slot) -> None:
        self._deadlines.discard(digest, slot.deadline)
        self._versions.drop(slot.entry)

    def _reclaim(self) -> None:
        """Give back a bounded number of entries that nobody asked for before they expired."""
        for digest in self._deadlines.due(self._clock.monotonic(), _SWEEP):
            self._remove(digest)

    def _count_accesses(self) -> None:
        self._sample += len(self._accesses)
        self._sketch.add(self._accesses)
        self._accesses.clear()

    def _divide(self) -> None:
        """Set the segments' bounds from the climber; they are reached a few entries per put."""
        self._window_bytes = int(self._max_bytes * self._climber.share)
        self._protected_bytes = int((self._max_bytes - self._window_bytes) * _PROTECTED_SHARE)

    def _climb(self, entries: int) -> None:
        """At the end of a sample let the climber move the window."""
        if self._sample >= max(entries, _LEAST_SAMPLE):
            self._climber.observe(self._sample_hits / self._sample)
            self._sample = self._sample_hits = 0
            self._divide()

    def _settle(self) -> None:
        """Bring the store within max_bytes and move the segments towards their bounds, after a put."""
        entries = sum(len(segment.slots) for segment in self._segments())
        self._sketch.grow(entries)
        self._climb(entries)
        self._demote()
        for _ in range(_MOVES):
            if self._window.bytes <= self._window_bytes:
                break
            self._admit(*self._window.pop_oldest())
        # The window has grown into the main part's share, or a kept entry was replaced by a larger one.
        while self._bytes() > self._max_bytes:
            self._evict(next(iter(self._oldest_first()))[0])

    def _demote(self) -> None:
        for _ in range(_MOVES):
            if self._protected.bytes <= self._protected_bytes:
                break
            self._probation.add(*self._protected.pop_oldest())

    def _oldest_first(self) -> Iterator[tuple[bytes, _Slot]]:
        """Entries in the order in which they are given up."""
        return chain(*(segment.slots.items() for segment in (self._probation, self._protected, self._window)))

    def _admit(self, digest: bytes, slot: _Slot) -> None:
        """Let a candidate from the window into the main part if it is worth more than what it displaces."""
        excess = self._bytes() + slot.cost - self._max_bytes
        worth = self._sketch.estimate(digest)
        victims: list[bytes] = []
        for victim, held in self._oldest_first():
            if excess <= 0:
                break
            worth -= 0 if self._expired(held) else self._sketch.estimate(victim)
            if worth <= 0:
                self._let_go(digest, slot)
                self._evictions += 1
                return
            victims.append(victim)
            excess -= held.cost
        for victim in victims:
            self._evict(victim)
        self._probation.add(digest, slot)

    def _evict(self, digest: bytes) -> None:
        self._remove(digest)
        self._evictions += 1

    def _fault(self) -> str:
        """The first broken invariant of the segments, or ""."""
        held = [digest for segment in self._segments() for digest in segment.slots]
        if len(set(held)) != len(held):
            return "a digest is in two segments"
        slots = [slot for segment in self._segments() for slot in segment.slots.values()]
        mortal = sum(math.isfinite(slot.deadline) for slot in slots)
        if mortal != len(self._deadlines):
            return f"{mortal} entries can expire but the calendar holds {len(self._deadlines)}"
        for segment in self._segments():
            if segment.bytes != sum(cost_of(slot.entry) for slot in segment.slots.values()):
                return "a segment's size is not the sum of its entries' costs"
        if self._bytes() > self._max_bytes:
            return f"{self._bytes()} bytes are kept where {self._max_bytes} are allowed"
        return self._versions.fault(slot.entry for slot in slots)


def cost_of(entry: Entry) -> int:
    """Bytes that ``entry`` is charged: payload, text fields and the objects that hold them."""
    labels = len(entry.tenant) + len(entry.model) + sum([len(tag) + 64 for tag, _ in entry.versions])
    return entry.size + labels + OVERHEAD
