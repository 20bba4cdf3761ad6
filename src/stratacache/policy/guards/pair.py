"""Two readings side by side: what only one has, and how alike the rest is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from stratacache.policy.guards.reading import Reading


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

    def likeness(self, drop_asked: Iterable[str] = (), drop_stored: Iterable[str] = ()) -> float:
        """Dice's coefficient (0 to 1) of the content units, leaving out one of each dropped unit; 1 for nothing left."""
        only = _size(self.only_asked, drop_asked) + _size(self.only_stored, drop_stored)
        common = (self.asked.content & self.stored.content).total()
        return 1.0 if not only else 2 * common / (2 * common + only)

    def others(self, drop_asked: Iterable[str] = (), drop_stored: Iterable[str] = ()) -> int:
        """How many content units stand on one side only, leaving out the dropped ones."""
        return _size(self.only_asked, drop_asked) + _size(self.only_stored, drop_stored)


def _size(units: Counter[str], drop: Iterable[str]) -> int:
    return (units - Counter(drop)).total()
