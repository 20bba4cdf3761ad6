"""The report on a left-out domain: its samples, its lines, and the combination that is fitted to the other domains."""

from __future__ import annotations

import random

import numpy as np
import pytest
from benchmarks.quality.left_out import combined, lines, measure, table

from stratacache.models.use import default_fingerprint
from stratacache.policy.calibration import Calibration, Sigmoid
from stratacache.training.pairs import Pair


def pairs(count: int, source: str, seed: int) -> list[Pair]:
    draw = random.Random(seed)
    return [Pair(f"{source} {n}", f"{source} {n}?", draw.randrange(2), "en", source) for n in range(count)]


def test_every_set_has_a_line_and_a_small_one_none() -> None:
    chosen = [*pairs(40, "a", 1), *pairs(10, "b", 2)]
    scores = {"verifier": np.array([float(pair.label) for pair in chosen]), "cosine": np.zeros(50)}
    found = lines("dev", chosen, scores)
    assert [(line.set, line.pairs) for line in found] == [("a", 40), ("all", 50)]
    assert [(line.auc["verifier"], line.recall["verifier"]) for line in found] == [(1.0, 1.0)] * 2
    assert found[0].auc["cosine"] == 0.5
    assert "| dev | a | 40 | 1.000 / 1.000 | 0.500 / 0.000 |" in table(found)


def test_the_combination_is_fitted_to_the_other_domains_alone() -> None:
    chosen = {"left_out": pairs(400, "new", 1), "dev": pairs(1000, "old", 2)}
    draw = np.random.default_rng(3)

    def logits(own: list[Pair]) -> np.ndarray:
        noise = draw.normal(size=len(own))
        return np.array([2 * pair.label - 1 for pair in own]) * (own[0].source == "old") + noise

    def cosines(own: list[Pair]) -> np.ndarray:
        return np.array([0.6 + 0.3 * pair.label for pair in own]) + draw.uniform(-0.1, 0.1, len(own))

    found = {line.role: line for line in measure(chosen, logits, cosines, cosines) if line.set == "all"}
    assert found["left_out"].auc["verifier"] == pytest.approx(0.5, abs=0.1)
    assert found["left_out"].auc["combination"] > 0.8


def test_what_no_embedder_takes_is_judged_by_the_verifier_alone() -> None:
    fits = {default_fingerprint(): {"en": Sigmoid(1.0, 0.0, 10.0, 0.8)}}
    calibration = Calibration({"*": Sigmoid(1.0, 0.0)}, fits)
    found = combined(pairs(3, "a", 1), np.zeros(3), np.array([np.nan, 0.9, 0.7]), calibration)
    assert found == pytest.approx([0.5, 0.5, 1 / (1 + np.exp(1))])
