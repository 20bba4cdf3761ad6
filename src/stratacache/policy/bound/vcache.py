"""The floor to beat: a decision boundary learned for each entry from the similarities that it was asked at.

The method of vCache (Schroeder et al., "vCache: Verified Semantic Prompt Caching", arXiv 2502.03771), written from its
description. It explores until the entry has four labels, knows the cosine alone, and learns nothing from one entry for
another; it is here as the baseline of the stream test and for operators without a verifier.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from statistics import NormalDist
from typing import Literal

import msgspec

Choice = Literal["serve", "explore"]

FEWEST = 6  # observations before anything is served, of which two are assumed
MOST = 256  # observations kept of an entry, the newest
_LEAST_SLOPE = 1e-6
_SATURATED = 9.2  # log-odds at which a fit of separate classes stops: a gradient of 1e-4
# Of the boundary's estimate when the classes separate; simulated by benchmarks/quality/bound_simulation.py.
_SEPARATE: tuple[tuple[int, float], ...] = ((6, 0.0354), (10, 0.0194), (20, 0.0131), (30, 0.0080))
_LEVELS = tuple((i + 0.5) / 50 for i in range(50))
_QUANTILES = tuple(NormalDist().inv_cdf(1 - level) for level in _LEVELS)


class Fit(msgspec.Struct, frozen=True):
    """A logistic curve of similarity: ``boundary`` is where right and wrong are equally likely."""

    slope: float
    boundary: float
    variance: float  # of the boundary's estimate


class VCache:
    """Serves or explores so that at most ``max_error`` of the requests get a wrong answer, similarities being i.i.d.

    Keeps at most ``most_entries`` entries, the ones used last.
    """

    def __init__(self, max_error: float, most_entries: int = 100_000) -> None:
        self._max_error = max_error
        self._most_entries = most_entries
        self._observed: OrderedDict[bytes, list[tuple[float, bool]]] = OrderedDict()
        self._fits: dict[bytes, Fit] = {}

    def decide(self, entry: bytes, similarity: float, draw: float) -> Choice:
        """Whether to serve ``entry``, the nearest neighbour; ``draw`` is uniform in [0, 1)."""
        observed = self._observed.get(entry)
        if observed is None or len(observed) + 2 < FEWEST:
            return "explore"
        self._observed.move_to_end(entry)
        fit = self._fits.get(entry)
        if fit is None:
            fit = self._fits[entry] = fit_boundary([(0.0, False), (1.0, True), *observed])
        return "explore" if draw <= explore_rate(fit, round(similarity, 3), self._max_error) else "serve"

    def observe(self, entry: bytes, similarity: float, right: bool) -> None:
        """A fresh answer showed whether ``entry`` would have served a question at ``similarity``."""
        observed = self._observed.setdefault(entry, [])
        observed.append((round(similarity, 3), right))
        del observed[:-MOST]
        self._observed.move_to_end(entry)
        self._fits.pop(entry, None)
        while len(self._observed) > self._most_entries:
            gone, _ = self._observed.popitem(last=False)
            self._fits.pop(gone, None)


def explore_rate(fit: Fit, similarity: float, max_error: float) -> float:
    """The least share of requests at ``similarity`` to explore, over all confidence levels of the boundary."""
    rate = 1.0
    deviation = math.sqrt(fit.variance)
    for level, quantile in zip(_LEVELS, _QUANTILES, strict=True):
        boundary = min(1.0, max(0.0, fit.boundary + quantile * deviation))
        right = (1 - level) * sigmoid(fit.slope * (similarity - boundary))
        rate = min(rate, 1 - max_error / (1 - right))
    return max(0.0, rate)


def fit_boundary(observed: list[tuple[float, bool]]) -> Fit:
    """Unpenalised logistic regression of right on similarity, with the variance of where it crosses one half."""
    highest_wrong = max(s for s, right in observed if not right)
    lowest_right = min(s for s, right in observed if right)
    if highest_wrong <= lowest_right:
        slope = 2 * _SATURATED / max(lowest_right - highest_wrong, 1e-3)
        return Fit(slope, (highest_wrong + lowest_right) / 2, separate_variance(len(observed)))
    intercept, slope, information = _newton(observed)
    slope = max(slope, _LEAST_SLOPE)
    boundary = min(1.0, max(0.0, -intercept / slope))
    return Fit(slope, boundary, _delta_variance(intercept, slope, information, len(observed)))


def separate_variance(count: int) -> float:
    """Between the simulated counts 1/n is interpolated; beyond them the last falls as 1/n."""
    if count <= _SEPARATE[0][0]:
        return _SEPARATE[0][1]
    for (low, before), (high, after) in itertools.pairwise(_SEPARATE):
        if count <= high:
            share = (1 / low - 1 / count) / (1 / low - 1 / high)
            return before + share * (after - before)
    last, variance = _SEPARATE[-1]
    return variance * last / count


_Information = tuple[float, float, float]  # of (intercept, slope): the upper triangle of XᵀWX


def _newton(observed: list[tuple[float, bool]]) -> tuple[float, float, _Information]:
    """Maximum likelihood of classes that overlap, where it is finite; halves a step that does not improve."""
    at = (0.0, 1.0)
    likelihood = _likelihood(observed, at)
    for _ in range(50):
        gradient, information = _derivatives(observed, at)
        if abs(gradient[0]) + abs(gradient[1]) < 1e-8:
            break
        a, b, c = information
        determinant = max(a * c - b * b, 1e-12)
        step = (
            (c * gradient[0] - b * gradient[1]) / determinant,
            (a * gradient[1] - b * gradient[0]) / determinant,
        )
        size = 1.0
        while size > 1e-6:
            there = (at[0] + size * step[0], at[1] + size * step[1])
            better = _likelihood(observed, there)
            if better > likelihood:
                break
            size /= 2
        else:
            break
        at, likelihood = there, better
    return at[0], at[1], _derivatives(observed, at)[1]


def _likelihood(observed: list[tuple[float, bool]], at: tuple[float, float]) -> float:
    total = 0.0
    for s, right in observed:
        odds = at[0] + at[1] * s
        signed = odds if right else -odds
        total -= max(0.0, -signed) + math.log1p(math.exp(-abs(signed)))
    return total


def _derivatives(
    observed: list[tuple[float, bool]], at: tuple[float, float]
) -> tuple[tuple[float, float], _Information]:
    g0 = g1 = a = b = c = 0.0
    for s, right in observed:
        p = sigmoid(at[0] + at[1] * s)
        g0 += right - p
        g1 += (right - p) * s
        weight = p * (1 - p)
        a += weight
        b += weight * s
        c += weight * s * s
    return (g0, g1), (a, b, c)


def _delta_variance(intercept: float, slope: float, information: _Information, count: int) -> float:
    """The delta method on -intercept/slope; the separate classes' variance where the information is none."""
    a, b, c = information
    determinant = a * c - b * b
    if determinant < 1e-12:
        return separate_variance(count)
    d0, d1 = -1 / slope, intercept / slope**2
    variance = (d0 * d0 * c - 2 * d0 * d1 * b + d1 * d1 * a) / determinant
    return min(variance, 1e12)


def sigmoid(x: float) -> float:
    if x >= 0:
        return 1 / (1 + math.exp(-x))
    e = math.exp(x)
    return e / (1 + e)
