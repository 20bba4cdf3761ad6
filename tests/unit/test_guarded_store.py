"""A store that is slow or down: look-ups end within their budget, and it is left alone until it is well."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from tests.clock import FakeClock

from stratacache.errors import StoreDown, StoreError, StoreSlow
from stratacache.policy.breaker import FAILURES, FIRST_PAUSE, LONGEST_PAUSE, Breaker
from stratacache.stores.guarded import GuardedStore
from stratacache.stores.null import NullStore
from stratacache.types import Absent, Entry


class SickStore(NullStore):
    """Fails, hangs or works, as ``how`` says."""

    how = "works"
    asked = 0
    cancelled = 0

    async def get(self, digest: bytes, tags: Sequence[str] = ()) -> Entry | Absent:
        self.asked += 1
        if self.how == "fails":
            raise StoreError("connection refused")
        if self.how == "hangs":
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled += 1
        return await super().get(digest, tags)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def sick() -> SickStore:
    return SickStore()


@pytest.fixture
def guarded(sick: SickStore, clock: FakeClock) -> GuardedStore:
    return GuardedStore(sick, clock, budget=0.001)


async def test_a_look_up_over_its_budget_ends_and_leaves_no_work_behind(
    sick: SickStore, guarded: GuardedStore
) -> None:
    sick.how = "hangs"
    with pytest.raises(StoreSlow):
        await guarded.get(b"d")
    assert sick.cancelled == 1


@pytest.mark.parametrize("how", ["fails", "hangs"])
async def test_after_failures_in_a_row_it_is_left_alone_and_tried_again_after_a_pause(
    sick: SickStore, guarded: GuardedStore, clock: FakeClock, how: str
) -> None:
    sick.how = how
    for _ in range(FAILURES):
        assert guarded.breaker_state == "closed"
        with pytest.raises(StoreError):
            await guarded.get(b"d")
    assert guarded.breaker_state == "open"
    for _ in range(10):
        with pytest.raises(StoreDown):
            await guarded.get(b"d")
    assert sick.asked == FAILURES
    clock.advance(FIRST_PAUSE)
    assert guarded.breaker_state == "half_open"
    sick.how = "works"
    assert isinstance(await guarded.get(b"d"), Absent)
    assert guarded.breaker_state == "closed"


async def test_failures_that_do_not_follow_each_other_open_nothing(
    sick: SickStore, guarded: GuardedStore
) -> None:
    for _ in range(FAILURES * 3):
        sick.how = "fails"
        with pytest.raises(StoreError):
            await guarded.get(b"d")
        sick.how = "works"
        await guarded.get(b"d")
    assert guarded.breaker_state == "closed"


def test_the_pause_doubles_up_to_a_bound_and_one_caller_at_a_time_tries() -> None:
    breaker, now = Breaker(), 100.0
    for _ in range(FAILURES):
        breaker.failed(now)
    pauses = []
    for _ in range(8):
        began = now
        while not breaker.allows(now):
            now += FIRST_PAUSE / 4
        assert not breaker.allows(now), "a second caller while the first one tries"
        pauses.append(now - began)
        breaker.failed(now)
    assert pauses == sorted(pauses)
    assert pauses[0] == FIRST_PAUSE
    assert pauses[-1] == LONGEST_PAUSE
    assert breaker.succeeded()
    assert breaker.allows(now)


def test_a_trial_of_which_no_word_comes_does_not_block_the_next() -> None:
    breaker = Breaker()
    for _ in range(FAILURES):
        breaker.failed(0.0)
    assert breaker.allows(FIRST_PAUSE)
    assert not breaker.allows(FIRST_PAUSE * 1.5)
    assert breaker.allows(FIRST_PAUSE * 2)


def test_late_word_of_calls_from_before_does_not_lengthen_the_pause() -> None:
    breaker = Breaker()
    for _ in range(FAILURES + 20):
        breaker.failed(0.0)
    assert breaker.allows(FIRST_PAUSE)
