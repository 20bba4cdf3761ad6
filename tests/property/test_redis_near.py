"""Copies of two instances before a real Redis that fails at random: no read is stale or foreign, whatever is lost."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from itertools import count

import pytest
from tests.contract.redis_kit import instance
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer
from tests.servers.resp import RedisError

from stratacache.clock import SystemClock
from stratacache.errors import StoreError
from stratacache.observe.metrics import Metrics
from stratacache.stores.near import NearCache
from stratacache.types import Entry

DIGESTS = [bytes([number]) * 16 for number in range(4)]
TAGS = ["x", "y"]
CLIENTS = 4  # tasks that ask and invalidate at once
STEPS = 120  # of each at least
PATIENCE = 0.1  # seconds for one step; a black hole takes it all


class History:
    """What may be read. Moments are counted, not timed.

    An answer whose snapshot was had before an invalidation began must not be read once that has returned.
    """

    def __init__(self) -> None:
        self._moments = 0
        self.asked: dict[bytes, int] = {}  # body → the moment when its snapshot was had
        self.fences = dict.fromkeys(
            TAGS, 0
        )  # tag → the latest beginning of an invalidation that has returned
        self.read = self.returned = 0

    @property
    def says_enough(self) -> bool:
        """Whether so much was read and invalidated that it means something."""
        return self.read > 20 and self.returned > 5

    def moment(self) -> int:
        self._moments += 1
        return self._moments

    def returns(self, tags: list[str], began: int) -> None:
        self.returned += 1
        for tag in tags:
            self.fences[tag] = max(self.fences[tag], began)

    def judge(self, digest: bytes, tags: list[str], fences: dict[str, int], entry: Entry) -> None:
        """``fences`` are those of the moment when the reading began."""
        self.read += 1
        assert entry.form == digest, "a foreign entry"
        assert set(tags) <= set(entry.tags), "an invalidation would not reach it"
        for tag in entry.tags:
            assert self.asked[entry.body] >= fences[tag], "a stale entry"


class Client:
    """Asks, answers and invalidates on its instance."""

    def __init__(self, near: NearCache, history: History, chance: random.Random) -> None:
        self._near = near
        self._history = history
        self._chance = chance

    async def work(self) -> None:
        for step in count():
            if step >= STEPS and self._history.says_enough:
                return
            # Who gives up an invalidation has not seen it return.
            with contextlib.suppress(StoreError, TimeoutError):
                if self._chance.random() < 0.15:
                    async with asyncio.timeout(3):
                        await self._invalidate()
                else:
                    async with asyncio.timeout(PATIENCE):
                        await self._ask()
            await asyncio.sleep(self._chance.random() * 0.01)

    async def _ask(self) -> None:
        history, chance = self._history, self._chance
        digest, tags = chance.choice(DIGESTS), chance.sample(TAGS, chance.randrange(3))
        fences = dict(history.fences)
        found = await self._near.get(digest, tags)
        if isinstance(found, Entry):
            history.judge(digest, tags, fences, found)
            return
        asked = history.moment()
        await asyncio.sleep(chance.random() * 0.02)  # the model thinks
        body = b"%d" % asked
        history.asked[body] = asked
        now = time.time()
        await self._near.put(digest, Entry(digest, body, now, now + 600, versions=found.versions))

    async def _invalidate(self) -> None:
        tags = self._chance.sample(TAGS, self._chance.randrange(1, 3))
        digests = self._chance.sample(DIGESTS, self._chance.randrange(2))
        began = self._history.moment()
        await self._near.invalidate(tags, digests)
        self._history.returns(tags, began)


class Trouble:
    """What befalls the server, one thing after the other."""

    def __init__(self, server: RedisServer, proxy: Proxy, chance: random.Random) -> None:
        self._server = server
        self._proxy = proxy
        self._chance = chance
        self.kinds = [
            self._cut_subscribers,
            self._cut_all,
            self._evict,
            self._evict_news,
            self._restart_empty,
            self._swallow,
            self._slow,
        ]

    async def befall(self) -> None:
        order: Iterator[Callable[[], Awaitable[None]]] = iter(())
        while True:
            await asyncio.sleep(self._chance.random() * 0.3)
            kind = next(order, None)
            if kind is None:
                order = iter(self._chance.sample(self.kinds, len(self.kinds)))
                continue
            with contextlib.suppress(OSError, RedisError):
                await kind()

    async def _cut_subscribers(self) -> None:
        self._server.command("CLIENT", "KILL", "TYPE", "pubsub")

    async def _cut_all(self) -> None:
        self._server.command("CLIENT", "KILL", "TYPE", "normal")

    async def _evict(self) -> None:
        for _ in range(5):
            key = self._server.command("RANDOMKEY")
            if key is not None:
                self._server.command("DEL", key)

    async def _evict_news(self) -> None:
        self._server.command("DEL", self._chance.choice(["{strata}log", "{strata}instances"]))

    async def _restart_empty(self) -> None:
        await asyncio.to_thread(self._server.restart)

    async def _swallow(self) -> None:
        self._proxy.mode = "black_hole"
        await asyncio.sleep(self._chance.random())
        self._proxy.mode = "pass"
        self._proxy.cut()

    async def _slow(self) -> None:
        self._proxy.delay = 0.05
        await asyncio.sleep(0.3)
        self._proxy.delay = 0.0


@pytest.mark.parametrize("seed", range(3))
async def test_no_copy_is_stale_or_foreign(seed: int) -> None:
    chance = random.Random(seed)
    history = History()
    async with AsyncExitStack() as stack:
        server = stack.enter_context(RedisServer())
        proxy = await stack.enter_async_context(Proxy(server.port))
        nears = []
        for url in (server.url, f"redis://127.0.0.1:{proxy.port}"):
            backend = await stack.enter_async_context(instance(url))
            assert backend.bulletin is not None
            near = NearCache(backend.store, backend.bulletin, Metrics(), SystemClock(), max_bytes=100_000)
            await backend.bulletin.start(near.hear)
            nears.append(near)
        trouble = asyncio.create_task(Trouble(server, proxy, chance).befall())
        clients = [Client(nears[number % 2], history, chance) for number in range(CLIENTS)]
        try:
            async with asyncio.timeout(120):  # of a machine with much else to do
                await asyncio.gather(*[client.work() for client in clients])
        finally:
            trouble.cancel()
            await asyncio.gather(trouble, return_exceptions=True)
    assert history.says_enough
