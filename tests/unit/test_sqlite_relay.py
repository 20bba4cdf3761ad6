"""The SQLite relay: leases end by the clock, whichever way it is set, and nothing stays in the file."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.clock import FakeClock

from stratacache.errors import StoreError
from stratacache.ports import Followed, Standing
from stratacache.stores.sqlite_flights import LAYOUT
from stratacache.stores.sqlite_relay import SQLiteRelay

LEASE = 2.0
PLACE = b"a place"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache.db.flights"


@pytest.fixture
async def one(path: Path, clock: FakeClock) -> AsyncIterator[SQLiteRelay]:
    relay = SQLiteRelay(path, clock, busy_seconds=0.05)
    yield relay
    await relay.close()


@pytest.fixture
async def other(one: SQLiteRelay, path: Path, clock: FakeClock) -> AsyncIterator[SQLiteRelay]:
    relay = SQLiteRelay(path, clock, busy_seconds=0.05)
    yield relay
    await relay.close()


def rows(path: Path, table: str) -> int:
    connection = sqlite3.connect(path)
    count: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    connection.close()
    return count


def size_of(path: Path) -> int:
    return path.stat().st_size


def spoil(path: Path) -> None:
    path.write_bytes(b"rubbish" * 1000)


async def test_a_dead_leader_is_replaced_when_its_lease_ends(
    one: SQLiteRelay, other: SQLiteRelay, clock: FakeClock
) -> None:
    await one.claim(PLACE, LEASE)
    await one.publish(PLACE, [b"said"])
    clock.advance(LEASE - 0.01)
    assert not await other.claim(PLACE, LEASE)
    assert (await other.follow(PLACE, 0)).frames == [b"said"]
    clock.advance(0.01)
    assert await other.follow(PLACE, 1) == Followed([], led=False)
    assert await other.claim(PLACE, LEASE)
    assert await one.renew(PLACE, LEASE) == Standing(held=False, wanted=False)
    await one.publish(PLACE, [b"too late"])
    await one.release(PLACE)
    assert not await one.claim(PLACE, LEASE)


async def test_a_lease_is_renewed_from_now(one: SQLiteRelay, other: SQLiteRelay, clock: FakeClock) -> None:
    await one.claim(PLACE, LEASE)
    for _ in range(5):
        clock.advance(LEASE * 0.9)
        assert (await one.renew(PLACE, LEASE)).held
    assert not await other.claim(PLACE, LEASE)


async def test_a_lease_that_ran_out_is_held_again_unless_it_was_taken(
    one: SQLiteRelay, other: SQLiteRelay, clock: FakeClock
) -> None:
    await one.claim(PLACE, LEASE)
    clock.advance(LEASE * 2)
    await one.publish(PLACE, [b"not heard: nobody may count on it"])
    assert (await one.renew(PLACE, LEASE)).held
    await one.publish(PLACE, [b"heard"])
    assert (await other.follow(PLACE, 0)).frames == [b"heard"]


@pytest.mark.parametrize("back", [0.5, 1.0, 60.0, 1e6])
async def test_a_clock_set_back_keeps_a_dead_leader_for_twice_its_lease_at_most(
    one: SQLiteRelay, other: SQLiteRelay, clock: FakeClock, back: float
) -> None:
    await one.claim(PLACE, LEASE)
    clock.advance(1.0)
    clock.jump(-back)
    clock.advance(2 * LEASE - 1.0)
    assert await other.claim(PLACE, LEASE)


async def test_a_clock_set_back_does_not_end_the_lease_of_one_that_renews(
    one: SQLiteRelay, other: SQLiteRelay, clock: FakeClock
) -> None:
    await one.claim(PLACE, LEASE)
    await one.publish(PLACE, [b"before"])
    clock.jump(-1000)
    assert (await one.renew(PLACE, LEASE)).held
    assert not await other.claim(PLACE, LEASE)
    assert (await other.follow(PLACE, 0)).frames == [b"before"]


async def test_who_took_the_time_before_a_lease_was_granted_still_sees_it(
    one: SQLiteRelay, other: SQLiteRelay, clock: FakeClock
) -> None:
    """Two instances ask at the same moment: the one that took the time first may get its turn last."""
    assert await one.claim(PLACE, LEASE)
    await one.publish(PLACE, [b"frame"])
    clock.jump(-0.01)
    assert not await other.claim(PLACE, LEASE)
    assert await other.follow(PLACE, 0) == Followed([b"frame"], led=True)
    await one.publish(PLACE, [b"more"])
    assert await other.follow(PLACE, 1) == Followed([b"more"], led=True)


async def test_an_ending_is_kept_as_long_as_asked(
    one: SQLiteRelay, other: SQLiteRelay, clock: FakeClock
) -> None:
    await one.claim(PLACE, LEASE)
    await one.publish(PLACE, [b"first", b"last"])
    assert (await other.follow(PLACE, 0)).frames == [b"first", b"last"]
    await one.release(PLACE, keep=5.0)
    clock.advance(4.9)
    assert await other.follow(PLACE, 1) == Followed([b"last"], led=False)
    clock.advance(0.1)
    assert await other.follow(PLACE, 1) == Followed([], led=False)


async def test_who_reads_an_ending_is_not_disturbed_by_a_new_leader(
    one: SQLiteRelay, other: SQLiteRelay
) -> None:
    await one.claim(PLACE, LEASE)
    await one.publish(PLACE, [b"first", b"last"])
    assert (await other.follow(PLACE, 0)).frames == [b"first", b"last"]
    await one.release(PLACE, keep=5.0)
    await one.claim(PLACE, LEASE)
    await one.publish(PLACE, [b"of another call", b"too"])
    assert (await other.follow(PLACE, 1)).frames == [b"last"]


async def test_what_is_over_leaves_the_file(
    one: SQLiteRelay, other: SQLiteRelay, clock: FakeClock, path: Path
) -> None:
    for number in range(50):
        place = str(number).encode()
        await one.claim(place, LEASE)
        await one.publish(place, [b"frame"] * 3)
        if number % 2:
            await one.release(place, keep=3.0)
    assert (rows(path, "flights"), rows(path, "frames")) == (50, 150)
    clock.advance(10)
    for number in range(2):
        await other.claim(b"fresh %d" % number, LEASE)
    assert (rows(path, "flights"), rows(path, "frames")) == (2, 0)


async def test_what_a_set_clock_left_behind_leaves_the_file_too(
    one: SQLiteRelay, clock: FakeClock, path: Path
) -> None:
    clock.jump(1e7)
    await one.claim(PLACE, 1e9)
    await one.publish(PLACE, [b"frame"])
    clock.jump(-1e7)
    await one.claim(b"another", LEASE)
    assert (rows(path, "flights"), rows(path, "frames")) == (1, 0)


async def test_a_full_file_is_an_error_and_room_comes_back(
    path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stratacache.stores.sqlite_flights.LAYOUT", LAYOUT._replace(most_bytes=200_000))
    relay = SQLiteRelay(path, clock)
    await relay.claim(PLACE, LEASE)
    with pytest.raises(StoreError, match="full"):
        await relay.publish(PLACE, [bytes(300_000)])
    await relay.publish(PLACE, [bytes(100_000)])
    with pytest.raises(StoreError, match="full"):
        await relay.publish(PLACE, [bytes(100_000)])
    clock.advance(LEASE)
    await relay.claim(PLACE, LEASE)
    await relay.publish(PLACE, [bytes(100_000)])
    await relay.close()
    assert size_of(path) <= 200_000


async def test_a_lock_is_an_error_for_writes(one: SQLiteRelay, other: SQLiteRelay, path: Path) -> None:
    await one.claim(PLACE, LEASE)
    await one.publish(PLACE, [b"frame"])
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    for call in (one.claim(b"b", LEASE), one.renew(PLACE, LEASE), one.publish(PLACE, [b"x"])):
        with pytest.raises(StoreError, match="locked"):
            await call
    assert (await other.follow(PLACE, 0)).frames == [b"frame"]
    holder.close()
    assert (await one.renew(PLACE, LEASE)).held


async def test_a_damaged_file_is_replaced(path: Path, clock: FakeClock) -> None:
    spoil(path)
    relay = SQLiteRelay(path, clock)
    assert await relay.claim(PLACE, LEASE)
    await relay.close()


async def test_no_more_places_are_remembered_than_allowed(
    one: SQLiteRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stratacache.stores.sqlite_relay._MOST_PLACES", 3)
    for number in range(6):
        await one.claim(str(number).encode(), LEASE)
    assert [(await one.renew(str(number).encode(), LEASE)).held for number in range(6)] == [
        False,
        False,
        False,
        True,
        True,
        True,
    ]
    assert (len(one._led), len(one._followed)) == (3, 0)


async def test_cancelling_a_follower_stops_it(one: SQLiteRelay, other: SQLiteRelay) -> None:
    await one.claim(PLACE, LEASE)
    following = asyncio.create_task(other.follow(PLACE, 0))
    await asyncio.sleep(0)
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
    assert await other.claim(b"another", LEASE)
