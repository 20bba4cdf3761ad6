"""Two readings side by side: what only one has, and how alike the rest is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from stratacache.policy.guards.reading import Reading, Token


@dataclass(frozen=True)
class Pair:
    """The asked and the stored question. Every measure here is the same for both orders."""

    asked: Reading
    stored: Reading

    @cached_property
    def only_asked(self) -> Counter[str]:
        """Content units that the stored question lacks."""
        return self.asked.content - self.stored.content

    @cached_property
    def only_stored(self) -> Counter[str]:
        """Content units that the asked question lacks."""
        return self.stored.content - self.asked.content

    def differ_only_in(self, drop_asked: Iterable[str], drop_stored: Iterable[str]) -> bool:
        """True when, but for order, articles and particles, the two differ in nothing else than what is dropped."""
        left, right = Counter(drop_asked), Counter(drop_stored)
        asked, stored = self.asked.every, self.stored.every
        return asked - stored <= left and stored - asked <= right

    @cached_property
    def substituted(self) -> tuple[tuple[Token, ...], tuple[Token, ...]]:
        """The spans left in the middle when what both begin and end with is cut off; marks are left out."""
        asked = tuple(token for token in self.asked.tokens if token.kind != "mark")
        stored = tuple(token for token in self.stored.tokens if token.kind != "mark")
        start, most = 0, min(len(asked), len(stored))
        while start < most and asked[start].stem == stored[start].stem:
            start += 1
        end = 0
        while end < most - start and asked[-1 - end].stem == stored[-1 - end].stem:
            end += 1
        return asked[start : len(asked) - end], stored[start : len(stored) - end]

    def likeness(self, drop_asked: Iterable[str] = (), drop_stored: Iterable[str] = ()) -> float:
        """Dice's coefficient (0 to 1) of the content units without the dropped ones; 1 for nothing left."""
        only = _size(self.only_asked, drop_asked) + _size(self.only_stored, drop_stored)
        common = (self.asked.content & self.stored.content).total()
        return 1.0 if not only else 2 * common / (2 * common + only)

    def others(self, drop_asked: Iterable[str] = (), drop_stored: Iterable[str] = ()) -> int:
        """How many content units stand on one side only, leaving out the dropped ones."""
        return _size(self.only_asked, drop_asked) + _size(self.only_stored, drop_stored)


def _size(units: Counter[str], drop: Iterable[str]) -> int:
    return (units - Counter(drop)).total()
