"""The exact tier: trusts no entry whose form differs, and turns every fault of its store into a named miss."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest
from tests.clock import FakeClock

from stratacache.errors import StoreDown, StoreError, StoreSlow
from stratacache.stores.null import NullStore
from stratacache.tiers.exact import ExactTier
from stratacache.types import Absent, Entry, Hit, Key, Miss

KEY = Key(b"d" * 32, b"form")


SNAPSHOT = (("*", 7),)
ABSENT = Absent("not_found", SNAPSHOT)


class OneEntry(NullStore):
    """Answers every get by ``found``."""

    def __init__(self, found: Callable[[], Awaitable[Entry | Absent]]) -> None:
        super().__init__()
        self._found = found

    async def get(self, digest: bytes, tags: Sequence[str] = ()) -> Entry | Absent:
        return await self._found()


def entry(clock: FakeClock, *, age: float = 0, form: bytes = b"form") -> Entry:
    now = clock.now()
    return Entry(form, b"{}", created_at=now - age, expires_at=now + 100, versions=SNAPSHOT)


async def lookup(
    entry: Entry | BaseException | Absent, clock: FakeClock, max_age: float | None = None
) -> Hit | Miss:
    async def found() -> Entry | Absent:
        if isinstance(entry, BaseException):
            raise entry
        return entry

    return await ExactTier(OneEntry(found).get, clock).lookup(KEY, ["*"], max_age=max_age)


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
    assert await lookup(entry(clock, form=b"other"), clock) == Miss("collision", SNAPSHOT)


async def test_max_age_is_inclusive() -> None:
    clock = FakeClock()
    assert isinstance(await lookup(entry(clock, age=60), clock, 60), Hit)
    old = entry(clock, age=61)
    assert await lookup(old, clock, 60) == Miss("too_old", SNAPSHOT, old)


async def test_an_expired_entry_is_a_miss_that_brings_it_for_when_the_upstream_fails() -> None:
    clock = FakeClock()
    stored = entry(clock)
    clock.advance(100)
    assert await lookup(stored, clock) == Miss("expired", SNAPSHOT, stored)


async def test_a_remembered_no_answer_says_so() -> None:
    clock = FakeClock()
    got = await lookup(msgspec.structs.replace(entry(clock), negative=True), clock)
    assert isinstance(got, Hit)
    assert got.reason == "negative"


@pytest.mark.parametrize("reason", ["not_found", "outdated", "untagged"])
async def test_what_the_store_refuses_is_a_miss_with_the_snapshot(reason: Any) -> None:
    assert await lookup(Absent(reason, SNAPSHOT), FakeClock()) == Miss(reason, SNAPSHOT)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (StoreError("disk full"), "store_error"),
        (StoreSlow("took too long"), "store_slow"),
        (StoreDown("left alone"), "store_down"),
        (ValueError("a bug in the store"), "store_error"),
    ],
)
async def test_faults_are_misses_without_a_snapshot(fault: BaseException, reason: str) -> None:
    assert await lookup(fault, FakeClock()) == Miss(reason)


async def test_a_cancelled_request_is_not_turned_into_a_miss() -> None:
    async def never() -> Entry | Absent:
        await asyncio.Event().wait()
        return ABSENT

    looking = asyncio.ensure_future(ExactTier(OneEntry(never).get, FakeClock()).lookup(KEY, ["*"]))
    await asyncio.sleep(0)
    looking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await looking
