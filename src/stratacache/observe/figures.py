"""What one process has counted: plain values that can be sent to another one and added up."""

from __future__ import annotations

from bisect import bisect_left

import msgspec

BUCKETS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
"""Upper bounds in seconds: a hit is well under a millisecond, a long answer takes a minute."""

Row = tuple[str, str, str, str, str, str]
"""endpoint, model, scene, outcome, tier, reason"""


class Histogram(msgspec.Struct):
    """Counts of seconds per bucket of :data:`BUCKETS`, and their sum."""

    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    sum: float = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.sum += seconds

    def add(self, other: Histogram) -> None:
        self.counts = [mine + more for mine, more in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum

    def quantile(self, q: float) -> float | None:
        """The upper bound, in seconds, of the bucket that holds quantile ``q``; None without data."""
        total = sum(self.counts)
        if total == 0:
            return None
        below = 0
        for bound, count in zip((*BUCKETS, float("inf")), self.counts, strict=True):
            below += count
            if below >= q * total:
                return bound
        return float("inf")

    def cumulative(self) -> list[tuple[str, float]]:
        """Prometheus buckets: (le, count of values at or under it)."""
        below = 0
        rows = []
        for bound, count in zip((*map(str, BUCKETS), "+Inf"), self.counts, strict=True):
            below += count
            rows.append((bound, float(below)))
        return rows


class Figures(msgspec.Struct):
    """What one process has counted, or several together.

    ``counters`` by the names of ``names.COUNTERS`` and label values joined by spaces; ``amounts`` likewise, in US
    dollars. ``levels`` are the gauges that each process has of its own, by name and label value.
    """

    requests: dict[Row, int] = {}
    histograms: dict[str, dict[str, Histogram]] = {}
    counters: dict[str, dict[str, int]] = {}
    amounts: dict[str, dict[str, float]] = {}
    levels: dict[str, dict[str, float]] = {}
