"""What every relay promises: one leader for a place, and followers who hear one flight from its beginning."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.clock import FakeClock
from tests.contract.backends import Kind, kinds

from stratacache.errors import StoreError
from stratacache.ports import Followed, Relay, Standing
from stratacache.stores import Backend

pytestmark = kinds(relay=True)
LEASE = 30.0  # seconds; longer than any test takes
DEADLINE = 10.0

PLACE = hashlib.sha256(b"a place").digest()


@pytest.fixture
def clock() -> FakeClock:
    """One for both instances, as they share a machine."""
    return FakeClock()


@pytest.fixture
async def backend(kind: Kind, clock: FakeClock, tmp_path: Path) -> AsyncIterator[Backend]:
    async with kind.open(clock, 200_000, tmp_path) as opened:
        yield opened


@pytest.fixture
async def one(backend: Backend) -> Relay:
    assert backend.relay is not None
    return backend.relay


@pytest.fixture
async def other(one: Relay, kind: Kind, clock: FakeClock, tmp_path: Path) -> AsyncIterator[Relay]:
    async with kind.open(clock, 200_000, tmp_path) as opened:
        assert opened.relay is not None
        yield opened.relay


def shown(followed: Followed) -> tuple[list[bytes], bool]:
    return list(followed.frames), followed.led


async def hear(relay: Relay, place: bytes, heard: int, count: int) -> list[bytes]:
    """``count`` frames from number ``heard`` on."""
    frames: list[bytes] = []
    async with asyncio.timeout(DEADLINE):
        while len(frames) < count:
            news = await relay.follow(place, heard + len(frames))
            assert news.led or news.frames
            frames += news.frames
    return frames


async def test_one_leads_at_a_time(one: Relay, other: Relay) -> None:
    assert await one.claim(PLACE, LEASE)
    assert not await other.claim(PLACE, LEASE)
    assert not await one.claim(PLACE, LEASE), "this instance included"
    assert await other.claim(b"another place", LEASE)


async def test_of_many_claims_at_once_one_succeeds(one: Relay, other: Relay) -> None:
    claims = await asyncio.gather(*(relay.claim(PLACE, LEASE) for relay in (one, other) * 8))
    assert sum(claims) == 1


async def test_a_released_place_is_free(one: Relay, other: Relay) -> None:
    for keep in (0.0, LEASE):
        assert await one.claim(PLACE, LEASE)
        await one.release(PLACE, keep=keep)
        assert await other.claim(PLACE, LEASE)
        await other.release(PLACE)


async def test_who_does_not_lead_changes_nothing(one: Relay, other: Relay) -> None:
    await one.claim(PLACE, LEASE)
    await one.publish(PLACE, [b"first"])
    assert await other.renew(PLACE, LEASE) == Standing(held=False, wanted=False)
    await other.publish(PLACE, [b"foreign"])
    await other.release(PLACE)
    assert not await other.claim(PLACE, LEASE)
    assert await hear(other, PLACE, 0, 1) == [b"first"]
    assert (await one.renew(PLACE, LEASE)).held


async def test_a_leader_is_told_that_it_is_wanted(one: Relay, other: Relay) -> None:
    await one.claim(PLACE, LEASE)
    assert await one.renew(PLACE, LEASE) == Standing(held=True, wanted=False)
    assert shown(await other.follow(PLACE, 0)) == ([], True)
    assert await one.renew(PLACE, LEASE) == Standing(held=True, wanted=True)


async def test_a_new_flight_is_not_wanted_yet(one: Relay, other: Relay) -> None:
    await one.claim(PLACE, LEASE)
    await other.follow(PLACE, 0)
    await one.release(PLACE)
    await one.claim(PLACE, LEASE)
    assert await one.renew(PLACE, LEASE) == Standing(held=True, wanted=False)


async def test_followers_hear_every_frame_in_order(one: Relay, other: Relay) -> None:
    frames = [b"", b"\x00\xff", "答案".encode(), *(str(number).encode() for number in range(30))]
    await one.claim(PLACE, LEASE)
    await one.publish(PLACE, frames[:3])
    assert await hear(other, PLACE, 0, 3) == frames[:3]
    hearing = asyncio.create_task(hear(other, PLACE, 3, len(frames) - 3))
    for number in range(3, len(frames), 5):
        await one.publish(PLACE, frames[number : number + 5])
    assert await hearing == frames[3:]
    assert await hear(other, PLACE, 10, len(frames) - 10) == frames[10:]


async def test_more_frames_than_one_answer_holds_come_whole(one: Relay, other: Relay) -> None:
    frames = [str(number).encode() * 10 for number in range(1500)]
    await one.claim(PLACE, LEASE)
    await one.publish(PLACE, frames)
    assert await hear(other, PLACE, 0, len(frames)) == frames


async def test_a_large_frame_comes_whole(one: Relay, other: Relay) -> None:
    frame = bytes(range(256)) * 12_000  # 3 MB
    await one.claim(PLACE, LEASE)
    await one.publish(PLACE, [frame])
    assert await hear(other, PLACE, 0, 1) == [frame]


async def test_a_follower_waits_a_moment_for_news(one: Relay, other: Relay) -> None:
    await one.claim(PLACE, LEASE)
    following = asyncio.create_task(hear(other, PLACE, 0, 1))
    async with asyncio.timeout(DEADLINE):
        while not (await one.renew(PLACE, LEASE)).wanted:  # noqa: ASYNC110 - another instance is to ask
            await asyncio.sleep(0.005)
    await one.publish(PLACE, [b"news"])
    assert await following == [b"news"]


async def test_the_ending_can_be_heard_after_the_release(one: Relay, other: Relay) -> None:
    await one.claim(PLACE, LEASE)
    await one.publish(PLACE, [b"first", b"last"])
    assert await hear(other, PLACE, 0, 2) == [b"first", b"last"]
    await one.release(PLACE, keep=LEASE)
    assert shown(await other.follow(PLACE, 1)) == ([b"last"], False)
    assert shown(await other.follow(PLACE, 2)) == ([], False)


async def test_nobody_leads_an_unknown_place(other: Relay) -> None:
    assert shown(await other.follow(b"unheard of", 0)) == ([], False)


async def test_a_flight_that_is_forgotten_is_not_led(one: Relay, other: Relay) -> None:
    await one.claim(PLACE, LEASE)
    await one.publish(PLACE, [b"first"])
    assert await hear(other, PLACE, 0, 1) == [b"first"]
    await one.release(PLACE)
    assert shown(await other.follow(PLACE, 1)) == ([], False)


async def test_a_new_flight_starts_without_frames(one: Relay, other: Relay) -> None:
    await one.claim(PLACE, LEASE)
    await one.publish(PLACE, [b"old", b"old too"])
    await one.release(PLACE, keep=LEASE)
    assert await other.claim(PLACE, LEASE)
    await other.publish(PLACE, [b"new"])
    assert await hear(one, PLACE, 0, 1) == [b"new"]


async def test_who_followed_one_flight_never_hears_another(one: Relay, other: Relay) -> None:
    """Else the answer would begin with one call's words and end with another's."""
    await one.claim(PLACE, LEASE)
    await one.publish(PLACE, [b"old"])
    assert await hear(other, PLACE, 0, 1) == [b"old"]
    await one.release(PLACE)
    await one.claim(PLACE, LEASE)
    await one.publish(PLACE, [b"new", b"newer", b"newest"])
    assert shown(await other.follow(PLACE, 1)) == ([], False)
    assert await hear(other, PLACE, 0, 3) == [b"new", b"newer", b"newest"], "from the start it may"


async def test_after_close_every_call_is_an_error_but_close(one: Relay, other: Relay) -> None:
    await one.claim(PLACE, LEASE)
    following = asyncio.create_task(hear(other, PLACE, 0, 1))
    async with asyncio.timeout(DEADLINE):
        while not (await one.renew(PLACE, LEASE)).wanted:  # noqa: ASYNC110 - another instance is to ask
            await asyncio.sleep(0.005)
    await other.close()
    await other.close()
    with pytest.raises(StoreError, match="closed"):
        await following
    for call in (other.claim(PLACE, LEASE), other.follow(PLACE, 0)):
        with pytest.raises(StoreError, match="closed"):
            await call
