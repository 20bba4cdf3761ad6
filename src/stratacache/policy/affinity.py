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
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from stratacache.policy.replica_model import ReplicaModel

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


@dataclass(slots=True)
class Placement:
    """A request that was sent; give it to ``Affinity.settle`` once, however the request ended.

    ``ticks`` tells for each believed block when it was last used, 0 while another request that computes it runs; it is
    known once the model has caught up.
    """

    replica: int
    tick: int
    ticks: tuple[int, ...] = ()


class Forks:
    """Which blocks many different requests went on from, over the last ``FORKS`` requests.

    A conversation's blocks are followed by its own next turn; the end of a system prompt by each conversation anew.
    """

    def __init__(self) -> None:
        self._recent: deque[bytes] = deque()
        self._counts: Counter[bytes] = Counter()
        self._often: dict[bytes, int] = {}  # those that count often enough for any fleet -> depth

    def add(self, prefix: Sequence[bytes], depth: int) -> None:
        """A request went on from the prefix's first ``depth`` blocks."""
        block = prefix[depth - 1]
        self._recent.append(block)
        self._counts[block] += 1
        if self._counts[block] >= FEWEST_FORKS:
            self._often[block] = depth
        if len(self._recent) > FORKS:
            self._forget(self._recent.popleft())

    def _forget(self, block: bytes) -> None:
        self._counts[block] -= 1
        if self._counts[block] < FEWEST_FORKS:
            self._often.pop(block, None)
        if not self._counts[block]:
            del self._counts[block]

    def shared(self, prefix: Sequence[bytes], depth: int, replicas: int) -> int:
        """How many of the prefix's first ``depth`` blocks lead up to where more requests part than one replica's share
        of them."""
        least = max(FEWEST_FORKS, len(self._recent) / replicas)
        counts = self._counts
        return max(
            (
                place
                for block, place in self._often.items()
                if place <= depth and prefix[place - 1] == block and counts[block] >= least
            ),
            default=0,
        )

    def check(self) -> None:
        assert len(self._recent) <= FORKS
        assert Counter(self._recent) == self._counts
        assert set(self._often) == {block for block, count in self._counts.items() if count >= FEWEST_FORKS}


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
        self._pending: list[tuple[Placement, Sequence[bytes]]] = []
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
        self.catch_up()
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
        one block's work will do); None when the replica takes no requests. None when none does. It sees all that was
        placed, and changes nothing that another call could see.
        """
        self.catch_up()
        models = self._models
        takers = [i for i, load in enumerate(loads) if load is not None and models[i] is not None]
        if not takers:
            return None
        holding = self._holding(prefix, sum(map((1).__lshift__, takers)))
        if len(takers) == 1:
            return Choice(takers[0], _overlap(holding, takers[0]), "only")
        shared = self._forks.shared(prefix, holding[-1][0] if holding else 0, len(takers))
        merits = _merits(holding, shared)
        last = self._last.get(conversation) if conversation is not None else None
        if last in takers:
            merits[last] = merits.get(last, 0) + 1
        load = [each or 0.0 for each in loads]
        work = sum([load[i] for i in takers])
        limit = min(self._bound / len(takers), 1 / len(takers) + self._excess) * work + len(prefix)

        def rank(i: int) -> tuple[float, float, int, int]:
            return self._beta * load[i] - merits.get(i, 0), load[i], self.held(i), i

        idlest = self._idlest(takers, load)
        best = min((idlest, *(i for i in merits if load[i] <= limit)), key=rank)
        overlap = _overlap(holding, best)
        return Choice(best, overlap, _why(best, merits, len(takers), overlap > shared))

    def place(self, replica: int, prefix: Sequence[bytes], conversation: bytes | None = None) -> Placement:
        """The request is sent to the replica, which will hold its prefix.

        Only a note is made: ``catch_up`` does the work, which the request need not wait for.
        """
        self._tick += 1
        placement = Placement(replica, self._tick)
        self._pending.append((placement, prefix))
        if conversation is not None:
            self._last[conversation] = replica
            self._last.move_to_end(conversation)
            if len(self._last) > CONVERSATIONS:
                self._last.popitem(last=False)
        return placement

    def catch_up(self) -> None:
        """Enter what was placed into the models. Every call that depends on it does so itself: this one only says
        when."""
        pending, self._pending = self._pending, []
        for placement, prefix in pending:
            self._enter(placement, prefix)

    def _enter(self, placement: Placement, prefix: Sequence[bytes]) -> None:
        holders, replica = self._holders, placement.replica
        known = bisect_left(prefix, True, key=lambda block: block not in holders)
        if 0 < known < len(prefix):
            self._forks.add(prefix, known)
        placement.ticks, added, dropped = self._model(replica).use(prefix, placement.tick)
        bit = 1 << replica
        elsewhere = max(0, known - len(placement.ticks))  # of those that were added, others hold these
        for block in added[:elsewhere]:
            holders[block] |= bit
        holders.update(dict.fromkeys(added[elsewhere:], bit))
        self._release(dropped, replica)

    def settle(self, placement: Placement, cached: int | None) -> int:
        """The request ended; ``cached`` of its blocks were found by the server, None when that is not known.

        A block that was believed to be there and was not has been evicted, and with it, as servers evict the oldest
        first, all that were last used no later. Returns how many blocks the model forgot.
        """
        self.catch_up()
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
        self.catch_up()
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

    def _holding(self, prefix: Sequence[bytes], takers: int) -> list[tuple[int, int]]:
        """How many blocks of the prefix are held, and the bit mask of those that hold exactly so many; fewest first.

        Who holds a block holds all before it, so the depths where a holder drops out are found by bisection: few
        look-ups, however many replicas and blocks there are. Who holds nothing is left out.
        """
        holders = self._holders
        found = []
        depth, blocks = 0, len(prefix)
        while takers:
            depth = bisect_left(prefix, True, lo=depth, key=partial(_lacked, holders, takers))
            still = takers & holders.get(prefix[depth], 0) if depth < blocks else 0
            if depth:
                found.append((depth, takers & ~still))
            takers = still
        return found

    def _idlest(self, takers: Sequence[int], load: Sequence[float]) -> int:
        """The one with the least to do; among equals the one whose cache has most room, then the first."""
        least = min(load[i] for i in takers)
        return min((i for i in takers if load[i] == least), key=self.held)

    def _release(self, blocks: Iterable[bytes], replica: int) -> None:
        holders, others = self._holders, ~(1 << replica)
        for block in blocks:
            left = holders.pop(block, 0) & others
            if left:
                holders[block] = left


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


def _overlap(holding: Sequence[tuple[int, int]], replica: int) -> int:
    return next((depth for depth, mask in holding if mask >> replica & 1), 0)


def _merits(holding: Sequence[tuple[int, int]], shared: int) -> dict[int, int]:
    """By replica, the blocks that it holds past those that everybody shares."""
    merits = {}
    for depth, mask in holding:
        left = mask if depth > shared else 0
        while left:
            lowest = left & -left
            merits[lowest.bit_length() - 1] = depth - shared
            left ^= lowest
    return merits


def _why(best: int, merits: dict[int, int], takers: int, by_prefix: bool) -> Why:
    most = max(merits.values(), default=0)
    if merits.get(best, 0) < most:
        return "busy"
    if not most or (len(merits) == takers and min(merits.values()) == most):
        return "load"
    return "prefix" if by_prefix else "conversation"
