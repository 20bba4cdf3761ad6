"""Single-flight across instances over a real Memcached server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from tests.servers.memcached import MemcachedServer, memcached

from stratacache.errors import StoreError
from stratacache.ports import Followed, Standing
from stratacache.stores.memcached_relay import MemcachedRelay
from stratacache.stores.memcached_ring import Ring

PLACE = b"a place \x00\r\n" * 30


@pytest.fixture
def server() -> Iterator[MemcachedServer]:
    with memcached() as made:
        yield made


@asynccontextmanager
async def instance(server: MemcachedServer) -> AsyncIterator[MemcachedRelay]:
    ring = Ring.of(server.name)
    relay = MemcachedRelay(ring, prefix="t")
    yield relay
    await relay.close()
    await relay.close()
    ring.close()


@pytest.fixture
async def relays(server: MemcachedServer) -> AsyncIterator[Sequence[MemcachedRelay]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(instance(server)) for _ in range(3)]


def forget(server: MemcachedServer) -> None:
    """All that the server holds is gone, as when leases expire."""
    assert server.say(b"flush_all\r\n") == b"OK\r\n"


async def test_one_of_many_leads(relays: Sequence[MemcachedRelay]) -> None:
    claims = await asyncio.gather(*(relay.claim(PLACE, 5.0) for relay in relays for _ in range(20)))
    assert sum(claims) == 1
    assert await relays[0].claim(b"another place", 5.0)


async def test_followers_hear_what_the_leader_publishes_and_it_knows_of_them(
    relays: Sequence[MemcachedRelay],
) -> None:
    leader, follower, late = relays
    assert await leader.claim(PLACE, 5.0)
    assert not await follower.claim(PLACE, 5.0)
    assert await leader.renew(PLACE, 5.0) == Standing(held=True, wanted=False)
    waiting = asyncio.create_task(follower.follow(PLACE, 0))
    while not (await leader.renew(PLACE, 5.0)).wanted:
        pass
    await leader.publish(PLACE, [b"one", b"", b"\r\nEND\r\n"])
    assert await waiting == Followed([b"one", b"", b"\r\nEND\r\n"], led=True)
    await leader.publish(PLACE, [b"four"])
    assert await follower.follow(PLACE, 3) == Followed([b"four"], led=True)
    assert await follower.follow(PLACE, 4) == Followed((), led=True)
    await leader.release(PLACE, keep=5.0)
    assert await late.follow(PLACE, 0) == Followed([b"one", b"", b"\r\nEND\r\n", b"four"], led=False)
    assert await follower.follow(PLACE, 4) == Followed((), led=False)


async def test_one_who_was_refused_the_lead_can_follow_after_the_landing(
    relays: Sequence[MemcachedRelay],
) -> None:
    leader, follower, _ = relays
    assert await leader.claim(PLACE, 5.0)
    await leader.publish(PLACE, [b"all"])
    assert not await follower.claim(PLACE, 5.0)
    await leader.release(PLACE, keep=5.0)
    assert await follower.follow(PLACE, 0) == Followed([b"all"], led=False)


async def test_a_released_place_can_be_claimed_and_its_frames_are_forgotten(
    relays: Sequence[MemcachedRelay],
) -> None:
    first, second, third = relays
    for keep in (0.0, 5.0):
        assert await first.claim(PLACE, 5.0)
        await first.publish(PLACE, [b"old"])
        assert (await third.follow(PLACE, 0)).frames == [b"old"]
        await first.release(PLACE, keep=keep)
        assert await second.claim(PLACE, 5.0)
        assert await third.follow(PLACE, 1) == Followed((), led=False), "the flight it followed is over"
        await second.publish(PLACE, [b"new"])
        assert await third.follow(PLACE, 0) == Followed([b"new"], led=True)
        await second.release(PLACE)
        assert await third.follow(PLACE, 1) == Followed((), led=False)


async def test_a_leader_that_lost_its_lease_neither_renews_nor_is_heard(
    server: MemcachedServer, relays: Sequence[MemcachedRelay]
) -> None:
    old, new, follower = relays
    assert await old.claim(PLACE, 5.0)
    forget(server)
    assert await new.claim(PLACE, 5.0)
    await old.publish(PLACE, [b"from the old one"])
    await new.publish(PLACE, [b"from the new one"])
    assert await follower.follow(PLACE, 0) == Followed([b"from the new one"], led=True)
    assert await old.renew(PLACE, 5.0) == Standing(held=False, wanted=False)
    await old.release(PLACE)
    assert (await new.renew(PLACE, 5.0)).held


async def test_a_dead_leader_is_noticed_and_replaced(
    server: MemcachedServer, relays: Sequence[MemcachedRelay]
) -> None:
    leader, follower, _ = relays
    assert await leader.claim(PLACE, 0.1)
    assert not await follower.claim(PLACE, 0.1)
    async with asyncio.timeout(10):
        while (await follower.follow(PLACE, 0)).led:  # the server's clock ends the lease
            pass
    assert await follower.claim(PLACE, 5.0)


async def test_large_frames_and_many_frames_arrive_whole(relays: Sequence[MemcachedRelay]) -> None:
    leader, follower, _ = relays
    frames = [bytes([number % 256]) * (number * 7) for number in range(1_300)]
    frames[5] = b"x" * 3_000_001
    assert await leader.claim(PLACE, 5.0)
    await leader.publish(PLACE, frames)
    await leader.release(PLACE, keep=5.0)
    heard: list[bytes] = []
    while news := (await follower.follow(PLACE, len(heard))).frames:
        heard += news
    assert heard == frames


async def test_lost_frames_are_an_error_and_not_a_gap(
    server: MemcachedServer, relays: Sequence[MemcachedRelay]
) -> None:
    leader, follower, _ = relays
    assert await leader.claim(PLACE, 60.0)
    await leader.publish(PLACE, [b"one", b"two", b"x" * 2_000_000])
    flight = next(iter(leader._led.values())).name
    assert server.say(b"delete t:f:%b:2:2\r\n" % flight) == b"DELETED\r\n"
    with pytest.raises(StoreError, match="lost"):
        await follower.follow(PLACE, 0)


async def test_only_the_leader_publishes_renews_and_releases(relays: Sequence[MemcachedRelay]) -> None:
    leader, other, follower = relays
    assert await leader.claim(PLACE, 5.0)
    await other.publish(PLACE, [b"not mine to tell"])
    await other.release(PLACE)
    assert not (await other.renew(PLACE, 5.0)).held
    assert await follower.follow(PLACE, 0) == Followed((), led=True)


async def test_nobody_leads_a_place_that_was_never_claimed(relays: Sequence[MemcachedRelay]) -> None:
    assert await relays[0].follow(PLACE, 0) == Followed((), led=False)
    assert await relays[0].follow(PLACE, 3) == Followed((), led=False)


async def test_closing_ends_calls_that_wait(relays: Sequence[MemcachedRelay]) -> None:
    leader, follower, _ = relays
    assert await leader.claim(PLACE, 5.0)
    waiting = asyncio.create_task(follower.follow(PLACE, 0))
    await asyncio.sleep(0)
    await follower.close()
    with pytest.raises(StoreError, match="closed"):
        await waiting
    with pytest.raises(StoreError, match="closed"):
        await follower.claim(PLACE, 5.0)


async def test_a_dead_server_is_a_store_error(
    server: MemcachedServer, relays: Sequence[MemcachedRelay]
) -> None:
    leader, follower, _ = relays
    assert await leader.claim(PLACE, 5.0)
    server.kill()
    for call in (
        follower.claim(PLACE, 5.0),
        follower.follow(PLACE, 0),
        leader.publish(PLACE, [b"x"]),
        leader.renew(PLACE, 5.0),
        leader.release(PLACE),
    ):
        with pytest.raises(StoreError):
            await call
