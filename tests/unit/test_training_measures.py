"""Fitting verifier and cosine together: within the sets, not between them."""

from __future__ import annotations

import numpy as np
import pytest

from stratacache.training.measures import fit_sigmoid, fit_with_cosine


def drawn(count: int, c: float, shift: float = 0.0, apart: float = 0.0) -> tuple[np.ndarray, ...]:
    """Logits, cosines and labels of pairs of which those below a cosine of .8 are positive less often, by ``c``."""
    draw = np.random.default_rng(int(count + 10 * c + shift))
    logits, cosines = draw.uniform(-4, 4, count), draw.uniform(0.6, 1.0, count) - apart
    odds = 0.8 * logits + shift - c * np.maximum(0, 0.8 - apart - cosines)
    return logits, cosines, (draw.uniform(size=count) < 1 / (1 + np.exp(-odds))).astype(int)


def test_a_low_cosine_counts_as_much_as_it_tells() -> None:
    logits, cosines, labels = drawn(20_000, 8.0)
    fit = fit_with_cosine(logits, cosines, labels)
    assert fit is not None
    assert fit.a == pytest.approx(0.8, abs=0.1)
    assert fit.near == pytest.approx(np.quantile(cosines[labels == 1], 0.25), abs=1e-4)
    assert fit.c > 4
    expected = sum(fit.probability(x, y) for x, y in zip(logits, cosines, strict=True))
    assert expected == pytest.approx(labels.sum(), rel=1e-3)


def test_sets_that_differ_as_wholes_do_not_turn_the_weight() -> None:
    """One set's pairs are further apart and more often positive; within either, a low cosine speaks against."""
    sets = [drawn(5000, 6.0, shift=-2.0), drawn(5000, 6.0, shift=2.0, apart=0.25)]
    logits, cosines, labels = (np.concatenate(parts) for parts in zip(*sets, strict=True))
    assert fit_with_cosine(logits, cosines, labels) is None
    fit = fit_with_cosine(logits, cosines, labels, ["one"] * 5000 + ["other"] * 5000)
    assert fit is not None
    assert fit.c > 1


def test_a_turned_verifier_has_no_fit() -> None:
    logits, cosines, labels = drawn(5000, 4.0)
    assert fit_sigmoid(-logits, labels) is None
    assert fit_with_cosine(-logits, cosines, labels) is None
    assert fit_with_cosine(logits, 1.5 - cosines, labels) is None
