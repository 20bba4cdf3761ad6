"""The exact tier: trusts no entry whose form differs, and turns every fault of its store into a named miss."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.clock import FakeClock

from stratacache.errors import StoreError
from stratacache.stores.null import NullStore
from stratacache.tiers.exact import ExactTier
from stratacache.types import Entry, Hit, Key, Miss

KEY = Key(b"d" * 32, b"form")


class OneEntry(NullStore):
    """Answers every get by ``found``."""

    waits = True

    def __init__(self, found: Callable[[], Awaitable[Entry | None]]) -> None:
        super().__init__()
        self._found = found

    async def get(self, digest: bytes) -> Entry | None:
        return await self._found()


def entry(clock: FakeClock, *, age: float = 0, form: bytes = b"form") -> Entry:
    now = clock.now()
    return Entry(form=form, body=b"{}", created_at=now - age, expires_at=now + 100)


async def lookup(
    entry: Entry | BaseException | None, clock: FakeClock, max_age: float | None = None
) -> Hit | Miss:
    async def found() -> Entry | None:
        if isinstance(entry, BaseException):
            raise entry
        return entry

    return await ExactTier(OneEntry(found), clock, budget=5).lookup(KEY, max_age=max_age)


async def test_an_entry_is_a_hit_with_its_age() -> None:
    clock = FakeClock()
    stored = entry(clock, age=7)
    assert await lookup(stored, clock) == Hit(stored, "exact", "exact", 7)


async def test_a_clock_that_went_back_makes_no_negative_age() -> None:
    clock = FakeClock()
    got = await lookup(entry(clock, age=-50), clock)
    assert isinstance(got, Hit)
    assert got.age == 0


async def test_another_form_under_the_same_digest_is_a_miss() -> None:
    clock = FakeClock()
    assert await lookup(entry(clock, form=b"other"), clock) == Miss("collision")


async def test_max_age_is_inclusive() -> None:
    clock = FakeClock()
    assert isinstance(await lookup(entry(clock, age=60), clock, 60), Hit)
    assert await lookup(entry(clock, age=61), clock, 60) == Miss("too_old")


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (None, "not_found"),
        (StoreError("disk full"), "store_error"),
        (ValueError("a bug in the store"), "store_error"),
        (TimeoutError(), "store_slow"),
    ],
)
async def test_faults_are_misses(fault: BaseException | None, reason: str) -> None:
    assert await lookup(fault, FakeClock()) == Miss(reason)


async def test_a_lookup_over_its_budget_is_a_miss_and_leaves_no_work_behind() -> None:
    cancelled = asyncio.Event()

    async def never() -> Entry | None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return None

    tier = ExactTier(OneEntry(never), FakeClock(), budget=0.001)
    assert await tier.lookup(KEY) == Miss("store_slow")
    assert cancelled.is_set()


async def test_a_cancelled_request_is_not_turned_into_a_miss() -> None:
    async def never() -> Entry | None:
        await asyncio.Event().wait()
        return None

    looking = asyncio.ensure_future(ExactTier(OneEntry(never), FakeClock(), budget=60).lookup(KEY))
    await asyncio.sleep(0)
    looking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await looking
