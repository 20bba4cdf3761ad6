"""What is known of each entry: one that was wrong is distrusted, one confirmed where doubt was possible is trusted."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator

_SHAPE = 0.5  # of the gamma prior of an entry's factor on the odds of a wrong answer, whose mean is 1
_LEAST = 0.3  # no entry is trusted more than that


class Entries:
    """For each entry the wrong answers it gave and those it was expected to give; at most ``most``, the ones used last.

    The factor is the posterior mean of a gamma-Poisson model: (shape + wrong) / (shape + expected). A wrong answer that
    was expected anyway says little about the entry; so does a right one that was never in doubt.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._counts: OrderedDict[bytes, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._counts)

    def shift(self, entry: bytes) -> float:
        """What to add to the log-odds of an answer by ``entry``."""
        counts = self._counts.get(entry)
        return 0.0 if counts is None else -math.log(max(_LEAST, (_SHAPE + counts[0]) / (_SHAPE + counts[1])))

    def counts(self, entry: bytes) -> tuple[float, float]:
        return self._counts.get(entry, (0.0, 0.0))

    def add(self, entry: bytes, wrong: float, expected: float) -> None:
        """Count an answer; one that was wrong never makes the entry more trusted, however expected it was."""
        before = self._counts.pop(entry, (0.0, 0.0))
        if wrong:
            expected = min(expected, wrong * (_SHAPE + before[1]) / (_SHAPE + before[0]))
        self._keep(entry, before[0] + wrong, before[1] + expected)

    def merge(self, entry: bytes, wrong: float, expected: float) -> None:
        """Add another process's counts of the entry."""
        before = self._counts.pop(entry, (0.0, 0.0))
        self._keep(entry, before[0] + wrong, before[1] + expected)

    def _keep(self, entry: bytes, wrong: float, expected: float) -> None:
        self._counts[entry] = (wrong, expected)
        while len(self._counts) > self._most:
            self._counts.popitem(last=False)

    def forget(self, entry: bytes) -> None:
        self._counts.pop(entry, None)

    def items(self) -> Iterator[tuple[bytes, tuple[float, float]]]:
        return iter(self._counts.items())
