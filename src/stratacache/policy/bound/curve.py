"""What the labels say about the verifier's probabilities: the chance of a wrong answer by bin, and how sure that is.

Three layers, each the prior of the next: the verifier's own calibration; one logistic line through the labels of all
scenes in a language (Platt, 1999), which learns from what was explored how far to trust what would be served; a beta
posterior for each bin of a scene, pooled until the chance of a wrong answer falls with p (isotonic regression).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from stratacache.policy.bound.scale import BINS, Bins, bin_of, centre, empty, lower_edge, probability

_WEIGHT = 30.0  # labels that the line is worth in a bin, at most: no line is trusted further than that
_LINE_DEVIATION = (1.0, 0.4)  # of the verifier's calibration, in log-odds: offset and slope
_LINE_FROM = bin_of(-1.0)  # what is far from being served says little about what is served
_DOUBTED = 0.2  # of the right answers' weight is left after an alarm
_MEMORY = 3000.0  # labels; older ones fade


class Labels(msgspec.Struct):
    """How often an answer in each bin was found right and wrong; newer labels count more."""

    right: Bins = msgspec.field(default_factory=empty)
    wrong: Bins = msgspec.field(default_factory=empty)

    def add(self, index: int, right: bool) -> None:
        counts = self.right if right else self.wrong
        counts[index] += 1.0
        if sum(self.right) + sum(self.wrong) > _MEMORY:
            self.scale(0.98)

    def doubt(self) -> None:
        """Forget most of what spoke for the answers, nothing of what spoke against them."""
        self.right = [n * _DOUBTED for n in self.right]

    def scale(self, factor: float) -> None:
        self.right = [n * factor for n in self.right]
        self.wrong = [n * factor for n in self.wrong]

    def merge(self, other: Labels) -> None:
        self.right = [a + b for a, b in zip(self.right, other.right, strict=True)]
        self.wrong = [a + b for a, b in zip(self.wrong, other.wrong, strict=True)]


class Curve(msgspec.Struct, frozen=True):
    """By bin: the chance of a wrong answer, never rising with p, and the standard deviation of its estimate."""

    risk: tuple[float, ...]
    doubt: tuple[float, ...]

    def at(self, odds: float) -> float:
        """The chance of a wrong answer between the bins' centres, linearly."""
        position = min(BINS - 1.0, max(0.0, (odds - centre(0)) / (centre(1) - centre(0))))
        below = int(position)
        above = min(BINS - 1, below + 1)
        return self.risk[below] + (position - below) * (self.risk[above] - self.risk[below])


def fit_curve(own: Labels, pool: Sequence[Labels]) -> Curve:
    """The curve of a scene with labels ``own``; ``pool`` are those of all scenes in its language."""
    offset, slope, (a, b, c) = _fit_line(pool)
    means, weights = [], []
    for index in range(BINS):
        x = _abscissa(index)
        wrong = probability(-(offset + slope * x))
        spread = wrong * (1 - wrong) * (a + 2 * b * x + c * x * x)
        prior = min(_WEIGHT, max(1.0, 1 / max(spread, 1e-9) - 1))
        weight = prior + own.right[index] + own.wrong[index]
        means.append((prior * wrong + own.wrong[index]) / weight)
        weights.append(weight)
    risk, total = _falling(means, weights)
    # A part of a wrong answer more than was seen: a bin that is served because it was lucky is still doubted.
    doubt = [math.sqrt((m + 0.2 / (n + 2)) / (n + 1)) for m, n in zip(risk, total, strict=True)]
    return Curve(tuple(risk), tuple(doubt))


def _abscissa(index: int) -> float:
    """The last bin has no upper end: its answers are no surer than where it begins."""
    return lower_edge(index) if index == BINS - 1 else centre(index)


def _fit_line(pool: Sequence[Labels]) -> tuple[float, float, tuple[float, float, float]]:
    """Offset and slope of the right answers' log-odds on the verifier's, and their covariance (Laplace)."""
    counts = []
    for index in range(_LINE_FROM, BINS):
        right = sum(labels.right[index] for labels in pool)
        wrong = sum(labels.wrong[index] for labels in pool)
        if right + wrong > 0:
            counts.append((_abscissa(index), right, right + wrong))
    precision0, precision1 = _LINE_DEVIATION[0] ** -2, _LINE_DEVIATION[1] ** -2
    offset, slope = 0.0, 1.0
    a, b, c = precision0, 0.0, precision1
    for _ in range(8):
        g0, g1 = -precision0 * offset, -precision1 * (slope - 1)
        a, b, c = precision0, 0.0, precision1
        for x, right, total in counts:
            p = probability(offset + slope * x)
            g0 += right - total * p
            g1 += (right - total * p) * x
            w = total * p * (1 - p)
            a, b, c = a + w, b + w * x, c + w * x * x
        determinant = a * c - b * b
        offset += max(-1.0, min(1.0, (c * g0 - b * g1) / determinant))
        slope += max(-0.3, min(0.3, (a * g1 - b * g0) / determinant))
    slope = max(slope, 0.05)
    return offset, slope, (c / determinant, -b / determinant, a / determinant)


def _falling(means: Sequence[float], weights: Sequence[float]) -> tuple[Bins, Bins]:
    """Pool adjacent violators: the nearest sequence that never rises, and each block's weight."""
    blocks: list[tuple[float, float, int]] = []
    for mean, weight in zip(means, weights, strict=True):
        block = (mean, weight, 1)
        while blocks and blocks[-1][0] < block[0]:
            m, w, n = blocks.pop()
            block = ((m * w + block[0] * block[1]) / (w + block[1]), w + block[1], n + block[2])
        blocks.append(block)
    risk: Bins = []
    total: Bins = []
    for mean, weight, size in blocks:
        risk += [mean] * size
        total += [weight] * size
    return risk, total
