"""Statistics of prefixes: what is remembered, what is forgotten, and that it stays within its bounds."""

from __future__ import annotations

import pytest

from stratacache.policy.prompt.reuse import MAX_INNER, MAX_TALLIES, PRIOR, Reuse, Tally

LIVES = (300.0, 3600.0)
SCOPE, FAMILY = b"scope", b"family"


def digest(number: int) -> bytes:
    return number.to_bytes(16, "big")


def test_the_least_recently_used_prefixes_are_forgotten() -> None:
    reuse = Reuse(max_nodes=100)
    reuse.begin("shared", digest(0), SCOPE, b"", 0.0, LIVES)
    for number in range(1, 150):
        reuse.begin("shared", digest(number), SCOPE, b"", float(number), LIVES)
        reuse.begin("shared", digest(0), SCOPE, b"", float(number), LIVES)
        reuse.check()
    assert len(reuse) == 100
    assert reuse.node(digest(0)) is not None
    assert reuse.node(digest(1)) is None
    assert reuse.longest([digest(0), digest(1)]) == 0
    assert reuse.longest([digest(1)]) == -1


def test_a_very_long_request_is_remembered_at_both_ends() -> None:
    reuse = Reuse(max_nodes=10_000)
    digests = [digest(number) for number in range(5000)]
    reuse.between(digests)
    assert len(reuse) == 2 * MAX_INNER
    assert reuse.longest(digests[:1000]) == MAX_INNER - 1
    assert reuse.longest(digests) == 4999


def test_tallies_and_rates_are_bounded() -> None:
    reuse = Reuse()
    for number in range(MAX_TALLIES + 50):
        reuse.begin("opening", digest(number), SCOPE, digest(number), 0.0, LIVES)
        reuse.arrive(digest(number), 0.0)
    reuse.check()


def test_a_prefix_answers_for_itself_once_it_was_seen_often() -> None:
    reuse = Reuse()
    before = reuse.chances("shared", digest(1), SCOPE, b"", 0.0, 2)
    assert before == [PRIOR["shared"]] * 2
    for n in range(20):
        reuse.begin("shared", digest(1), SCOPE, b"", n * 600.0, LIVES)
    short, long = reuse.chances("shared", digest(1), SCOPE, b"", 20 * 600.0, 2)
    assert short < 0.1
    assert long > 0.9


def test_a_new_prefix_is_judged_by_others_of_its_kind_and_family_only() -> None:
    reuse = Reuse()
    for number in range(40):
        reuse.begin("opening", digest(number), SCOPE, FAMILY, number * 60.0, LIVES)
    now = 40 * 60.0
    assert reuse.chances("opening", digest(99), SCOPE, FAMILY, now, 2)[0] < 0.1
    assert reuse.chances("continued", digest(99), SCOPE, FAMILY, now, 2)[0] == PRIOR["continued"]
    assert reuse.chances("opening", digest(99), b"other", FAMILY, now, 2)[0] == PRIOR["opening"]


def test_the_young_are_not_held_against_their_kind() -> None:
    tally = Tally(2)
    for _ in range(10):
        tally.begin(100.0)
    assert tally.chances([0.5, 0.5], 101.0, 4.0) == [0.5, 0.5]
    assert tally.chances([0.5, 0.5], 200.0, 4.0)[0] < 0.2


def test_habits_change() -> None:
    tally = Tally(1)
    for n in range(1000):
        tally.begin(n * 100.0)
        tally.follow(10.0, [300.0])
    assert tally.chances([0.5], 1e6, 4.0)[0] > 0.9
    for n in range(400):
        tally.begin(1e6 + n * 100.0)
    assert tally.chances([0.5], 2e6, 4.0)[0] < 0.3


@pytest.mark.parametrize(("every", "rate"), [(60.0, 1.6), (1.0, 60.0)])
def test_rates_are_of_the_last_minute_or_so(every: float, rate: float) -> None:
    reuse = Reuse()
    for n in range(500):
        reuse.arrive(FAMILY, n * every)
    assert reuse.rate(FAMILY, 500 * every) == pytest.approx(rate, rel=0.05)
    assert reuse.rate(FAMILY, 500 * every + 3600) == pytest.approx(1.0, abs=0.01)
