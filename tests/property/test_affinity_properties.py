"""The routing policy against a plain model: exact LRUs, bounds, the same choice for the same history."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stratacache.policy.affinity import Affinity, Choice
from stratacache.policy.replica_model import ReplicaModel

REPLICAS, CAPACITY = 3, 6
PREFIXES = st.lists(st.sampled_from("abc"), max_size=9).map(
    lambda names: [("".join(names[: i + 1])).encode() for i in range(len(names))]
)
LOADS = st.lists(st.none() | st.floats(0, 50), min_size=REPLICAS, max_size=REPLICAS)
STEPS = st.lists(
    st.tuples(PREFIXES, LOADS, st.none() | st.integers(-1, 10), st.booleans(), st.sampled_from([None, b"x", b"y"])),
    max_size=40,
)  # fmt: skip


class PlainLru:
    """A list, newest first; a prefix keeps its order, its beginning the newest."""

    def __init__(self) -> None:
        self.blocks: list[bytes] = []

    def use(self, prefix: list[bytes]) -> None:
        kept = prefix[:CAPACITY]
        self.blocks = (kept + [block for block in self.blocks if block not in kept])[:CAPACITY]

    def overlap(self, prefix: list[bytes]) -> int:
        count = 0
        while count < len(prefix) and prefix[count] in self.blocks:
            count += 1
        return count


def lived(steps: list[Any]) -> list[Choice | None]:
    """What was chosen; a request ends at once, or when the whole history has passed."""
    affinity = Affinity([CAPACITY] * REPLICAS)
    choices, late = [], []
    for prefix, loads, cached, at_once, conversation in steps:
        choice = affinity.choose(prefix, loads, conversation)
        choices.append(choice)
        if choice is None:
            assert all(load is None for load in loads)
            continue
        assert loads[choice.replica] is not None
        assert 0 <= choice.overlap <= len(prefix)
        placement = affinity.place(choice.replica, prefix, conversation)
        affinity.catch_up()
        assert len(placement.ticks) == choice.overlap
        if at_once:
            affinity.settle(placement, cached)
        else:
            late.append((placement, cached))
        affinity.check()
        assert all(affinity.held(i) <= CAPACITY for i in range(REPLICAS))
        after = affinity.choose(prefix, [0 if i == choice.replica else None for i in range(REPLICAS)])
        assert after is not None
        assert after.overlap == min(len(prefix), CAPACITY)
    for placement, cached in late:
        affinity.settle(placement, cached)
        affinity.check()
    return choices


@given(STEPS)
@settings(max_examples=200, deadline=None)
def test_any_history_keeps_the_bounds_and_chooses_the_same_again(steps: list[Any]) -> None:
    assert lived(steps) == lived(steps)


@given(st.lists(PREFIXES, max_size=40))
@settings(max_examples=200, deadline=None)
def test_the_model_is_an_exact_lru_and_holds_whole_prefixes(prefixes: list[list[bytes]]) -> None:
    model, plain = ReplicaModel(CAPACITY), PlainLru()
    for tick, prefix in enumerate(prefixes, 1):
        assert model.overlap(prefix) == plain.overlap(prefix)
        before = set(model.blocks())
        ticks, added, dropped = model.use(prefix, tick)
        model.finished(tick)
        plain.use(prefix)
        assert sorted(model.blocks()) == sorted(plain.blocks)
        assert before | set(added) == set(model.blocks()) | set(dropped)
        assert list(ticks) == sorted(ticks, reverse=True)
        assert all(block[:-1] in model for block in model.blocks() if len(block) > 1)
        model.check()


@given(st.lists(PREFIXES, max_size=30), PREFIXES)
@settings(max_examples=100, deadline=None)
def test_an_accurate_report_changes_nothing(prefixes: list[list[bytes]], probe: list[bytes]) -> None:
    affinity = Affinity([CAPACITY])
    for prefix in [*prefixes, probe]:
        placement = affinity.place(0, prefix)
        affinity.catch_up()
        assert affinity.settle(placement, len(placement.ticks)) == 0
    affinity.check()
