"""The verifier's quality report: what the cosine changes, and the page."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.quality.verifier import accepted_at, odds_of
from benchmarks.quality.verifier_page import page

from stratacache.models.similarity import default_cosines
from stratacache.models.use import default_fingerprint
from stratacache.policy.calibration import Calibration, Sigmoid
from stratacache.training.pairs import Pair

PAIRS = [
    Pair("how to swim", "what is the capital of France", 0, "en", "natural"),
    Pair("how to swim", "how do I learn swimming", 1, "en", "natural"),
    Pair("how to swim", "how to dive", 0, "en", "hard_slices"),
]


def test_the_odds_are_the_cards_alone_and_with_the_cosine() -> None:
    cosines = default_cosines((pair.q1, pair.q2) for pair in PAIRS)
    calibration = Calibration(
        {"*": Sigmoid(1.0, 0.0)}, {default_fingerprint(): {"en": Sigmoid(2.0, 0.5, 3.0, 1.0)}}
    )
    alone, combined = odds_of(PAIRS, np.array([1.0, 2.0, -1.0], np.float32), calibration)
    assert alone == pytest.approx([1.0, 2.0, -1.0])
    assert combined == pytest.approx(np.array([2.5, 4.5, -1.5]) - 3 * (1 - cosines))


def test_accepted_pairs_are_counted_by_label_and_the_near_misses_by_themselves() -> None:
    odds = {"verifier": np.array([1.0, 3.0, 2.0]), "combined": np.array([0.0, 3.0, 1.0])}
    found = accepted_at("evaluate", PAIRS, odds)
    assert [(one["hard"], one["floor"], one["verifier"], one["combined"]) for one in found] == [
        (False, 0.7, [1, 1], [1, 0]),
        (False, 0.85, [1, 0], [1, 0]),
        (False, 0.95, [1, 0], [1, 0]),
        (True, 0.7, [0, 1], [0, 1]),
        (True, 0.85, [0, 1], [0, 0]),
        (True, 0.95, [0, 0], [0, 0]),
    ]
    shown = page({"measured": [], "curves": {"dev": {}, "evaluate": {}}, "accepted": found}, "command")
    assert "| Sets that were not trained on | en | ≥ 0.7 | 100.0% | 100.0% | 100.0% | 0.0% |" in shown
    assert "| Near-misses (`hard_slices`) | en | ≥ 0.7 |  |  | 100.0% | 100.0% |" in shown
