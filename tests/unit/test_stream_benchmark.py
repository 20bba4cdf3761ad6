"""The stream test's own rules: which questions share an answer, and what the tier's way makes of neighbours."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from benchmarks.quality.stream import warm_up
from benchmarks.quality.stream_methods import Best, Examined, Ours, Static
from benchmarks.quality.stream_scores import Verified
from benchmarks.quality.streams import Pool, from_pairs

from stratacache.models.use import default_fingerprint
from stratacache.models.verifier import WEIGHTS, PairModel
from stratacache.policy.calibration import Calibration, Sigmoid
from stratacache.policy.guards import examine


def test_answers_are_what_label_1_connects_or_only_punctuation_divides() -> None:
    pool = from_pairs(
        "t",
        [
            ("how to swim", "how do I swim", True),
            ("how to swim!!", "how to dive", False),
            ("a b", "c d", False),
        ],
        10,
        1,
    )
    answers = dict(zip(pool.texts, pool.answers, strict=True))
    assert answers["how to swim!!"] == answers["how do I swim"]
    assert answers["how to dive"] != answers["how to swim!!"]
    assert len(set(answers.values())) == 4


def test_a_component_with_a_pair_that_is_labelled_different_is_left_out() -> None:
    pool = from_pairs("t", [("a", "b", True), ("b", "c", True), ("a", "c", False), ("x", "y", False)], 10, 1)
    assert sorted(pool.texts) == ["x", "y"]


def test_the_way_is_guards_then_wording_then_the_likeliest() -> None:
    texts = [
        "How do I bake bread?",
        "How can I bake bread",
        "What is bread made of",
        "How do I bake 3 breads?",
        "How do I bake 4 breads?",
    ]
    pool = Pool("t", texts, [0, 0, 1, 2, 3])
    path = Examined(pool, lambda one, other: 0.9 if (one, other) == (0, 2) else 0.2)
    assert path.best(4, [(3, 0.99)]) is None  # vetoed: another number
    assert path.best(0, [(2, 0.4)]) is None  # below the floor
    assert path.best(0, [(2, 0.6)]) == Best(2, 0.9, False, 0.85)  # a guard has doubts
    assert path.best(0, [(2, 0.9), (1, 0.7)]) == Best(1, 1.0, True, 0.7)
    assert Ours(0.01, pool, path).ask(0, [(2, 0.9), (1, 0.7)], random.Random(1)) == 1


def test_guards_are_asked_in_the_order_of_asked_and_stored() -> None:
    pool = Pool("t", ["How do I bake bread?", "How do I bake bread without yeast?"], [0, 1])
    path = Examined(pool, lambda one, other: 0.9)
    for asked, stored in ((0, 1), (1, 0)):
        found = path.best(asked, [(stored, 0.9)])
        verdict = examine(pool.texts[asked], pool.texts[stored]).verdict
        assert (found is None) == (verdict == "veto")


@pytest.mark.parametrize(("probability", "labels"), [(0.6, 1), (0.2, 0)])
def test_below_the_floor_nothing_is_served_and_what_is_worth_it_is_a_label(
    probability: float, labels: int
) -> None:
    pool = Pool("t", ["how to swim", "ways of swimming"], [0, 0])
    ours = Ours(0.5, pool, Examined(pool, lambda one, other: probability))
    for _ in range(20):
        assert ours.ask(0, [(1, 0.9)], random.Random(1)) is None
    assert ours.report().labels == 20 * labels


def test_the_probability_is_the_calibrations_with_the_cosine_of_the_vectors() -> None:
    fits = {default_fingerprint(): {"en": Sigmoid(1.0, -2.0, 4.0, 0.8)}}
    pool = Pool("t", ["how to swim", "ways of swimming", "怎么游泳"], [0, 0, 0])
    vectors = np.array([[1, 0], [0.6, 0.8], [1, 0]], np.float32)
    scores = Verified(pool, vectors, WEIGHTS, None, Calibration({"*": Sigmoid(1.0, 0.0)}, fits))
    model = PairModel(WEIGHTS)
    odds = model.logit(*pool.texts[:2]) - 4 * 0.2 - 2, model.logit(pool.texts[0], pool.texts[2])
    assert (scores(0, 1), scores(0, 2)) == pytest.approx([1 / (1 + math.exp(-x)) for x in odds])


def test_a_threshold_serves_the_nearest_alone() -> None:
    assert Static(0.8).ask(0, [(1, 0.81), (2, 0.8)], random.Random(1)) == 1
    assert Static(0.8).ask(0, [(1, 0.79)], random.Random(1)) is None


def test_a_bound_counts_when_five_errors_are_allowed() -> None:
    assert [warm_up(bound) for bound in (None, 0.005, 0.05)] == [500, 1000, 500]
