"""The stream test's own rules: which questions share an answer, and what the tier's way makes of neighbours."""

from __future__ import annotations

import random

from benchmarks.quality.stream import warm_up
from benchmarks.quality.stream_methods import Best, Examined, Ours, Static
from benchmarks.quality.streams import Pool, from_pairs


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
    assert path.best(0, [(2, 0.6)]) == Best(2, 0.9)
    assert path.best(0, [(2, 0.9), (1, 0.7)]) == Best(1, 1.0, True)
    assert Ours(0.01, pool, path).ask(0, [(2, 0.9), (1, 0.7)], random.Random(1)) == 1


def test_a_threshold_serves_the_nearest_alone() -> None:
    assert Static(0.8).ask(0, [(1, 0.81), (2, 0.8)], random.Random(1)) == 1
    assert Static(0.8).ask(0, [(1, 0.79)], random.Random(1)) is None


def test_a_bound_counts_when_five_errors_are_allowed() -> None:
    assert [warm_up(bound) for bound in (None, 0.005, 0.05)] == [500, 1000, 500]
