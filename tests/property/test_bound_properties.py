"""The bound under any history: monotone, tighter after wrong answers, restored as it was, additive, bounded."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stratacache.policy.bound.pooled import Bound, Limits, Source

PROBABILITIES = st.floats(0, 1)
ENTRIES = st.sampled_from([b"a", b"b", b"c"])
SOURCES: st.SearchStrategy[Source] = st.sampled_from(["explored", "checked", "feedback", "review"])
STEPS = st.lists(
    st.tuples(st.integers(0, 200), ENTRIES, PROBABILITIES, st.floats(0, 1, exclude_max=True), st.booleans(), SOURCES),
    max_size=40,
)  # fmt: skip


def lived(steps: list[Any], limits: Limits | None = None, **options: Any) -> Bound:
    bound = Bound(limits, **options)
    for requests, entry, p, draw, right, source in steps:
        for _ in range(requests):
            bound.looked("s")
        if bound.decide("s", entry, p, draw).choice != "reject":
            bound.observe("s", entry, p, right, source=source, weight=4.0 if source == "checked" else 1.0)
    return bound


@given(STEPS, ENTRIES, PROBABILITIES, PROBABILITIES, st.floats(0, 1, exclude_max=True))
@settings(max_examples=150, deadline=None)
def test_a_higher_probability_is_never_served_less(
    steps: list[Any], entry: bytes, one: float, other: float, draw: float
) -> None:
    state = lived(steps).snapshot()
    low, high = sorted((one, other))
    rank = {"reject": 0, "explore": 1, "serve": 2}
    lower = Bound.restore(state).decide("s", entry, low, draw)
    higher = Bound.restore(state).decide("s", entry, high, draw)
    assert rank[lower.choice] <= rank[higher.choice]
    assert lower.adjusted <= higher.adjusted


@given(STEPS, ENTRIES, st.floats(0.3, 1))
@settings(max_examples=100, deadline=None)
def test_a_wrong_answer_lowers_what_is_thought_of_the_entry(steps: list[Any], entry: bytes, p: float) -> None:
    bound = lived(steps)
    bound._curves.clear()  # right answers may have waited to be learned
    before = bound.explain("s", entry, p)
    bound.observe("s", entry, p, False, source="checked")
    after = bound.explain("s", entry, p)
    assert after["adjusted"] <= before["adjusted"] + 1e-9


@given(STEPS, STEPS)
@settings(max_examples=60, deadline=None)
def test_what_is_restored_goes_on_as_before(steps: list[Any], more: list[Any]) -> None:
    bound = lived(steps)
    bound._curves.clear()
    again = Bound.restore(bound.snapshot())
    assert json.loads(again.snapshot()) == json.loads(bound.snapshot())
    for _, entry, p, draw, _, _ in more:
        assert bound.decide("s", entry, p, draw) == again.decide("s", entry, p, draw)


@given(STEPS, STEPS)
@settings(max_examples=60, deadline=None)
def test_merging_adds_counts_in_any_order(one: list[Any], other: list[Any]) -> None:
    a, b = lived(one), lived(other)
    forward, backward = Bound.restore(a.snapshot()), Bound.restore(b.snapshot())
    forward.merge(b.snapshot())
    backward.merge(a.snapshot())
    assert forward.report("s").labels == a.report("s").labels + b.report("s").labels
    mine, theirs = json.loads(forward.snapshot()), json.loads(backward.snapshot())
    assert mine["ledgers"] == theirs["ledgers"]
    assert mine["labels"] == theirs["labels"]
    assert mine["drifts"] == theirs["drifts"]
    assert mine["entries"] == theirs["entries"]


@given(STEPS)
@settings(max_examples=60, deadline=None)
def test_no_error_allowed_nothing_served(steps: list[Any]) -> None:
    bound = Bound(Limits(0.0))
    for requests, entry, p, draw, right, _ in steps:
        for _ in range(requests):
            bound.looked("s")
        assert bound.decide("s", entry, p, draw).choice != "serve"
        bound.observe("s", entry, p, right)


@given(st.lists(st.binary(min_size=1, max_size=3), max_size=200))
def test_entries_are_bounded(entries: list[bytes]) -> None:
    bound = Bound(most_entries=10)
    for entry in entries:
        bound.observe("s", entry, 0.8, True)
    assert len(json.loads(bound.snapshot())["entries"]) <= 10
