"""Train the cacheability classifier from the questions beside it; a run takes about a minute on one core.

    python -m stratacache.training.cacheability.train [--seed N] [--epochs N] [--out DIR] [--folds]

Softmax regression over named signals and hashed n-grams, by Adam: deterministic for a seed. Only
the split ``train`` is read. ``--folds`` instead leaves out one fifth of its domains after the other and reports on what
was left out, with the wrong ones: the figures to tune by, as the held-out questions are for the final figure alone.
"""

from __future__ import annotations

import argparse
import hashlib
import random
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stratacache.policy.cacheability import CACHEABLE
from stratacache.policy.cacheability.features import BUCKETS, SIGNALS, features_of
from stratacache.policy.cacheability.model import DIGEST, KINDS, OUTPUTS, RISKS, WEIGHTS, LinearModel
from stratacache.training.cacheability.evaluate import Report, report
from stratacache.training.cacheability.questions import Row, hand_written, templated

Floats = NDArray[np.float32]
EPOCHS = 20
BATCH = 256
FOLDS = 5
RATE = 0.02
DECAY_SIGNALS, DECAY_NGRAMS = 2e-4, 5e-6
DECISION, WRONG_YES, RISK = 3.0, 1.5, 0.5
"""Weights of what is learned beside the kind, whose own is 1; ``WRONG_YES`` is what a wrong yes costs."""

CACHEABLE_KINDS = np.array([kind in CACHEABLE for kind in KINDS])
KEEP = 0.7
"""Share of n-grams that each batch sees, so that the signals learn to do without them."""


class Sparse:
    """A matrix of features with one value per row and feature: ``row @ weights`` and its transpose, by sums of runs."""

    def __init__(self, found: list[list[int]], width: int) -> None:
        lengths = np.array([len(features) for features in found])
        self.row = np.repeat(np.arange(len(found)), lengths)
        self.feature = np.array([each for features in found for each in features], np.int64)
        self.counts, self._height, self._width = lengths, len(found), width
        self._by_feature = np.argsort(self.feature, kind="stable")

    def times(self, weights: Floats, values: Floats) -> Floats:
        """Shape (rows, outputs)."""
        return _sums(values[:, None] * weights[self.feature], self.row, self._height)

    def transposed_times(self, error: Floats, values: Floats) -> Floats:
        """Shape (features, outputs)."""
        order = self._by_feature
        parts = values[order, None] * error[self.row[order]]
        return _sums(parts, self.feature[order], self._width)


def _sums(parts: Floats, place: NDArray[np.int64], height: int) -> Floats:
    """The sum of the ``parts`` of each place, which are sorted by it."""
    sums = np.zeros((height, parts.shape[1]), np.float32)
    if len(place):
        starts = np.flatnonzero(np.diff(place, prepend=-1))
        sums[place[starts]] = np.add.reduceat(parts, starts, axis=0)
    return sums


class Batch:
    """What is learned from ``rows``: features, labels, and how much each row counts."""

    def __init__(self, rows: list[Row]) -> None:
        found = [features_of(row.text) for row in rows]
        self.count = len(rows)
        self.signals = Sparse([signals for signals, _ in found], len(SIGNALS))
        self.ngrams = Sparse([ngrams for _, ngrams in found], BUCKETS)
        self.kinds = np.array([KINDS.index(row.kind) for row in rows])
        self.risks = np.array([RISKS.index(row.risk) for row in rows])
        self.alone = np.array([row.stands_alone for row in rows], np.float32)
        self.weight = np.array([row.weight for row in rows], np.float32)


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


def train(rows: list[Row], seed: int, epochs: int = EPOCHS) -> LinearModel:
    """Fit the model to ``rows``; the same rows and seed give the same weights on one machine."""
    generator = np.random.default_rng(seed)
    mixed = [rows[number] for number in generator.permutation(len(rows))]
    batches = [Batch(mixed[start : start + BATCH]) for start in range(0, len(mixed), BATCH)]
    dense = np.zeros((1 + len(SIGNALS), OUTPUTS), np.float32)
    ngrams = np.zeros((BUCKETS, OUTPUTS), np.float32)
    for_dense, for_ngrams = Adam(dense), Adam(ngrams)
    total = epochs * len(batches)
    for number in range(total):
        if number % len(batches) == 0:
            order = generator.permutation(len(batches))
        batch = batches[order[number % len(batches)]]
        to_dense, to_ngrams = _gradients(batch, dense, ngrams, generator)
        rate = RATE * (1 - number / total)
        for_dense.step(number + 1, to_dense, rate)
        for_ngrams.step(number + 1, to_ngrams, rate)
    return _quantised(dense, ngrams)


def _gradients(
    batch: Batch, dense: Floats, ngrams: Floats, generator: np.random.Generator
) -> tuple[Floats, Floats]:
    every = np.ones(len(batch.signals.row), np.float32)
    kept = generator.random(len(batch.ngrams.row)) < KEEP
    seen = np.bincount(batch.ngrams.row[kept], minlength=batch.count)
    values = (kept / np.sqrt(np.maximum(seen, 1))[batch.ngrams.row]).astype(np.float32)
    logits = dense[0] + batch.signals.times(dense[1:], every) + batch.ngrams.times(ngrams, values)
    error: Floats = (_error(batch, logits) * batch.weight[:, None] / batch.count).astype(np.float32)
    to_dense = 2 * DECAY_SIGNALS * dense
    to_dense[0] = error.sum(axis=0)
    to_dense[1:] += batch.signals.transposed_times(error, every)
    return to_dense, 2 * DECAY_NGRAMS * ngrams + batch.ngrams.transposed_times(error, values)


def _error(batch: Batch, logits: Floats) -> Floats:
    """Gradient by the logits of four cross-entropies: kind, cacheable or not, risk, and whether it stands alone."""
    kinds, last = len(KINDS), OUTPUTS - 1
    error = np.empty_like(logits)
    every = np.arange(batch.count)
    shares = _softmax(logits[:, :kinds])
    right = shares * (CACHEABLE_KINDS[batch.kinds, None] == CACHEABLE_KINDS)
    right /= right.sum(axis=1, keepdims=True) + 1e-9
    cost = np.where(CACHEABLE_KINDS[batch.kinds], 1.0, WRONG_YES)[:, None]
    error[:, :kinds] = DECISION * cost * (shares - right) + shares
    error[every, batch.kinds] -= 1
    error[:, kinds:last] = RISK * _softmax(logits[:, kinds:last])
    error[every, kinds + batch.risks] -= RISK
    error[:, last] = 0.5 * (1 / (1 + np.exp(-logits[:, last])) - batch.alone)
    return error


def _softmax(logits: Floats) -> Floats:
    values = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares: Floats = values / values.sum(axis=1, keepdims=True)
    return shares


def _quantised(dense: Floats, ngrams: Floats) -> LinearModel:
    scale = np.maximum(np.abs(ngrams).max(axis=0), 1e-6) / 127
    return LinearModel(dense[0], dense[1:], np.rint(ngrams / scale).astype(np.int8), scale.astype(np.float32))


def save(model: LinearModel, weights: Path, digest: Path) -> None:
    raw = model.to_bytes()
    weights.write_bytes(raw)
    digest.write_text(hashlib.sha256(raw).hexdigest() + "\n")


def folded(rows: list[Row], seed: int) -> list[set[str]]:
    """The domains of ``rows`` in :data:`FOLDS` parts."""
    domains = sorted({row.domain for row in rows})
    random.Random(seed).shuffle(domains)
    return [set(domains[number::FOLDS]) for number in range(FOLDS)]


def folds(rows: list[Row], extra: list[Row], seed: int, epochs: int) -> Report:
    """Each question is asked of a model that saw nothing of its domain but what the templates ``extra`` say."""
    total = Report()
    for left_out in folded(rows, seed):
        model = train([row for row in rows if row.domain not in left_out] + extra, seed, epochs)
        total = total.merged(report(model, [row for row in rows if row.domain in left_out]))
    return total


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="fewer for a quick look")
    parser.add_argument("--out", type=Path, default=WEIGHTS.parent)
    parser.add_argument("--folds", action="store_true", help="report on left-out domains, write nothing")
    arguments = parser.parse_args(argv)
    training = [row for row in hand_written() if row.split == "train"]
    extra = templated(arguments.seed)
    if arguments.folds:
        print(folds(training, extra, arguments.seed, arguments.epochs).text(errors=True))
        return
    model = train(training + extra, arguments.seed, arguments.epochs)
    save(model, arguments.out / WEIGHTS.name, arguments.out / DIGEST.name)
    print("trained on\n" + report(model, training).text())


if __name__ == "__main__":
    main()
