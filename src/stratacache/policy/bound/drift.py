"""Detectors of a change for the worse: likelihood ratios that begin anew whenever they favour no change.

Each statistic is an e-detector (Shin, Ramdas, Rinaldo, "E-detectors: a nonparametric framework for sequential change
detection", 2023, in its CUSUM form): while nothing is worse than believed, its expected number of steps to a false
alarm is at least ``exp(LIMIT)``; in practice ten times that.
"""

from __future__ import annotations

import math

import msgspec

LIMIT = 9.2  # ln 10,000
_WORSE = (2.5, 10.0)  # factors on the odds of a wrong answer that are tested for
_FADING = 60  # labels after an alarm in which caution fades, if none speaks against it
CAUTION = math.log(3)  # taken off every answer's log-odds at an alarm


class Drift(msgspec.Struct):
    """``levels``: the evidence that labels come wrong more often than the curve says; ``excess`` that the errors of
    checked hits exceed the bound, both in nats. ``cautious`` counts down the labels until caution is over."""

    levels: list[float] = msgspec.field(default_factory=lambda: [0.0] * len(_WORSE))
    excess: float = 0.0
    cautious: int = 0

    @property
    def resting(self) -> bool:
        return max(self.levels) <= 0.0

    @property
    def caution(self) -> float:
        return CAUTION * self.cautious / _FADING

    def label(self, risk: float, right: bool) -> bool:
        """Count a label whose answer was thought wrong with probability ``risk``; True when that is an alarm."""
        risk = min(max(risk, 1e-4), 1 - 1e-4)
        for at, factor in enumerate(_WORSE):
            worse = risk * factor / (1 - risk + risk * factor)
            gain = math.log((1 - worse) / (1 - risk)) if right else math.log(worse / risk)
            self.levels[at] = max(0.0, self.levels[at] + gain)
        if self.cautious and max(self.levels) < LIMIT / 2:
            self.cautious -= 1
        if max(self.levels) < LIMIT:
            return False
        self.alarm()
        return True

    def request(self, max_error: float) -> None:
        """A bet against the bound costs a little with every request ..."""
        self.excess = max(0.0, self.excess + math.log1p(-_stake(max_error) * max_error))

    def checked(self, weight: float, right: bool, max_error: float) -> bool:
        """... and wins with every wrong answer among the checked hits; True when that is an alarm."""
        if not right:
            self.excess += math.log1p(_stake(max_error) * weight)
        if self.excess < LIMIT:
            return False
        self.alarm()
        return True

    def alarm(self) -> None:
        self.levels = [0.0] * len(_WORSE)
        self.excess = 0.0
        self.cautious = _FADING

    def merge(self, other: Drift) -> None:
        self.levels = [max(a, b) for a, b in zip(self.levels, other.levels, strict=True)]
        self.excess = max(self.excess, other.excess)
        self.cautious = max(self.cautious, other.cautious)


def _stake(max_error: float) -> float:
    """Of the wealth, for one unit of weighted error: best for checks of one hit in ten at three times the bound."""
    return min(0.2, 0.5 / max(max_error, 1e-6))
