"""News of invalidations over Redis when the server loses a part of them: copies go, and nothing is trusted wrongly."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Sequence

import pytest
from tests.contract.redis_kit import instance
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer

from stratacache.errors import StoreError
from stratacache.stores import Backend, redis_bulletin
from stratacache.types import Invalidated

pytest_plugins = ["tests.servers.fixtures"]

HASH, LOG = "{strata}instances", "{strata}log"


class Listener:
    """An instance on ``redis_server``, and what its bulletin told."""

    def __init__(self, backend: Backend) -> None:
        assert backend.bulletin is not None
        self.backend = backend
        self.bulletin = backend.bulletin
        self.told: list[Invalidated | None] = []

    def hear(self, what: Invalidated | None, digests: Sequence[bytes]) -> None:
        self.told.append(what)

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not true():  # noqa: ASYNC110 -- it depends on a server
                await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def listening(url: str) -> AsyncIterator[Listener]:
    async with instance(url) as backend:
        listener = Listener(backend)
        await listener.bulletin.start(listener.hear)
        await listener.until(listener.bulletin.current)
        yield listener


def beats(server: RedisServer) -> int:
    """How often the one instance has beaten."""
    return sum(int(value) for name, value in fields(server) if name.startswith(b"b:"))


def fields(server: RedisServer) -> list[tuple[bytes, bytes]]:
    found = server.command("HGETALL", HASH)
    return list(zip(found[::2], found[1::2], strict=True))


@pytest.mark.parametrize("lost", [(LOG,), (HASH,), (LOG, HASH)])
async def test_what_the_server_evicts_is_told_as_lost_once(
    redis_server: RedisServer, lost: tuple[str, ...]
) -> None:
    async with listening(redis_server.url) as one:
        await one.backend.store.invalidate(["a"])
        one.told.clear()
        redis_server.command("DEL", *lost)
        await one.until(lambda: None in one.told)
        before = beats(redis_server)
        await one.until(lambda: beats(redis_server) >= before + 3)
        assert one.told.count(None) <= 2, "it does not start afresh with every beat"
        one.told.clear()
        for name in "bc":
            done = await one.backend.store.invalidate([name])
            assert one.told[-1] in (Invalidated(None, done.versions), None)
        assert one.told[-1] is not None


async def test_an_old_number_is_no_receipt_for_a_new_log(redis_server: RedisServer) -> None:
    """What an instance had read of a log that is gone says nothing of the one that the server begins."""
    async with (
        Proxy(redis_server.port) as proxy,
        listening(f"redis://127.0.0.1:{proxy.port}") as one,
        instance(redis_server.url) as other,
    ):
        for _ in range(5):
            await other.store.invalidate(["a"])
        proxy.mode = "refuse"
        redis_server.command("DEL", HASH, LOG)
        done = await other.store.invalidate(["b"])  # number 1, and five were read before
        assert not one.bulletin.current()
        one.told.clear()
        proxy.delay = 0.5  # it has beaten, and not yet heard the answer
        proxy.mode = "pass"
        await one.until(lambda: beats(redis_server) > 0)
        (receipt,) = [value for name, value in fields(redis_server) if name.startswith(b"p:")]
        assert receipt == b"0"
        assert not one.bulletin.current()
        proxy.delay = 0.0
        await one.until(one.bulletin.current)
        assert one.told[0] in (Invalidated(None, done.versions), None)


async def test_a_dead_instance_is_waited_for_once(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = re.findall(rb"run_id:(\w+)", redis_server.command("INFO", "server"))[0]
    redis_server.command("HSET", HASH, "run", run, "b:dead", 7, "p:dead", 0)
    async with listening(redis_server.url) as one:
        await one.backend.store.invalidate(["a"])
        assert redis_server.command("HEXISTS", HASH, "b:dead") == 0
        assert redis_server.command("HEXISTS", HASH, "p:dead") == 0
        monkeypatch.setattr(redis_bulletin, "LEASE", 3600.0)  # nobody is left who is waited for
        async with asyncio.timeout(10):
            await one.backend.store.invalidate(["a"])


async def test_news_that_a_server_loses_before_all_have_heard_are_an_error(redis_server: RedisServer) -> None:
    redis_server.command("HSET", HASH, "b:late", 7, "p:late", 0)  # an instance that has not heard
    async with instance(redis_server.url) as one:
        invalidating = asyncio.create_task(one.store.invalidate(["a"]))
        async with asyncio.timeout(10):
            while not redis_server.command("EXISTS", LOG):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        redis_server.command("RPUSH", LOG, "another's", "and another's")
        redis_server.command("LTRIM", LOG, -2, -1)
        with pytest.raises(StoreError, match="repeat"):
            await invalidating


async def test_a_beat_that_reads_on_takes_no_lease_before_it_has_told(redis_server: RedisServer) -> None:
    """At the moment that an instance trusts its copies again it has told of all that it missed."""
    async with (
        Proxy(redis_server.port) as proxy,
        listening(f"redis://127.0.0.1:{proxy.port}") as one,
        instance(redis_server.url) as other,
    ):
        for number in range(3):
            proxy.mode = "refuse"
            done = await other.store.invalidate([f"tag {number}"])
            assert not one.bulletin.current()
            one.told.clear()
            proxy.mode = "pass"
            await one.until(one.bulletin.current)
            assert any(what is None or what.versions == done.versions for what in one.told)
