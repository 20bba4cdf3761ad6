"""Choosing a replica: its prefix decides, but not what everybody shares, and not against too much work."""

from __future__ import annotations

from collections import Counter

import pytest

from stratacache.policy.affinity import Affinity, Choice, Placement, cached_blocks
from stratacache.policy.replica_model import ReplicaModel


def path(*names: str) -> list[bytes]:
    """A prefix whose blocks are named by all that comes before, as hash chains are."""
    return ["/".join(names[: i + 1]).encode() for i in range(len(names))]


def sent(affinity: Affinity, prefix: list[bytes], replica: int) -> Placement:
    placement = affinity.place(replica, prefix)
    affinity.settle(placement, None)
    return placement


def test_the_next_turn_goes_where_the_first_one_went() -> None:
    affinity = Affinity([100] * 4)
    sent(affinity, path("system", "a1", "a2"), 2)
    choice = affinity.choose(path("system", "a1", "a2", "a3"), [0, 0, 0, 0])
    assert choice == (2, 3, "prefix")
    affinity.check()


def test_a_system_prompt_that_all_conversations_begin_with_decides_nothing() -> None:
    affinity = Affinity([100] * 4)
    served: Counter[int] = Counter()
    for number in range(40):
        prefix = path("system", "rules", f"c{number}")
        choice = affinity.choose(prefix, [0.0] * 4)
        assert choice is not None
        served[choice.replica] += 1
        sent(affinity, prefix, choice.replica)
    assert max(served.values()) <= 13
    assert min(served.values()) >= 8


def test_a_document_that_few_ask_about_still_decides() -> None:
    affinity = Affinity([1000] * 4)
    for number in range(100):
        sent(affinity, path("system", f"other{number}"), number % 4)
    sent(affinity, path("system", "document", "q"), 3)
    for number in range(8):
        prefix = path("system", "document", f"q{number}")
        assert affinity.choose(prefix, [0.0] * 4) == (3, 2, "prefix")
        sent(affinity, prefix, 3)


def test_one_conversation_is_not_taken_for_what_everybody_shares() -> None:
    affinity = Affinity([100] * 2)
    turns = ["system"]
    for number in range(30):
        turns.append(f"turn{number}")
        choice = affinity.choose(path(*turns), [0.0, 0.0])
        assert choice is not None
        assert choice.replica == 0
        sent(affinity, path(*turns), 0)


def test_waiting_work_outweighs_a_short_prefix_and_not_a_long_one() -> None:
    affinity = Affinity([100] * 2, beta=0.3, bound=2)
    prefix = path(*"abcdefghij")
    sent(affinity, prefix, 0)
    assert affinity.choose(prefix, [9, 0]) == (0, 10, "prefix")
    assert affinity.choose(prefix[:2], [9, 0]) == (1, 0, "busy")


def test_no_prefix_is_long_enough_for_a_replica_over_the_bound() -> None:
    affinity = Affinity([100] * 4, beta=0, bound=2)
    prefix = path(*"abc")
    sent(affinity, prefix, 0)
    assert affinity.choose(prefix, [5, 1, 1, 1]) == (0, 3, "prefix")
    assert affinity.choose(prefix, [40, 1, 1, 1]) == (1, 0, "busy")


def test_a_replica_of_few_takes_no_more_than_a_quarter_of_all_work_beside_its_share() -> None:
    affinity = Affinity([1000] * 2, beta=0)
    prefix = path(*"abc")
    sent(affinity, prefix, 0)
    assert affinity.choose(prefix, [78, 22]) == (0, 3, "prefix")
    assert affinity.choose(prefix, [79, 21]) == (1, 0, "busy")


def test_a_conversation_stays_where_it_was_when_no_block_tells() -> None:
    affinity = Affinity([100] * 3)
    affinity.settle(affinity.place(2, [], b"talk"), None)
    assert affinity.choose([], [0, 0, 0], b"talk") == (2, 0, "conversation")
    assert affinity.choose([], [0, 0, 0], b"another") == (0, 0, "load")
    assert affinity.choose([], [0, 0, None], b"talk") == (0, 0, "load")


def test_replicas_that_take_nothing_are_not_chosen() -> None:
    affinity = Affinity([100] * 3)
    prefix = path(*"abc")
    sent(affinity, prefix, 1)
    assert affinity.choose(prefix, [0, None, 0]) == (0, 0, "load")
    assert affinity.choose(prefix, [None, 3, None]) == (1, 3, "only")
    assert affinity.choose(prefix, [None, None, None]) is None


def test_replicas_come_and_go() -> None:
    affinity = Affinity([100, 100])
    prefix = path(*"abc")
    old = affinity.place(1, prefix)
    affinity.remove(1)
    assert affinity.settle(old, 0) == 0
    assert affinity.choose(prefix, [0, 0]) == (0, 0, "only")
    with pytest.raises(KeyError):
        affinity.held(1)
    assert affinity.add(50) == 1
    assert affinity.add(50) == 2
    assert affinity.held(1) == 0
    assert affinity.choose(prefix, [0, 0, 0]) == (0, 0, "load")
    affinity.check()


def test_a_block_that_was_not_there_takes_all_older_ones_with_it() -> None:
    affinity = Affinity([100])
    old, middle, new = path("o1", "o2"), path("m1", "m2", "m3"), path("n1")
    for prefix in (old, middle, new):
        sent(affinity, prefix, 0)
    placement = affinity.place(0, middle)
    assert affinity.settle(placement, 1) == 2  # m2 had gone, so what is older had: the two of `old`
    assert affinity.held(0) == 4
    again = affinity.choose(old, [0])
    assert again is not None
    assert again.overlap == 0
    affinity.check()


def test_a_restart_is_noticed_by_the_first_answer() -> None:
    affinity = Affinity([100, 100])
    for name in "abcdef":
        sent(affinity, path(name, name * 2), 0)
    placement = affinity.place(0, path("f", "ff"))
    assert affinity.settle(placement, 0) == 10
    assert affinity.held(0) == 2


def test_what_runs_beside_a_request_proves_nothing_about_older_blocks() -> None:
    affinity = Affinity([100])
    sent(affinity, path("old"), 0)
    first = affinity.place(0, path(*"abc"))
    second = affinity.place(0, path(*"abcd"))
    assert affinity.settle(second, 0) == 0  # the first had not computed them yet
    assert affinity.settle(first, 0) == 0
    assert affinity.held(0) == 5
    assert affinity.settle(affinity.place(0, path(*"abcd")), 0) == 1


def test_a_reset_cache_is_forgotten() -> None:
    affinity = Affinity([100, 100])
    sent(affinity, path(*"abc"), 0)
    affinity.forget(0)
    assert affinity.held(0) == 0
    affinity.check()


def test_a_prompt_longer_than_the_cache_keeps_its_beginning() -> None:
    affinity = Affinity([3])
    prefix = path(*"abcdef")
    sent(affinity, prefix, 0)
    choice = affinity.choose(prefix, [0])
    assert choice is not None
    assert choice.overlap == 3
    affinity.check()


@pytest.mark.parametrize(
    ("cached", "prompt", "blocks", "found"),
    [
        (0, 100, 10, 0),
        (99, 100, 10, 10),
        (41, 100, 10, 5),
        (40, 100, 10, 4),
        (7, 0, 3, 0),
        (200, 100, 10, 10),
    ],
)
def test_reported_tokens_become_blocks(cached: int, prompt: int, blocks: int, found: int) -> None:
    assert cached_blocks(cached, prompt, blocks) == found


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one block"):
        Affinity([0])
    with pytest.raises(ValueError, match="bound"):
        Affinity([1], bound=0.5)


def test_what_was_placed_counts_at_once_and_not_after_the_cache_was_emptied() -> None:
    affinity = Affinity([8, 8])
    first, second = [b"a", b"b"], [b"a", b"c"]
    affinity.place(1, first)
    assert affinity.choose(first, [0, 0]) == Choice(1, 2, "prefix")
    placement = affinity.place(1, second)
    affinity.forget(1)
    assert affinity.held(1) == 0
    assert affinity.choose(second, [0, 0]) == Choice(0, 0, "load")
    assert affinity.settle(placement, 0) == 0
    affinity.check()


def test_blocks_that_newer_uses_left_behind_do_not_pile_up() -> None:
    model = ReplicaModel(4)
    for tick in range(1, 200):
        model.use([b"a", b"b", b"c"], tick)
        model.finished(tick)
        assert sum(len(kept) for _, kept in model._uses) <= 2 * model.capacity
    model.check()
