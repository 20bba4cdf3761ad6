"""What one replica's prefix cache is believed to hold: an LRU of blocks, updated by few calls; pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import cast


class ReplicaModel:
    """An LRU of at most ``capacity`` blocks. A block is named by a hash of the whole prefix up to its end.

    A request's blocks become as new as each other, the last one the oldest: servers free the tail first. So with a
    block all blocks before it are held, and what a request uses is one entry of a queue: its blocks in older entries
    are left behind, told by their tick, and swept out when they are many.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError("a replica's cache holds at least one block")
        self.capacity = capacity
        self._blocks: dict[bytes, int] = {}  # block -> tick of its last use
        self._uses: deque[tuple[int, list[bytes]]] = deque()  # oldest first; a block counts where its tick is
        self._queued = 0  # blocks in all uses, those left behind as well
        self._running: set[int] = set()

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, block: bytes) -> bool:
        return block in self._blocks

    def overlap(self, prefix: Sequence[bytes]) -> int:
        """How many blocks of the prefix are held, from its beginning."""
        return next((i for i, block in enumerate(prefix) if block not in self._blocks), len(prefix))

    def use(
        self, prefix: Sequence[bytes], tick: int
    ) -> tuple[tuple[int, ...], Sequence[bytes], Sequence[bytes]]:
        """Make the prefix the newest; what does not fit is dropped from its end, then the oldest of the others.

        Returns for each block that was held when it was last used, 0 while another request that computes it runs; the
        blocks that were added; and those that were dropped for them.
        """
        blocks = self._blocks
        kept = list(prefix[: self.capacity])
        ticks = tuple(map(blocks.get, kept))
        held = len(kept) - ticks.count(None)  # of a chain the beginning is held
        known = cast("tuple[int, ...]", ticks[:held])
        if computed := self._running.intersection(known):
            known = tuple(0 if one in computed else one for one in known)
        blocks.update(dict.fromkeys(kept, tick))
        self._uses.append((tick, kept))
        self._queued += len(kept)
        self._running.add(tick)
        return known, kept[held:], self._shrink() if len(blocks) > self.capacity else ()

    def finished(self, tick: int) -> None:
        """The request of this tick runs no more: its blocks have been computed, or never will be."""
        self._running.discard(tick)
        if self._queued > 2 * self.capacity:
            self._sweep()

    def forget(self, until: int) -> list[bytes]:
        """Drop all blocks last used at ``until`` or before; returns them."""
        dropped: list[bytes] = []
        while self._uses and self._uses[0][0] <= until:
            self._drop(self._uses[0], len(self._blocks), dropped)
            self._uses.popleft()
        return dropped

    def blocks(self) -> Iterable[bytes]:
        return self._blocks.keys()

    def check(self) -> None:
        assert len(self._blocks) <= self.capacity
        ticks = [tick for tick, _ in self._uses]
        assert ticks == sorted(ticks), "an LRU's order is that of its ticks"
        assert {block: tick for tick, kept in self._uses for block in kept} == self._blocks
        assert self._queued == sum(len(kept) for _, kept in self._uses)

    def _shrink(self) -> list[bytes]:
        dropped: list[bytes] = []
        while len(self._blocks) > self.capacity:
            self._drop(self._uses[0], len(self._blocks) - self.capacity, dropped)
            if not self._uses[0][1]:
                self._uses.popleft()
        return dropped

    def _drop(self, use: tuple[int, list[bytes]], most: int, dropped: list[bytes]) -> None:
        """Drop up to ``most`` blocks of the oldest use, its last ones first, and what newer uses left behind of it."""
        blocks, (tick, kept) = self._blocks, use
        before, wanted = len(kept), len(dropped) + most
        while kept and len(dropped) < wanted:
            block = kept.pop()
            if blocks.get(block) == tick:
                del blocks[block]
                dropped.append(block)
        self._queued -= before - len(kept)

    def _sweep(self) -> None:
        """Take blocks out of uses that newer ones have left behind; less work than the uses that made it due."""
        blocks = self._blocks
        swept = ((tick, [one for one in kept if blocks[one] == tick]) for tick, kept in self._uses)
        self._uses = deque((tick, kept) for tick, kept in swept if kept)
        self._queued = len(blocks)
