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


async def test_a_flight_whose_name_is_lost_is_waited_for_and_named_again(redis_server: RedisServer) -> None:
    async with instance(redis_server.url) as one, instance(redis_server.url) as other:
        leader, follower = _relay(one.relay), _relay(other.relay)
        assert await leader.claim(PLACE, 60)
        evict(redis_server, "f:*")
        assert await follower.follow(PLACE, 0) == Followed((), led=True)
        assert await leader.renew(PLACE, 60) == Standing(held=True, wanted=False)
        await leader.publish(PLACE, [b"a"])
        assert await follower.follow(PLACE, 0) == Followed((b"a",), led=True)


@pytest.mark.parametrize("kind", ["SET", "RPUSH"])
@pytest.mark.parametrize("key", ["l", "f"])
async def test_a_foreign_value_holds_a_place_no_longer_than_a_lease(
    redis_server: RedisServer, kind: str, key: str
) -> None:
    redis_server.command(kind, f"{{strata}}{key}:{PLACE.hex()}", "foreign")
    async with instance(redis_server.url) as one:
        relay = _relay(one.relay)
        async with asyncio.timeout(10):
            while not await relay.claim(PLACE, 0.3):
                assert not (await relay.follow(PLACE, 0)).frames
        await relay.publish(PLACE, [b"a"])
        assert await relay.follow(PLACE, 0) == Followed((b"a",), led=True)


@pytest.mark.parametrize("step", ["claim", "follow"])
async def test_a_clock_that_is_set_back_prolongs_no_lease(redis_server: RedisServer, step: str) -> None:
    """The server keeps ends, not durations: an hour back, and a dead leader's lease has an hour more."""
    async with instance(redis_server.url) as one, instance(redis_server.url) as other:
        leader, follower = _relay(one.relay), _relay(other.relay)
        assert await leader.claim(PLACE, 2)
        assert not await follower.claim(PLACE, 2)
        lease = f"{{strata}}l:{PLACE.hex()}"
        redis_server.command("PEXPIRE", lease, 3_600_000)
        await (follower.claim(PLACE, 2) if step == "claim" else follower.follow(PLACE, 0))
        assert 0 < redis_server.command("PTTL", lease) <= 2000
