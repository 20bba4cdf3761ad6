"""The scale on which the verifier's probabilities are counted: bins of equal width in log-odds."""

from __future__ import annotations

import math

LOWEST = -3.0  # log-odds below which all is one bin; p = .047
WIDTH = 0.5
BINS = 24  # the last begins at log-odds 8; p = .99966

Bins = list[float]  # one number for each bin, from unlikely to certain


def empty() -> Bins:
    return [0.0] * BINS


def log_odds(p: float) -> float:
    """Of a probability, kept finite: beyond the scale's ends nothing is told apart."""
    p = min(max(p, 1e-6), 1 - 1e-6)
    return math.log(p / (1 - p))


def probability(odds: float) -> float:
    """The logistic function."""
    if odds >= 0:
        return 1 / (1 + math.exp(-odds))
    e = math.exp(odds)
    return e / (1 + e)


def bin_of(odds: float) -> int:
    return min(BINS - 1, max(0, math.floor((odds - LOWEST) / WIDTH) + 1))


def lower_edge(index: int) -> float:
    """Where bin ``index`` begins; the first begins nowhere, and is given its width."""
    return LOWEST + (index - 1) * WIDTH


def centre(index: int) -> float:
    return lower_edge(index) + WIDTH / 2
