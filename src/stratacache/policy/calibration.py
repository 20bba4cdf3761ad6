"""From a verifier's logit, and the questions' cosine, to a probability, fitted for each language; pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

OTHER = "*"
"""Stands for every language without a fit of its own, and for pairs of two languages."""


class Sigmoid(msgspec.Struct, frozen=True, omit_defaults=True):
    """``probability = 1 / (1 + exp(-(a * logit + b - c * max(0, near - cosine))))``: Platt, 1999, with a second signal.

    ``a`` > 0, so that the order of logits stays. ``c`` >= 0: what is further apart than ``near`` is less probable.
    Nearer pairs gain nothing: there the changed question is as near as the reworded one.
    """

    a: float
    b: float
    c: float = 0.0
    near: float = 0.0

    def probability(self, logit: float, cosine: float = 1.0) -> float:
        """In [0, 1]; NaN for a ``logit`` that is NaN."""
        x = self.a * logit + self.b - self.c * max(0.0, self.near - cosine)
        # Each branch has its exponent on the side where exp() cannot overflow.
        if x >= 0:
            return 1 / (1 + math.exp(-x))
        power = math.exp(x)
        return power / (1 + power)


Fits = Mapping[str, Sigmoid]
"""By language tag (``policy.language``)."""


class Calibration(msgspec.Struct, frozen=True):
    """``languages`` by the logit alone, and ``embedders`` with the cosine too: by an embedder's fingerprint, for the
    languages in which it was fitted.

    Raises ValueError unless all of them are usable and ``OTHER`` is among the ``languages``.
    """

    languages: Fits
    embedders: Mapping[str, Fits] = {}

    def __post_init__(self) -> None:
        if OTHER not in self.languages:
            raise ValueError(f"there is no calibration for other languages, {OTHER!r}")
        for fits in (self.languages, *self.embedders.values()):
            for language, fit in fits.items():
                if not (0 < fit.a < math.inf and math.isfinite(fit.b)):
                    raise ValueError(
                        f"the calibration for {language!r} must have a finite b and a finite a above 0"
                    )
                if not (0 <= fit.c < math.inf and -1 <= fit.near <= 1):
                    raise ValueError(
                        f"the calibration for {language!r} must have a finite c of at least 0 and near from -1 to 1"
                    )

    def alone(self, logit: float, first: str, second: str) -> float:
        """By the logit alone, for a pair of questions in the languages ``first`` and ``second``."""
        fit = self.languages.get(first) if first == second else None
        return (fit or self.languages[OTHER]).probability(logit)

    def probability(self, logit: float, first: str, second: str, cosine: float, embedder: str) -> float:
        """With the ``cosine`` by ``embedder``, or where nothing was fitted for that one, or no cosine is known (NaN),
        by the logit alone."""
        fit = self.embedders.get(embedder, {}).get(first) if first == second else None
        if fit is None or not -1.01 <= cosine <= 1.01:
            return self.alone(logit, first, second)
        return fit.probability(logit, cosine)
