"""What the quality report is made of: AUC, recall at a precision, calibration by logistic regression."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stratacache.policy.calibration import Sigmoid

LEAST_COSINE = 0.5  # of pairs that are candidates at all (tiers.semantic.floor)

Floats = NDArray[np.floating]
Labels = NDArray[np.integer]


def auc(scores: Floats, labels: Labels) -> float:
    """The chance that a positive scores above a negative, ties counting half; NaN when either is missing."""
    positives = int(labels.sum())
    negatives = len(labels) - positives
    if not positives or not negatives:
        return float("nan")
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    return float(
        (ranks[inverse][labels == 1].sum() - positives * (positives + 1) / 2) / (positives * negatives)
    )


def recall_at(scores: Floats, labels: Labels, precision: float) -> tuple[float, float]:
    """The greatest recall whose precision is at least ``precision``, and its threshold (inf when there is none).

    Ties count as accepted together.
    """
    order = np.argsort(-scores, kind="stable")
    ordered, right = scores[order], np.cumsum(labels[order])
    accepted = np.arange(1, len(order) + 1)
    last_of_ties = np.append(ordered[1:] != ordered[:-1], True)
    good = last_of_ties & (right / accepted >= precision)
    if not good.any() or not labels.sum():
        return 0.0, float("inf")
    at = int(np.flatnonzero(good)[-1])
    return float(right[at] / labels.sum()), float(ordered[at])


def fit_sigmoid(logits: Floats, labels: Labels) -> Sigmoid | None:
    """Platt's sigmoid; None where a higher logit does not mean a likelier pair."""
    a, b = fit_logistic(logits[:, None], labels, np.ones(len(labels)))
    return Sigmoid(_rounded(a), _rounded(b)) if a > 0 else None


def fit_with_cosine(
    logits: Floats, cosines: Floats, labels: Labels, sources: Sequence[str] = ()
) -> Sigmoid | None:
    """The sigmoid with the cosine; None where a low cosine does not speak against a pair, or as :func:`fit_sigmoid`.

    ``near`` is the lower quartile of the positives' cosines. The weights are those within the ``sources``, each with a
    constant of its own: sets differ in how near their pairs are and in how many are positive, which is no property of a
    pair. The constant is that of all.
    """
    near = float(np.quantile(cosines[labels == 1], 0.25))
    apart = np.maximum(0, near - cosines)
    names = np.array(sources)
    own = [names == name for name in sorted(set(sources))[1:]]
    columns = np.column_stack([logits, -apart, *own])
    a, c = fit_logistic(columns, labels, np.ones(len(labels)))[:2]
    if a <= 0 or c < 0:
        return None
    b = _constant(a * logits - c * apart, labels)
    return Sigmoid(_rounded(a), _rounded(b), _rounded(c), _rounded(near))


def _constant(odds: Floats, labels: Labels) -> float:
    """What to add to ``odds`` for as many expected positives as there are, by Newton's method."""
    constant = 0.0
    for _ in range(50):
        p = 1 / (1 + np.exp(-np.clip(odds + constant, -30, 30)))
        step = float((labels - p).sum() / (p * (1 - p)).sum())
        constant += step
        if abs(step) < 1e-9:
            break
    return constant


def _rounded(value: float) -> float:
    return round(float(value), 5)


def fit_logistic(columns: Floats, labels: Labels, weights: Floats, ridge: float = 1e-3) -> Floats:
    """Coefficients of a logistic regression on ``columns`` (pairs, features), then the constant, by Newton's method."""
    design = np.column_stack([columns, np.ones(len(labels))])
    coefficients = np.zeros(design.shape[1])
    penalty = ridge * np.eye(design.shape[1])
    penalty[-1, -1] = 0.0
    for _ in range(50):
        p = 1 / (1 + np.exp(-np.clip(design @ coefficients, -30, 30)))
        gradient = design.T @ (weights * (labels - p)) - penalty @ coefficients
        hessian = (design * (weights * p * (1 - p))[:, None]).T @ design + penalty
        step = np.linalg.solve(hessian, gradient)
        coefficients += step
        if np.abs(step).max() < 1e-9:
            break
    return coefficients
