"""Train the cacheability classifier and print its held-out figures.

    python -m stratacache.training.cacheability.train [--seed N] [--out DIR] [--folds]

Softmax regression over named signals and hashed n-grams, by Adam over the full batch: deterministic for a seed. Only
the split ``train`` is trained on. ``--folds`` also trains once per domain without it and reports on what was left out.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stratacache.policy.cacheability.features import BUCKETS, SIGNALS, features_of
from stratacache.policy.cacheability.model import DIGEST, KINDS, OUTPUTS, RISKS, WEIGHTS, LinearModel
from stratacache.training.cacheability.evaluate import Report, report
from stratacache.training.cacheability.questions import Row, hand_written, templated

Floats = NDArray[np.float32]
STEPS = 400
RATE = 0.03
DECAY_SIGNALS, DECAY_NGRAMS = 2e-4, 2e-5
KEEP = 0.7
"""Share of n-grams that each step sees, so that the signals learn to do without them."""


class Batch:
    """Rows as flat index arrays: the features of row ``i`` are those at which ``row == i``."""

    def __init__(self, rows: list[Row]) -> None:
        found = [features_of(row.text) for row in rows]
        self.count = len(rows)
        self.signals, self.signal_row = _flat([signals for signals, _ in found])
        self.ngrams, self.ngram_row = _flat([ngrams for _, ngrams in found])
        self.kinds = np.array([KINDS.index(row.kind) for row in rows])
        self.risks = np.array([RISKS.index(row.risk) for row in rows])
        self.alone = np.array([row.stands_alone for row in rows], np.float32)
        self.weight = np.array([row.weight for row in rows], np.float32)
        self.weight /= self.weight.mean()


def _flat(lists: list[list[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    rows = np.repeat(np.arange(len(lists)), [len(values) for values in lists])
    return np.array([value for values in lists for value in values], np.int64), rows


class Adam:
    """Adam (Kingma and Ba, 2015) for one array, which it changes."""

    def __init__(self, weights: Floats) -> None:
        self._weights = weights
        self._mean, self._square = np.zeros_like(weights), np.zeros_like(weights)

    def step(self, number: int, gradient: Floats, rate: float) -> None:
        self._mean += 0.1 * (gradient - self._mean)
        self._square += 0.001 * (gradient**2 - self._square)
        mean, square = self._mean / (1 - 0.9**number), self._square / (1 - 0.999**number)
        self._weights -= rate * mean / (np.sqrt(square) + 1e-8)


def train(rows: list[Row], seed: int) -> LinearModel:
    """Fit the model to ``rows``; the same rows and seed give the same weights on one machine."""
    batch, generator = Batch(rows), np.random.default_rng(seed)
    dense = np.zeros((1 + len(SIGNALS), OUTPUTS), np.float32)
    ngrams = np.zeros((BUCKETS, OUTPUTS), np.float32)
    for_dense, for_ngrams = Adam(dense), Adam(ngrams)
    for number in range(1, STEPS + 1):
        kept = generator.random(len(batch.ngrams)) < KEEP
        to_dense, to_ngrams = _gradients(batch, dense, ngrams, batch.ngrams[kept], batch.ngram_row[kept])
        rate = RATE * (1 - number / (STEPS + 1))
        for_dense.step(number, to_dense, rate)
        for_ngrams.step(number, to_ngrams, rate)
    return _quantised(dense, ngrams)


def _gradients(
    batch: Batch, dense: Floats, ngrams: Floats, index: NDArray[np.int64], row: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    norm = (1 / np.sqrt(np.maximum(np.bincount(row, minlength=batch.count), 1))).astype(np.float32)
    logits = np.zeros((batch.count, OUTPUTS), np.float32) + dense[0]
    np.add.at(logits, batch.signal_row, dense[1 + batch.signals])
    np.add.at(logits, row, ngrams[index] * norm[row, None])
    error = _error(batch, logits) * batch.weight[:, None] / batch.count
    to_dense = 2 * DECAY_SIGNALS * dense
    to_dense[0] = error.sum(axis=0)
    np.add.at(to_dense, 1 + batch.signals, error[batch.signal_row])
    to_ngrams = 2 * DECAY_NGRAMS * ngrams
    np.add.at(to_ngrams, index, error[row] * norm[row, None])
    return to_dense, to_ngrams


def _error(batch: Batch, logits: Floats) -> Floats:
    """Gradient of the three cross-entropies by the logits; the kind counts most."""
    kinds, last = len(KINDS), OUTPUTS - 1
    error = np.empty_like(logits)
    for part, labels, share in (
        (slice(0, kinds), batch.kinds, 1.0),
        (slice(kinds, last), batch.risks, 0.5),
    ):
        values = np.exp(logits[:, part] - logits[:, part].max(axis=1, keepdims=True))
        values /= values.sum(axis=1, keepdims=True)
        values[np.arange(batch.count), labels] -= 1
        error[:, part] = values * share
    error[:, last] = 0.5 * (1 / (1 + np.exp(-logits[:, last])) - batch.alone)
    return error


def _quantised(dense: Floats, ngrams: Floats) -> LinearModel:
    scale = np.maximum(np.abs(ngrams).max(axis=0), 1e-6) / 127
    return LinearModel(dense[0], dense[1:], np.rint(ngrams / scale).astype(np.int8), scale.astype(np.float32))


def save(model: LinearModel, weights: Path, digest: Path) -> None:
    raw = model.to_bytes()
    weights.write_bytes(raw)
    digest.write_text(hashlib.sha256(raw).hexdigest() + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, default=WEIGHTS.parent)
    parser.add_argument("--folds", action="store_true", help="also leave out each training domain in turn")
    arguments = parser.parse_args()
    rows = hand_written()
    training = [row for row in rows if row.split == "train"]
    extra = templated(arguments.seed)
    if arguments.folds:
        total = Report()
        for domain in sorted({row.domain for row in training}):
            model = train([row for row in training if row.domain != domain] + extra, arguments.seed)
            total = total.merged(report(model, [row for row in training if row.domain == domain]))
        print("left-out training domains\n" + total.text(errors=True))
    model = train(training + extra, arguments.seed)
    save(model, arguments.out / WEIGHTS.name, arguments.out / DIGEST.name)
    for split in ("test", "fresh"):
        held_out = [row for row in rows if row.split == split]
        if held_out:
            print(f"split {split}\n" + report(model, held_out).text())


if __name__ == "__main__":
    main()
