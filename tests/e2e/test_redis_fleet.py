"""Four gateway processes on one Redis: one upstream call for a question among all, also when the leader is killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.fakes.upstream import FakeUpstream, Gate, Reply
from tests.gateway_process import Serving, serving, upstream_of
from tests.harness import question
from tests.servers.redis import RedisServer

pytest_plugins = ["tests.servers.fixtures"]

PROCESSES = 4
EACH = 50  # requests
LIMIT = 30.0  # seconds; beyond it the test has failed


class Fleet:
    """Gateway processes, their Redis, and clients that have a connection for every request."""

    def __init__(self, gateways: list[Serving], server: RedisServer, http: aiohttp.ClientSession) -> None:
        self.gateways = gateways
        self.server = server
        self.http = http

    def ask(self, gateway: Serving, text: str, **fields: Any) -> asyncio.Task[tuple[int, bytes]]:
        return asyncio.ensure_future(self._ask(gateway, question(text, **fields)))

    async def _ask(self, gateway: Serving, body: Any) -> tuple[int, bytes]:
        async with self.http.post(f"{gateway.url}/chat/completions", json=body) as response:
            return response.status, await response.read()

    async def followed(self) -> None:
        """Wait until another instance follows the one flight that there is."""
        await until(self._is_followed)

    def _is_followed(self) -> bool:
        leases = self.server.command("KEYS", "*}l:*")
        flights = [flight for each in leases if (flight := self.server.command("GET", each))]
        return bool(flights) and all(
            self.server.command("EXISTS", b"{strata}w:" + flight) for flight in flights
        )


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT):
        while not true():  # noqa: ASYNC110 - it depends on other processes
            await asyncio.sleep(0.02)


async def within_limit(step: Awaitable[Any]) -> None:
    async with asyncio.timeout(LIMIT):
        await step


@pytest.fixture
async def fleet(fake: FakeUpstream, redis_server: RedisServer, tmp_path: Path) -> AsyncIterator[Fleet]:
    # The budget is ample: what is counted here are calls, and a busy machine must not add any.
    config = {
        "store": redis_server.url,
        "upstreams": [upstream_of(fake)],
        "tiers": {"exact": {"budget": 10}},
        "audit": {"path": None},
    }
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True))
        )
        folders = [tmp_path / str(number) for number in range(PROCESSES)]
        for folder in folders:
            folder.mkdir()
        starting = [asyncio.to_thread(stack.enter_context, serving(folder, config)) for folder in folders]
        yield Fleet(list(await asyncio.gather(*starting)), redis_server, http)


async def test_one_call_for_200_cold_requests_and_one_more_for_a_killed_leader(
    fake: FakeUpstream, fleet: Fleet
) -> None:
    for stream in (False, True):
        await _all_ask(fake, fleet, stream=stream)
    await _leader_dies_unheard(fake, fleet, fleet.gateways[0])
    await _leader_dies_midway(fake, fleet, fleet.gateways[1])


async def _all_ask(fake: FakeUpstream, fleet: Fleet, *, stream: bool) -> None:
    """Of 200 the upstream is asked by one; the first words of a stream come while it is still speaking."""
    before, gate = fake.chat_calls, Gate()
    fake.default = Reply(text="one two three", gates={2 if stream else 0: gate})
    asking = [
        fleet.ask(gateway, f"stream: {stream}", stream=stream)
        for _ in range(EACH)
        for gateway in fleet.gateways
    ]
    await within_limit(gate.reached.wait())
    await fleet.followed()
    gate.open()
    answers = await asyncio.gather(*asking)
    assert {status for status, _ in answers} == {200}
    assert all(b"three" in body for _, body in answers)
    assert fake.chat_calls == before + 1


async def _leader_dies_unheard(fake: FakeUpstream, fleet: Fleet, leader: Serving) -> None:
    """Nobody has seen anything of its answer: one of the followers calls anew, for all."""
    before, first, second = fake.chat_calls, Gate(), Gate()
    fake.script(Reply(text="Never heard.", header_gate=first), Reply(text="Second.", header_gate=second))
    fake.default = Reply(text="A third call.")
    leading = fleet.ask(leader, "Who leads?")
    await within_limit(first.reached.wait())
    following = [
        fleet.ask(gateway, "Who leads?", stream=False)
        for gateway in fleet.gateways
        if gateway is not leader
        for _ in range(5)
    ]
    await fleet.followed()
    leader.kill()
    with pytest.raises(aiohttp.ClientError):
        await leading
    await within_limit(second.reached.wait())
    second.open()
    for answer in await asyncio.gather(*following):
        assert answer[0] == 200
        assert b"Second." in answer[1]
    assert fake.chat_calls == before + 2


async def _leader_dies_midway(fake: FakeUpstream, fleet: Fleet, leader: Serving) -> None:
    """Its followers' clients have seen the beginning: the streams end with an error, and nobody is asked again."""
    before, gate = fake.chat_calls, Gate()
    fake.default = Reply(text="one two three", gates={3: gate})
    leading = fleet.ask(leader, "Midway?", stream=True)
    await within_limit(gate.reached.wait())
    follower = fleet.gateways[-1]
    url = f"{follower.url}/chat/completions"
    async with fleet.http.post(url, json=question("Midway?", stream=True)) as response:
        await fleet.followed()
        while b"two" not in await response.content.readuntil(b"\n\n"):
            pass
        leader.kill()
        with pytest.raises(aiohttp.ClientError):
            await leading
        rest = await response.read()
    assert b"three" not in rest
    assert b"upstream_cut" in rest
    assert fake.chat_calls == before + 1
