"""Whole gateways on a Redis that fails: the upstream answers, nothing stale is served, it shows, and it heals alone."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest
from tests.contract.redis_kit import eventually
from tests.fakes.upstream import FakeUpstream, Gate, Reply
from tests.harness import Gateway, question, running_gateway
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer
from tests.servers.redis_cluster import ClusterDeployment
from tests.servers.redis_sentinels import SentinelDeployment
from tests.servers.resp import RedisError

from stratacache.policy.breaker import FAILURES

pytest_plugins = ["tests.servers.fixtures"]

BUDGET = 0.05  # seconds that a look-up may take
LIMIT = 10 * BUDGET  # far less than the server is silent for
HEALING = 20.0  # seconds


class Site:
    """One Redis, a proxy before it, and a gateway on either side: ``near`` sees every fault, ``far`` the server's."""

    def __init__(self, server: RedisServer, proxy: Proxy, near: Gateway, far: Gateway) -> None:
        self.server = server
        self.proxy = proxy
        self.near = near
        self.far = far


@pytest.fixture
async def site(fake: FakeUpstream) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        server = stack.enter_context(RedisServer())
        proxy = await stack.enter_async_context(Proxy(server.port))
        urls = [f"redis://127.0.0.1:{proxy.port}", server.url]
        near, far = [await stack.enter_async_context(gateway_on(fake, url)) for url in urls]
        yield Site(server, proxy, near, far)
        await healed(near)
        await healed(far)


def gateway_on(fake: FakeUpstream, url: str) -> Any:
    return running_gateway(fake, {"store": url, "tiers": {"exact": {"budget": BUDGET}}})


async def ask(gateway: Gateway, text: str, **fields: Any) -> tuple[str, str, str]:
    """Outcome, reason and text of the answer, which has kept no client waiting for the store."""
    status, headers, got = await gateway.ask(question(text, **fields))
    assert status == 200
    spent = re.findall(r"exact;dur=([\d.]+)", headers["server-timing"])
    assert all(float(each) < 1000 * LIMIT for each in spent), headers["server-timing"]
    said = _streamed(got) if fields.get("stream") else got["choices"][0]["message"]["content"]
    return headers["x-strata-cache"], headers["x-strata-reason"], said


def _streamed(body: bytes) -> str:
    events = [msgspec.json.decode(line[6:]) for line in body.splitlines() if line.startswith(b"data: {")]
    return "".join(e["choices"][0]["delta"].get("content", "") for e in events if e["choices"])


async def known(gateway: Gateway, text: str = "known?") -> None:
    """A question that the cache answers, once its store is connected."""
    await eventually(gateway.system.store.check)
    await ask(gateway, text)
    await gateway.stored()
    assert (await ask(gateway, text))[0] == "hit"


async def healed(gateway: Gateway) -> None:
    """The cache answers again, though nobody touched the gateway."""
    async with asyncio.timeout(HEALING):
        for number in range(10_000):
            await ask(gateway, f"after {number // 2}?")
            await gateway.stored()
            if (await ask(gateway, f"after {number // 2}?"))[0] == "hit":
                break
            gateway.clock.advance(20)  # more than the breaker's longest pause
            await asyncio.sleep(0.05)
    assert await breaker(gateway) == 0


async def breaker(gateway: Gateway) -> float:
    async with gateway.http.get(f"{gateway.root}/metrics") as response:
        found = re.search(r'^stratacache_breaker_state\{.*"store".*\} (\S+)$', await response.text(), re.M)
    assert found
    return float(found[1])


async def invalidate(gateway: Gateway, **body: Any) -> int:
    async with gateway.http.post(f"{gateway.root}/admin/invalidate", json=body or {"all": True}) as response:
        return response.status


def killed(site: Site) -> None:
    site.server.kill()


def stopped(site: Site) -> None:
    site.server.pause()


def swallowing(site: Site) -> None:
    site.proxy.mode = "black_hole"


def refusing(site: Site) -> None:
    site.proxy.mode = "refuse"


def slow(site: Site) -> None:
    site.proxy.delay = 0.5


def full(site: Site) -> None:
    site.server.command("CONFIG", "SET", "maxmemory", 1)


def locked(site: Site) -> None:
    site.server.command("CONFIG", "SET", "requirepass", "another")
    site.proxy.cut()


def read_only(site: Site) -> None:
    site.server.command("REPLICAOF", "127.0.0.1", 1)


async def mend(site: Site) -> None:
    site.proxy.delay = 0.0
    site.proxy.mode = "pass"
    site.proxy.cut()
    if not site.server.running:
        site.server.restart(empty=True)
    site.server.resume()
    with site.server.connect() as connection:
        for command in (("REPLICAOF", "NO", "ONE"), ("CONFIG", "SET", "maxmemory", 0)):
            try:
                connection.command(*command)
            except RedisError:  # it asks for the password
                connection.command("AUTH", "another")
                connection.command(*command)
        connection.command("CONFIG", "SET", "requirepass", "")


@pytest.mark.parametrize(
    ("fault", "reasons", "status"),
    [
        (killed, {"store_error", "store_slow"}, 503),
        (stopped, {"store_slow", "store_error"}, 503),
        (swallowing, {"store_slow", "store_error"}, 503),
        (refusing, {"store_error"}, 503),
        (slow, {"store_slow"}, 200),
        (full, {"store_error"}, 200),
        (locked, {"store_error"}, 503),
        (read_only, {"store_error"}, 503),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_a_fault_costs_the_cache_and_no_answer(
    fake: FakeUpstream, site: Site, fault: Callable[[Site], None], reasons: set[str], status: int
) -> None:
    gateway = site.near
    await known(gateway)
    fault(site)
    fake.default = Reply(text="Anew.")
    seen = []
    for number in range(FAILURES + 2):
        outcome, reason, text = await ask(gateway, f"new {number}?", stream=number % 2 == 1)
        assert (outcome, text) == ("miss", "Anew.")
        seen.append(reason)
    assert set(seen[:FAILURES]) <= reasons, seen
    assert seen[-1] == "store_down"
    assert await breaker(gateway) == 2
    assert await invalidate(gateway) == status
    if status == 200:
        assert (await ask(gateway, "known?"))[2] == "Anew."
    await mend(site)
    await healed(gateway)
    async with asyncio.timeout(HEALING):
        while await invalidate(gateway) != 200:  # noqa: ASYNC110 - it depends on a server
            await asyncio.sleep(0.05)
    for each in (site.near, site.far):
        assert (await ask(each, "known?"))[2] == "Anew."


@pytest.mark.parametrize("fault", [swallowing, refusing], ids=lambda fault: fault.__name__)
async def test_an_instance_that_is_cut_off_serves_nothing_that_another_invalidates(
    fake: FakeUpstream, site: Site, fault: Callable[[Site], None]
) -> None:
    await known(site.near)
    fault(site)
    fake.default = Reply(text="Anew.")
    assert await invalidate(site.far) == 200
    assert (await ask(site.near, "known?"))[2] == "Anew."
    assert (await ask(site.far, "known?"))[2] == "Anew."
    await mend(site)
    await healed(site.near)
    assert (await ask(site.near, "known?"))[2] == "Anew."


async def test_copies_of_what_a_lost_message_told_of_are_not_served(fake: FakeUpstream, site: Site) -> None:
    await known(site.near)
    for number in range(5):
        await known(site.far)
        if number % 2:
            site.server.command("CLIENT", "KILL", "TYPE", "pubsub")
        else:
            site.proxy.cut()
        fake.default = Reply(text=f"Answer {number}.")
        assert await invalidate(site.far, tenant="default") == 200
        for gateway in (site.near, site.far):
            assert (await ask(gateway, "known?"))[2] == f"Answer {number}."
        await healed(site.near)


async def test_a_server_that_restarts_empty_keeps_no_answer_in_flight(fake: FakeUpstream, site: Site) -> None:
    """An answer begun before the invalidation must not be stored after it, though the server knows of none."""
    gate = Gate()
    fake.script(Reply(text="Old.", header_gate=gate))
    asking = asyncio.ensure_future(ask(site.near, "known?"))
    await gate.reached.wait()
    assert await invalidate(site.far, tenant="default") == 200
    site.server.restart(empty=True)
    gate.open()
    await asking
    await site.near.stored()
    fake.default = Reply(text="Anew.")
    await healed(site.near)
    await healed(site.far)
    for gateway in (site.far, site.near):
        assert (await ask(gateway, "known?"))[2] == "Anew."


@pytest.mark.parametrize("value", [b"foreign", b"", b"SC1" + bytes(40)], ids=["foreign", "empty", "torn"])
async def test_a_corrupt_entry_is_a_miss_and_replaced(fake: FakeUpstream, site: Site, value: bytes) -> None:
    await known(site.near)
    (key,) = site.server.command("KEYS", "*e:*")
    site.server.command("SET", key, value)
    assert (await ask(site.far, "known?"))[:2] == ("miss", "not_found")
    await site.far.stored()
    assert (await ask(site.far, "known?"))[0] == "hit"


async def test_a_burst_of_300_takes_no_more_connections(fake: FakeUpstream, site: Site) -> None:
    await known(site.far)
    before = len(site.server.command("CLIENT", "LIST").splitlines())
    burst = [ask(site.far, f"burst {number}?") for number in range(300)]
    assert {outcome for outcome, _, _ in await asyncio.gather(*burst)} == {"miss"}
    assert len(site.server.command("CLIENT", "LIST").splitlines()) <= before


# --- deployments


async def fail_over(servers: SentinelDeployment) -> None:
    servers.kill_master()
    await asyncio.to_thread(servers.wait_for_failover)


async def kill_a_node(servers: ClusterDeployment) -> None:
    servers.kill(servers.node_for_slot(servers.slot_of("{strata:0}")))
    await asyncio.to_thread(servers.wait_for_failover)


async def move_a_slot(servers: ClusterDeployment) -> None:
    slot = servers.slot_of("{strata:0}")
    source = servers.node_for_slot(slot)
    target = next(each for each in servers.masters if each is not source)
    servers.move_slot(slot, target, half_way=True)
    await asyncio.sleep(0)
    servers.move_slot(slot, target)


async def test_a_failover_behind_sentinels(fake: FakeUpstream, redis_sentinels: SentinelDeployment) -> None:
    await _through(fake, redis_sentinels.url, lambda: fail_over(redis_sentinels))


@pytest.mark.parametrize("change", [move_a_slot, kill_a_node], ids=lambda change: change.__name__)
async def test_a_cluster_changes(
    fake: FakeUpstream,
    redis_cluster: ClusterDeployment,
    change: Callable[[ClusterDeployment], Awaitable[None]],
) -> None:
    await _through(fake, redis_cluster.url, lambda: change(redis_cluster))


async def _through(fake: FakeUpstream, url: str, change: Callable[[], Awaitable[None]]) -> None:
    """Two gateways are asked and invalidate while ``change`` happens; nothing that an invalidation hit is served."""
    version = 0
    fake.responder = lambda call: Reply(text=str(version))
    async with gateway_on(fake, url) as one, gateway_on(fake, url) as other:
        for text in "abc":
            await known(one, text)
        changing = asyncio.ensure_future(change())
        returned = 0
        turns = 0
        while turns < 3 or not changing.done():
            turns += changing.done()
            version += 1
            if await invalidate(other) == 200:
                returned = version
            for gateway in (one, other):
                for text in "abc":
                    _, _, said = await ask(gateway, text)
                    assert int(said) >= returned, "stale"
                gateway.clock.advance(0.5)
            await asyncio.sleep(0.02)
        await changing
        for gateway in (one, other):
            await healed(gateway)
        assert await invalidate(one) == 200
        version += 1
        assert {(await ask(gateway, text))[2] for gateway in (one, other) for text in "abc"} == {str(version)}
