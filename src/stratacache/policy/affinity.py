"""Which replica of a model server gets a request: the one that holds its prefix, unless it is too busy; pure.

Each replica's cache is modelled as an LRU of prefix blocks. The model is only a belief, so what a server says it
found (``cached_tokens``) corrects it. Approximate models do nearly as well as exact events do: ``lab.simulate``
replays traces through this very code.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Literal, NamedTuple

Why = Literal["prefix", "conversation", "load", "busy", "only"]

BETA = 0.1
"""Blocks of prefix that are given up to find one block less of waiting work."""

BOUND, EXCESS = 4.0, 0.25
"""A replica takes no request while it has more than ``BOUND`` times the mean load, or more than the mean and this share
of all work (which is what bounds small fleets). Tighter bounds cost hits and gain nothing.
"""

CONVERSATIONS = 65_536
FORKS = 512
FEWEST_FORKS = 4


class Choice(NamedTuple):
    """``overlap`` blocks of the request's prefix are believed to be at ``replica``; why it was chosen:

    ``prefix`` it holds more of the prefix than others, past the blocks that everybody shares; ``conversation`` it
    served this conversation last; ``load`` none holds more, it has the least to do; ``busy`` the one that holds more
    has too much to do; ``only`` no other replica takes requests.
    """

    replica: int
    overlap: int
    why: Why


class Placement(NamedTuple):
    """A request that was sent; give it to ``Affinity.settle`` once, however the request ended.

    ``ticks`` tells for each believed block when it was last used, 0 while another request that computes it runs.
    """

    replica: int
    tick: int
    ticks: tuple[int, ...]


class ReplicaModel:
    """What one replica's prefix cache is believed to hold: an LRU of at most ``capacity`` blocks.

    A request's blocks become as new as each other, the last one the oldest: servers free the tail first. So with a
    block all blocks before it are held. A block is named by a hash of the whole prefix up to its end.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError("a replica's cache holds at least one block")
        self.capacity = capacity
        self._blocks: OrderedDict[bytes, int] = OrderedDict()  # block -> tick of its last use, oldest first
        self._running: set[int] = set()

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, block: bytes) -> bool:
        return block in self._blocks

    def overlap(self, prefix: Sequence[bytes]) -> int:
        """How many blocks of the prefix are held, from its beginning."""
        return next((i for i, block in enumerate(prefix) if block not in self._blocks), len(prefix))

    def use(self, prefix: Sequence[bytes], tick: int) -> tuple[tuple[int, ...], list[bytes], list[bytes]]:
        """Make the prefix the newest; what does not fit is dropped from its end, then the oldest of the others.

        Returns the ticks as in ``Placement``, the blocks that were added, and those that were dropped for them.
        """
        blocks, running = self._blocks, self._running
        kept = prefix[: self.capacity]
        ticks: list[int] = []
        for block in kept:
            before = blocks.get(block)
            if before is None:
                break
            ticks.append(0 if before in running else before)
        added: list[bytes] = []
        for block in reversed(kept):
            if block in blocks:
                blocks.move_to_end(block)
            else:
                added.append(block)
            blocks[block] = tick
        dropped = [blocks.popitem(last=False)[0] for _ in range(len(blocks) - self.capacity)]
        running.add(tick)
        return tuple(ticks), added, dropped

    def finished(self, tick: int) -> None:
        """The request of this tick runs no more: its blocks have been computed, or never will be."""
        self._running.discard(tick)

    def forget(self, until: int) -> list[bytes]:
        """Drop all blocks last used at ``until`` or before; returns them."""
        dropped: list[bytes] = []
        while self._blocks:
            block = next(iter(self._blocks))
            if self._blocks[block] > until:
                break
            del self._blocks[block]
            dropped.append(block)
        return dropped

    def blocks(self) -> Iterable[bytes]:
        return self._blocks.keys()

    def check(self) -> None:
        assert len(self._blocks) <= self.capacity
        ticks = list(self._blocks.values())
        assert ticks == sorted(ticks), "an LRU's order is that of its ticks"


class Forks:
    """Which blocks many different requests went on from, over the last ``FORKS`` requests.

    A conversation's blocks are followed by its own next turn; the end of a system prompt by each conversation anew.
    """

    def __init__(self) -> None:
        self._recent: deque[bytes] = deque()
        self._counts: Counter[bytes] = Counter()

    def add(self, block: bytes) -> None:
        self._recent.append(block)
        self._counts[block] += 1
        if len(self._recent) > FORKS:
            oldest = self._recent.popleft()
            self._counts[oldest] -= 1
            if not self._counts[oldest]:
                del self._counts[oldest]

    def shared(self, prefix: Sequence[bytes], replicas: int) -> int:
        """How many blocks of the prefix lead up to where more requests part than one replica's share of them."""
        least = max(FEWEST_FORKS, len(self._recent) / replicas)
        counts = self._counts
        for depth in range(len(prefix), 0, -1):
            if counts.get(prefix[depth - 1], 0) >= least:
                return depth
        return 0

    def check(self) -> None:
        assert len(self._recent) <= FORKS
        assert Counter(self._recent) == self._counts


class Affinity:
    """Chooses among replicas, which are numbered from 0; a number is used again after its replica was removed.

    Not safe for threads. All costs are linear in the blocks of the request, whatever the caches hold.
    """

    def __init__(
        self,
        capacities: Sequence[int] = (),
        *,
        beta: float = BETA,
        bound: float = BOUND,
        excess: float = EXCESS,
    ) -> None:
        if beta < 0 or bound < 1 or excess < 0:
            raise ValueError("beta and excess are at least 0, and bound at least 1")
        self._beta, self._bound, self._excess = beta, bound, excess
        self._models: list[ReplicaModel | None] = []
        self._holders: dict[bytes, int] = {}  # block -> bit mask of the replicas that hold it
        self._forks = Forks()
        self._last: OrderedDict[bytes, int] = OrderedDict()  # conversation -> replica
        self._tick = 0
        for capacity in capacities:
            self.add(capacity)

    def add(self, capacity: int) -> int:
        """A new replica, empty, whose cache holds ``capacity`` blocks; returns its number."""
        model = ReplicaModel(capacity)
        if None in self._models:
            number = self._models.index(None)
            self._models[number] = model
            return number
        self._models.append(model)
        return len(self._models) - 1

    def remove(self, replica: int) -> None:
        """The replica is gone for good; one that is only unwell has None for its load."""
        self.forget(replica)
        self._models[replica] = None

    def forget(self, replica: int) -> None:
        """The replica's cache is empty: it was restarted or reset."""
        dropped = self._model(replica).forget(self._tick)
        self._release(dropped, replica)

    def held(self, replica: int) -> int:
        """How many blocks the replica is believed to hold."""
        return len(self._model(replica))

    def choose(
        self, prefix: Sequence[bytes], loads: Sequence[float | None], conversation: bytes | None = None
    ) -> Choice | None:
        """The replica with the most of the prefix, less ``beta`` for each block of work that waits there.

        ``loads``: by number, the blocks of prefix that remain to be computed for requests sent there (any unit of
        one block's work will do); None when the replica takes no requests. Changes nothing. None when none does.
        """
        models = self._models
        takers = [i for i, load in enumerate(loads) if load is not None and models[i] is not None]
        if not takers:
            return None
        overlaps = self._overlaps(prefix, takers)
        if len(takers) == 1:
            return Choice(takers[0], overlaps[takers[0]], "only")
        load = [each or 0.0 for each in loads]
        shared = self._forks.shared(prefix[: max(overlaps)], len(takers))
        last = self._last.get(conversation) if conversation is not None else None
        merits = {i: merit for i in takers if (merit := max(0, overlaps[i] - shared) + (i == last))}
        work = sum(load[i] for i in takers)
        limit = min(self._bound / len(takers), 1 / len(takers) + self._excess) * work + len(prefix)
        idlest = self._idlest(takers, load)

        def rank(i: int) -> tuple[float, float, int, int]:
            return self._beta * load[i] - merits.get(i, 0), load[i], self.held(i), i

        best = min((idlest, *(i for i in merits if load[i] <= limit)), key=rank)
        return Choice(best, overlaps[best], _why(best, merits, len(takers), overlaps[best] > shared))

    def place(self, replica: int, prefix: Sequence[bytes], conversation: bytes | None = None) -> Placement:
        """The request is sent to the replica, which will hold its prefix."""
        self._tick += 1
        self._note_fork(prefix)
        ticks, added, dropped = self._model(replica).use(prefix, self._tick)
        holders, bit = self._holders, 1 << replica
        for block in added:
            holders[block] = holders.get(block, 0) | bit
        self._release(dropped, replica)
        if conversation is not None:
            self._last[conversation] = replica
            self._last.move_to_end(conversation)
            if len(self._last) > CONVERSATIONS:
                self._last.popitem(last=False)
        return Placement(replica, self._tick, ticks)

    def settle(self, placement: Placement, cached: int | None) -> int:
        """The request ended; ``cached`` of its blocks were found by the server, None when that is not known.

        A block that was believed to be there and was not has been evicted, and with it, as servers evict the oldest
        first, all that were last used no later. Returns how many blocks the model forgot.
        """
        model = self._models[placement.replica]
        if model is None:
            return 0
        model.finished(placement.tick)
        if cached is None:
            return 0
        missed = next((tick for tick in placement.ticks[max(0, cached) :] if tick), 0)
        dropped = model.forget(missed)
        self._release(dropped, placement.replica)
        return len(dropped)

    def check(self) -> None:
        """Raise AssertionError unless the index and the models agree and all bounds hold."""
        holders: dict[bytes, int] = {}
        for number, model in enumerate(self._models):
            if model is not None:
                model.check()
                for block in model.blocks():
                    holders[block] = holders.get(block, 0) | 1 << number
        assert holders == self._holders
        assert len(self._last) <= CONVERSATIONS
        self._forks.check()

    def _model(self, replica: int) -> ReplicaModel:
        model = self._models[replica]
        if model is None:
            raise KeyError(replica)
        return model

    def _overlaps(self, prefix: Sequence[bytes], takers: Sequence[int]) -> list[int]:
        """Per number the blocks held from the beginning; few look-ups, however many replicas and blocks there are.

        Who holds a block holds all before it, so the depths where a holder drops out are found by bisection.
        """
        holders = self._holders
        overlaps = [0] * len(self._models)
        holding = sum(1 << i for i in takers)
        depth, blocks = 0, len(prefix)
        while holding:
            lacked = partial(_lacked, holders, holding)
            depth = bisect_left(prefix, True, lo=depth, key=lacked)
            still = holding & holders.get(prefix[depth], 0) if depth < blocks else 0
            if depth:
                _set(overlaps, holding & ~still, depth)
            holding = still
        return overlaps

    def _idlest(self, takers: Sequence[int], load: Sequence[float]) -> int:
        """The one with the least to do; among equals the one whose cache has most room, then the first."""
        least = min(load[i] for i in takers)
        return min((i for i in takers if load[i] == least), key=self.held)

    def _note_fork(self, prefix: Sequence[bytes]) -> None:
        """Remember the last known block of the prefix, when new ones follow it."""
        holders = self._holders
        known = bisect_left(prefix, True, key=lambda block: block not in holders)
        if 0 < known < len(prefix):
            self._forks.add(prefix[known - 1])

    def _release(self, blocks: Iterable[bytes], replica: int) -> None:
        holders, others = self._holders, ~(1 << replica)
        for block in blocks:
            left = holders[block] & others
            if left:
                holders[block] = left
            else:
                del holders[block]


def cached_blocks(cached_tokens: int, prompt_tokens: int, blocks: int) -> int:
    """How many of a prompt's ``blocks`` the server found, from the tokens it reported.

    Rounded up: our blocks need not end where the server's do, and it computes the last token of a full hit anew.
    """
    if prompt_tokens <= 0:
        return 0
    return min(blocks, math.ceil(max(0, cached_tokens) * blocks / prompt_tokens))


def _lacked(holders: dict[bytes, int], replicas: int, block: bytes) -> bool:
    """Whether one of the replicas does not hold the block."""
    return holders.get(block, 0) & replicas != replicas


def _set(overlaps: list[int], mask: int, depth: int) -> None:
    while mask:
        lowest = mask & -mask
        overlaps[lowest.bit_length() - 1] = depth
        mask ^= lowest


def _why(best: int, merits: dict[int, int], takers: int, by_prefix: bool) -> Why:
    most = max(merits.values(), default=0)
    if merits.get(best, 0) < most:
        return "busy"
    if not most or (len(merits) == takers and min(merits.values()) == most):
        return "load"
    return "prefix" if by_prefix else "conversation"
