"""A linear model over the features of a question: kind, risk, and whether it stands alone."""

from __future__ import annotations

import hashlib
import math
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from stratacache.errors import ModelError
from stratacache.policy.cacheability.features import BUCKETS, SIGNALS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

KINDS: Final = (
    "fact",
    "howto",
    "definition",
    "time_bound",
    "personal",
    "ambiguous",
    "creative",
    "context_dependent",
)
RISKS: Final = ("none", "finance", "medical", "account")
OUTPUTS: Final = len(KINDS) + len(RISKS) + 1
"""Softmax over the kinds, softmax over the risks, and one logit that is positive for what stands alone."""

WEIGHTS: Final = Path(__file__).with_name("weights.bin")
DIGEST: Final = Path(__file__).with_name("weights.sha256")


class Scores(NamedTuple):
    """Probabilities: of each kind, of each risk (orders of ``KINDS`` and ``RISKS``), and of standing alone."""

    kinds: tuple[float, ...]
    risks: tuple[float, ...]
    alone: float


class LinearModel:
    """Weights in memory; immutable, so safe from any thread.

    Args:
        bias: f32, shape (OUTPUTS,).
        signals: f32, shape (len(SIGNALS), OUTPUTS).
        ngrams: int8, shape (BUCKETS, OUTPUTS); times ``scale``.
        scale: f32, shape (OUTPUTS,).
    """

    def __init__(
        self,
        bias: NDArray[np.float32],
        signals: NDArray[np.float32],
        ngrams: NDArray[np.int8],
        scale: NDArray[np.float32],
    ) -> None:
        self._bias, self._signals, self._ngrams, self._scale = bias, signals, ngrams, scale

    def to_bytes(self) -> bytes:
        """The content of a weights file: bias, scale, signals (little-endian f32), n-grams (int8), row by row."""
        dense = (self._bias[None], self._scale[None], self._signals)
        return b"".join(part.astype("<f4").tobytes() for part in dense) + self._ngrams.tobytes()

    def scores(self, signals: list[int], ngrams: list[int]) -> Scores:
        """Scores of what ``features_of`` found.

        The n-grams' sum is divided by the root of their number, so that a long question does not drown the signals.
        """
        logits = self._bias + self._signals[signals].sum(axis=0)
        if ngrams:
            logits = logits + self._ngrams[ngrams].sum(axis=0) * self._scale / math.sqrt(len(ngrams))
        values: list[float] = logits.tolist()
        kinds, rest = values[: len(KINDS)], values[len(KINDS) :]
        alone = 1 / (1 + math.exp(-max(-50.0, min(50.0, rest[-1]))))
        return Scores(softmax(kinds), softmax(rest[:-1]), alone)


def softmax(values: list[float]) -> tuple[float, ...]:
    """Probabilities of logits."""
    top = max(values)
    powers = [math.exp(value - top) for value in values]
    total = sum(powers)
    return tuple(power / total for power in powers)


@cache
def packaged() -> LinearModel:
    """The shipped model, read once. Raises ModelError when a file is missing or is not what was trained."""
    return load(WEIGHTS, DIGEST)


def load(weights: Path, digest: Path) -> LinearModel:
    """The model of a file written by ``stratacache.training.cacheability.train``; raises ModelError."""
    import numpy as np  # here, as a gateway without the semantic tier needs none of it

    raw = released(weights, digest)
    if len(raw) != _SIZE:
        raise _unusable("are not those that were released", weights)
    dense = np.frombuffer(raw, "<f4", count=(2 + len(SIGNALS)) * OUTPUTS).reshape(-1, OUTPUTS)
    ngrams = np.frombuffer(raw, np.int8, offset=dense.nbytes).reshape(BUCKETS, OUTPUTS)
    return LinearModel(bias=dense[0], scale=dense[1], signals=dense[2:], ngrams=ngrams)


def released(weights: Path, digest: Path) -> bytes:
    """The content of ``weights``; raises ModelError when it is not what ``digest`` says."""
    try:
        raw, expected = weights.read_bytes(), digest.read_text().strip()
    except OSError as error:
        raise _unusable(f"cannot be read: {error.strerror}", weights) from error
    if hashlib.sha256(raw).hexdigest() != expected:
        raise _unusable("are not those that were released", weights)
    return raw


_SIZE = ((2 + len(SIGNALS)) * 4 + BUCKETS) * OUTPUTS


def _unusable(what: str, weights: Path) -> ModelError:
    return ModelError(
        f"the weights of the cacheability classifier ({weights.name}) {what}; reinstall stratacache",
        code="classifier_error",
    )
