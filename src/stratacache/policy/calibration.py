"""From a verifier's logit to a probability: Platt's sigmoid, fitted for each language; pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

OTHER = "*"
"""Stands for every language without a fit of its own, and for pairs of two languages."""


class Sigmoid(msgspec.Struct, frozen=True):
    """``probability = 1 / (1 + exp(-(a * logit + b)))`` (Platt, 1999); ``a`` > 0, so that the order of pairs stays."""

    a: float
    b: float

    def probability(self, logit: float) -> float:
        """In [0, 1]; NaN for a ``logit`` that is NaN."""
        x = self.a * logit + self.b
        # Each branch has its exponent on the side where exp() cannot overflow.
        if x >= 0:
            return 1 / (1 + math.exp(-x))
        power = math.exp(x)
        return power / (1 + power)


class Calibration(msgspec.Struct, frozen=True):
    """The sigmoids by language tag (``policy.language``).

    Raises ValueError unless all of them are usable and ``OTHER`` is there.
    """

    languages: Mapping[str, Sigmoid]

    def __post_init__(self) -> None:
        if OTHER not in self.languages:
            raise ValueError(f"there is no calibration for other languages, {OTHER!r}")
        for language, fit in self.languages.items():
            if not (0 < fit.a < math.inf and math.isfinite(fit.b)):
                raise ValueError(
                    f"the calibration for {language!r} must have a finite b and a finite a above 0"
                )

    def probability(self, logit: float, first: str, second: str) -> float:
        """For a pair of questions in the languages ``first`` and ``second``."""
        fit = self.languages.get(first) if first == second else None
        return (fit or self.languages[OTHER]).probability(logit)
