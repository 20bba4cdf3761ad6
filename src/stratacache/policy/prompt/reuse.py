"""How often prefixes come again, and how soon: bounded statistics that the planner of breakpoints asks.

A prefix is known by its digest. Prefixes that end where something can be marked have a :class:`Node`; of those between
only the digest is kept, so that a later request shows where it branches off. Chances of prefixes that were seen once
come from what became of others of their kind (:class:`Tally`). Pure: the caller says what time it is.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Literal

MAX_NODES = 65_536
MAX_TALLIES = 4_096
MAX_INNER = 256
"""Positions that are kept of what a request adds, at its beginning and at its end."""

HALVE_AT = 200.0
"""Counts of a tally are halved from there on: habits change."""
YOUNG_SECONDS, MAX_YOUNG = 30.0, 16
"""A prefix this young has not had its time yet, and counts only as one of more than so many."""
OWN_STRENGTH, KIND_STRENGTH = 2.0, 4.0
"""A prior's weight in observations: of the kind for one prefix, of the general guess for the kind."""

Kind = Literal["shared", "branch", "opening", "continued"]
PRIOR: dict[Kind, float] = {"shared": 0.6, "branch": 0.6, "opening": 0.5, "continued": 0.7}
"""The chance that a prefix comes again within the life of an entry, before anything was seen: tools and system, a point
where requests part, the end of a first turn, and of a later one."""


class Tally:
    """How many prefixes of one kind came again within each life of an entry, of how many."""

    __slots__ = ("_young", "again", "count")

    def __init__(self, lives: int) -> None:
        self.count = 0.0
        self.again = [0.0] * lives
        self._young: deque[float] = deque(maxlen=MAX_YOUNG)

    def begin(self, now: float) -> None:
        """One more prefix was seen at its first time."""
        self.count += 1
        self._young.append(now)
        if self.count > HALVE_AT:
            self.count /= 2
            self.again = [n / 2 for n in self.again]

    def follow(self, gap: float, lives: Sequence[float]) -> None:
        """One of them came again after ``gap`` seconds; ``lives`` are those of entries, in seconds."""
        self.again = [n + (gap <= life) for n, life in zip(self.again, lives, strict=True)]

    def chances(self, prior: Sequence[float], now: float, strength: float) -> list[float]:
        """For each life, how probable it is that a prefix comes again within it."""
        young = 0
        for then in reversed(self._young):
            if now - then >= YOUNG_SECONDS:
                break
            young += 1
        settled = max(self.count - young, *self.again)
        return [
            min(1.0, (n + strength * p) / (settled + strength))
            for n, p in zip(self.again, prior, strict=True)
        ]


class Node:
    """One prefix: when it was last needed, how often it came again, and what of it is believed to be cached."""

    __slots__ = ("again", "count", "family", "kind", "last", "life", "until")

    def __init__(self, kind: Kind, family: bytes, now: float, lives: int) -> None:
        self.kind: Kind = kind
        self.family = family
        self.last = now
        self.count = 0.0
        self.again = [0.0] * lives
        self.until = -math.inf
        self.life = 0.0

    def follow(self, now: float, lives: Sequence[float]) -> float:
        """It is needed again; returns the seconds since the last time."""
        gap = now - self.last
        self.last = now
        self.count += 1
        self.again = [n + (gap <= life) for n, life in zip(self.again, lives, strict=True)]
        if self.count > HALVE_AT:
            self.count /= 2
            self.again = [n / 2 for n in self.again]
        return gap

    def chances(self, kind: Sequence[float]) -> list[float]:
        """As :meth:`Tally.chances`; ``kind`` are those of its kind."""
        return [
            (n + OWN_STRENGTH * p) / (self.count + OWN_STRENGTH)
            for n, p in zip(self.again, kind, strict=True)
        ]

    def wrote(self, now: float, life: float) -> None:
        """An entry of it was written, to live ``life`` seconds."""
        self.life, self.until = life, now + life


class Reuse:
    """The statistics of all prefixes. Bounded: the least recently used are forgotten. Not safe across threads."""

    def __init__(self, max_nodes: int = MAX_NODES) -> None:
        self._max_nodes = max_nodes
        self._nodes: OrderedDict[bytes, Node | None] = OrderedDict()
        self._tallies: OrderedDict[tuple[Kind, bytes], Tally] = OrderedDict()
        self._rates: OrderedDict[bytes, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._nodes)

    def longest(self, digests: Sequence[bytes]) -> int:
        """The last position whose prefix was seen before, -1 for none. Does not mutate."""
        nodes = self._nodes
        for i in range(len(digests) - 1, -1, -1):
            if digests[i] in nodes:
                return i
        return -1

    def node(self, digest: bytes) -> Node | None:
        """What is known of a prefix that something could end at. Does not mutate."""
        return self._nodes.get(digest)

    def chances(
        self, kind: Kind, digest: bytes, scope: bytes, family: bytes, now: float, lives: int
    ) -> list[float]:
        """The chances, for each of ``lives``, that the prefix comes again within it. Does not mutate.

        ``scope`` is whose traffic it is; ``family`` the prefix of tools and system that it goes on from.
        """
        guess: Sequence[float] = [PRIOR[kind]] * lives
        for place in (scope, scope + family) if kind in ("opening", "continued") else (scope,):
            tally = self._tallies.get((kind, place))
            if tally is not None:
                guess = tally.chances(guess, now, KIND_STRENGTH)
        node = self._nodes.get(digest)
        return node.chances(guess) if node is not None else list(guess)

    def begin(
        self, kind: Kind, digest: bytes, scope: bytes, family: bytes, now: float, lives: Sequence[float]
    ) -> None:
        """A prefix is needed, for the first time or again."""
        node = self._nodes.get(digest)
        if node is None:
            self._nodes[digest] = Node(kind, family, now, len(lives))
            for tally in self._tallies_of(kind, scope, family, len(lives)):
                tally.begin(now)
        else:
            first = node.count == 0
            gap = node.follow(now, lives)
            if first:
                for tally in self._tallies_of(node.kind, scope, node.family, len(lives)):
                    tally.follow(gap, lives)
        self._nodes.move_to_end(digest)
        while len(self._nodes) > self._max_nodes:
            self._nodes.popitem(last=False)

    def between(self, digests: Sequence[bytes]) -> None:
        """Prefixes that nothing ends at so far; of very many the first and the last."""
        if len(digests) > 2 * MAX_INNER:
            digests = [*digests[:MAX_INNER], *digests[-MAX_INNER:]]
        for digest in digests:
            self._nodes.setdefault(digest, None)

    def rate(self, family: bytes, now: float) -> float:
        """Requests a minute of late that began with ``family``, and one more. Does not mutate."""
        then, level = self._rates.get(family, (now, 0.0))
        return level * math.exp(min(0.0, then - now) / 60.0) + 1.0

    def arrive(self, family: bytes, now: float) -> None:
        """A request that begins with ``family`` is sent."""
        level = self.rate(family, now)
        self._rates.pop(family, None)
        self._rates[family] = (now, level)
        if len(self._rates) > MAX_TALLIES:
            self._rates.popitem(last=False)

    def check(self) -> None:
        """Raise AssertionError when something is over its bound."""
        assert len(self._nodes) <= self._max_nodes + 2 * MAX_INNER
        assert len(self._tallies) <= MAX_TALLIES
        assert len(self._rates) <= MAX_TALLIES

    def _tallies_of(self, kind: Kind, scope: bytes, family: bytes, lives: int) -> list[Tally]:
        places = (scope, scope + family) if kind in ("opening", "continued") else (scope,)
        found = []
        for place in places:
            key = (kind, place)
            tally = self._tallies.get(key)
            if tally is None:
                tally = self._tallies[key] = Tally(lives)
            self._tallies.move_to_end(key)
            found.append(tally)
        while len(self._tallies) > MAX_TALLIES:
            self._tallies.popitem(last=False)
        return found
