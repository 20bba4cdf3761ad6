"""The account of one bound: requests, what they offered, what was served, and how many errors that may have been.

The bound is kept by the account, not by a threshold: an upper bound on the errors of everything served, by what is
known *now* about each bin, stays below ``max_error`` times the requests. The threshold spends the account on the
surest answers: it is the lowest that the traffic so far, going on for as long again, could afford.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec

from stratacache.policy.bound.curve import Curve
from stratacache.policy.bound.scale import BINS, WIDTH, Bins, bin_of, empty, lower_edge

MARGIN = 3.0  # standard deviations between the expected errors and the bound, which holds at all times and not at one
_MEMORY = 100.0  # allowed errors after which the past fades: each account decides by its last 100 / max_error requests
_ASSUMED = 50.0  # requests of assumed traffic, offering answers evenly over the bins
_LEAST_CHECKED, _MOST_CHECKED = 0.02, 0.20  # share of the hits
_TOLERATED = 0.20  # of the allowed errors may be doubt about a bin before its hits are checked most


class Errors(NamedTuple):
    """How many errors hits may have been: expected, the deviation by doubt about the curve, the variance by chance.

    Doubts add up: what misleads the curve in one bin misleads it in the next.
    """

    mean: float
    doubt: float
    chance: float

    @property
    def upper(self) -> float:
        return self.mean + MARGIN * math.sqrt(self.doubt * self.doubt + self.chance)

    def plus(self, count: float, risk: float, doubt: float) -> Errors:
        return Errors(self.mean + count * risk, self.doubt + count * doubt, self.chance + count * risk)


class Ledger(msgspec.Struct):
    """Counts of a scene and risk; requests and hits fade together, so that their ratio is of the recent past.

    ``settled`` are the errors of hits before the last alarm, by what was believed then: a change of
    the traffic does not make yesterday's answers wrong.
    """

    requests: float = 0.0
    offered: Bins = msgspec.field(default_factory=empty)
    served: Bins = msgspec.field(default_factory=empty)
    suspect: Bins = msgspec.field(default_factory=empty)  # served since the drift detector last rested
    settled: list[float] = msgspec.field(default_factory=lambda: [0.0, 0.0, 0.0])
    hits: float = 0.0
    checked: float = 0.0  # hits, weighted by the inverse of the probability to be checked
    checked_squares: float = 0.0
    checked_wrong: float = 0.0  # weighted too
    reported_wrong: float = 0.0  # by feedback and review
    labels: int = 0

    def look(self, max_error: float) -> None:
        self.requests += 1
        span = _MEMORY / max_error if max_error > 0 else math.inf
        if self.requests > span:
            self.fade((span - span / 64) / self.requests)

    def fade(self, factor: float) -> None:
        for name in ("requests", "hits", "checked", "checked_squares", "checked_wrong", "reported_wrong"):
            setattr(self, name, getattr(self, name) * factor)
        self.offered = [n * factor for n in self.offered]
        self.served = [n * factor for n in self.served]
        self.suspect = [n * factor for n in self.suspect]
        self.settled = [n * factor for n in self.settled]

    def serve(self, odds: float) -> None:
        self.hits += 1
        index = bin_of(odds)
        self.served[index] += 1
        self.suspect[index] += 1

    def settle(self, curve: Curve) -> None:
        """Close the account of what was served before the traffic changed."""
        mean, doubt, chance = self.settled
        for index in range(BINS):
            past = max(0.0, self.served[index] - self.suspect[index])
            mean += past * curve.risk[index]
            doubt += past * curve.doubt[index]
            chance += past * curve.risk[index]
        self.settled = [mean, doubt, chance]
        self.served = list(self.suspect)

    def merge(self, other: Ledger) -> None:
        for name in self.__struct_fields__:
            mine, theirs = getattr(self, name), getattr(other, name)
            setattr(
                self,
                name,
                [a + b for a, b in zip(mine, theirs, strict=True)]
                if isinstance(mine, list)
                else mine + theirs,
            )

    def errors(self, curve: Curve) -> Errors:
        """Of everything served, by what is known now."""
        mean, doubt, chance = self.settled
        for count, risk, deviation in zip(self.served, curve.risk, curve.doubt, strict=True):
            mean += count * risk
            doubt += count * deviation
            chance += count * risk
        return Errors(mean, doubt, chance)

    def affords(self, odds: float, risk: float, curve: Curve, max_error: float) -> bool:
        """Whether one more answer leaves the account within its bound."""
        more = self.errors(curve).plus(1.0, risk, curve.doubt[bin_of(odds)])
        return more.upper <= max_error * self.requests

    def check_rate(self, odds: float, curve: Curve, max_error: float) -> float:
        """The share of such hits to check by a fresh answer: more the more the bin's doubt weighs in the account."""
        index = bin_of(odds)
        doubt = MARGIN * (self.served[index] + 1) * curve.doubt[index]
        share = doubt / max(_TOLERATED * max_error * self.requests, 1e-9)
        return min(_MOST_CHECKED, max(_LEAST_CHECKED, _MOST_CHECKED * share))

    def threshold(self, curve: Curve, max_error: float) -> float:
        """The lowest log-odds that can be served from now on within the bound; infinite when none can."""
        if max_error <= 0:
            return math.inf
        ahead = max(self.requests, 2 / max_error)
        errors = self.errors(curve)
        allowed, rate = max_error * (self.requests + ahead), 0.0
        for index in reversed(range(BINS)):
            share = (self.offered[index] + _ASSUMED / BINS) / (self.requests + _ASSUMED)
            risk, doubt = curve.risk[index], curve.doubt[index]
            part = _affordable(errors, ahead * share, risk, doubt, allowed)
            part = min(part, (max_error - rate) / max(share * risk, 1e-12))
            if part < 1:
                return lower_edge(index) + (1 - max(0.0, part)) * WIDTH
            rate += share * risk
            errors = errors.plus(ahead * share, risk, doubt)
        return -math.inf


def _affordable(errors: Errors, count: float, risk: float, doubt: float, allowed: float) -> float:
    """The largest part in [0, 1] of ``count`` more hits of that risk that stays within ``allowed``; bisected."""
    if errors.plus(count, risk, doubt).upper <= allowed:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(7):
        middle = (low + high) / 2
        fits = errors.plus(middle * count, risk, doubt).upper <= allowed
        low, high = (middle, high) if fits else (low, middle)
    return low
