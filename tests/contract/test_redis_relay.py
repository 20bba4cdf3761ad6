"""Single-flight over Redis when the server loses a part of a flight: it ends for those who follow, never wrongly."""

from __future__ import annotations

import asyncio

import pytest
from tests.contract.redis_kit import instance
from tests.servers.redis import RedisServer

from stratacache.errors import StoreError
from stratacache.ports import Followed, Relay, Standing

pytest_plugins = ["tests.servers.fixtures"]

PLACE = b"p" * 16


def evict(server: RedisServer, pattern: str) -> None:
    """As a server does that runs short of memory."""
    keys = server.command("KEYS", f"{{strata}}{pattern}")
    assert keys
    server.command("DEL", *keys)


@pytest.mark.parametrize("heard", [0, 1, 2])
async def test_lost_frames_end_the_flight(redis_server: RedisServer, heard: int) -> None:
    async with instance(redis_server.url) as one, instance(redis_server.url) as other:
        leader, follower = _relay(one.relay), _relay(other.relay)
        assert await leader.claim(PLACE, 60)
        await leader.publish(PLACE, [b"a", b"b"])
        assert (await follower.follow(PLACE, 0)).frames == (b"a", b"b")
        evict(redis_server, "r:*")
        await leader.publish(PLACE, [b"c", b"d", b"e"])
        followed = await follower.follow(PLACE, heard)
        assert followed == Followed((), led=False)
        assert await leader.renew(PLACE, 60) == Standing(held=False, wanted=False)


async def test_frames_that_are_missed_before_more_come_end_it_as_well(redis_server: RedisServer) -> None:
    async with instance(redis_server.url) as one, instance(redis_server.url) as other:
        leader, follower = _relay(one.relay), _relay(other.relay)
        assert await leader.claim(PLACE, 60)
        await leader.publish(PLACE, [b"a", b"b"])
        assert (await follower.follow(PLACE, 0)).frames == (b"a", b"b")
        evict(redis_server, "r:*")
        assert await follower.follow(PLACE, 2) == Followed((), led=False)


async def test_a_lost_lease_ends_it(redis_server: RedisServer) -> None:
    async with instance(redis_server.url) as one, instance(redis_server.url) as other:
        leader, follower = _relay(one.relay), _relay(other.relay)
        assert await leader.claim(PLACE, 60)
        await leader.publish(PLACE, [b"a"])
        evict(redis_server, "l:*")
        await leader.publish(PLACE, [b"b"])
        assert await follower.follow(PLACE, 0) == Followed((b"a",), led=False)
        assert await follower.claim(PLACE, 60)
        assert not await leader.claim(PLACE, 60)


async def test_three_hundred_follow_on_one_connection(redis_server: RedisServer) -> None:
    async with instance(redis_server.url) as one, instance(redis_server.url) as other:
        leader, follower = _relay(one.relay), _relay(other.relay)
        places = [bytes([number // 256, number % 256]) * 8 for number in range(300)]
        assert all(await asyncio.gather(*[leader.claim(place, 60) for place in places]))
        following = [asyncio.create_task(follower.follow(place, 0)) for place in places]
        await asyncio.gather(*[leader.publish(place, [place]) for place in places])
        for place, task in zip(places, following, strict=True):
            news = await task
            assert (news if news.frames else await follower.follow(place, 0)).frames == (place,)
        assert len(redis_server.command("CLIENT", "LIST").splitlines()) == 3  # with this command's own


async def test_a_dead_server_is_a_store_error() -> None:
    with RedisServer() as server:
        async with instance(server.url) as one:
            relay = _relay(one.relay)
            assert await relay.claim(PLACE, 60)
            server.kill()
            for call in (relay.renew(PLACE, 60), relay.publish(PLACE, [b"a"]), relay.claim(b"q" * 16, 60)):
                with pytest.raises(StoreError):
                    await call


def _relay(relay: Relay | None) -> Relay:
    assert relay is not None
    return relay
