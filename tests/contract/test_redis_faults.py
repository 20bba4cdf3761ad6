"""Redis dies, forgets, fills up, hangs and lies; nothing stale or foreign is ever read, and all of it heals."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import partial

import pytest
from tests.contract.redis_kit import DIGEST, TAGS, entry_of, eventually, instance, stored
from tests.servers.certificates import Certificates
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer, wait_until

from stratacache.clock import SystemClock
from stratacache.errors import StoreError, StoreSlow
from stratacache.stores import Backend
from stratacache.stores.guarded import GuardedStore
from stratacache.types import Absent, Entry, Invalidated

pytest_plugins = ["tests.servers.fixtures"]

_QUICK = ("--repl-diskless-sync-delay", "0")
KEY = f"{{strata}}e:{DIGEST.hex()}"


# --- the server goes and comes


async def test_a_server_that_comes_later_is_used() -> None:
    server = RedisServer()
    async with instance(server.url) as backend:
        with pytest.raises(StoreError):
            await backend.store.get(DIGEST, TAGS)
        with server:
            await eventually(lambda: stored(backend.store))


async def test_a_server_that_is_killed_and_returns_empty_has_lost_all_and_works() -> None:
    with RedisServer() as server:
        async with instance(server.url) as backend:
            entry = await stored(backend.store)
            server.kill()
            with pytest.raises(StoreError):
                await backend.store.get(DIGEST, TAGS)
            server.restart(empty=True)
            found = await eventually(lambda: backend.store.get(DIGEST, TAGS))
            assert isinstance(found, Absent)
            assert dict(found.versions)["prices"] > dict(entry.versions)["prices"]
            assert await backend.store.put(DIGEST, entry) == "outdated"
            await stored(backend.store, "new")


async def test_an_invalidation_that_the_server_forgot_is_not_forgotten_by_who_heard_of_it() -> None:
    """Restarted from a snapshot that is older than the invalidation."""
    with RedisServer() as server:
        async with instance(server.url) as one, instance(server.url) as other, instance(server.url) as third:
            assert other.bulletin is not None
            await other.bulletin.start(lambda what, digests: None)
            entry = await stored(one.store)
            server.command("SAVE")
            done = await one.store.invalidate(["prices"])
            server.kill()
            server.restart(empty=False)
            for backend in (other, one, third):  # the third knows it from the server, which was told again
                refused = await eventually(partial(backend.store.get, DIGEST, TAGS))
                assert isinstance(refused, Absent)
                assert refused.reason == "outdated"
                assert dict(refused.versions)["prices"] >= dict(done.versions)["prices"]
                assert await backend.store.put(DIGEST, entry) == "outdated"
            await stored(third.store, "new")


async def test_an_instance_remembers_its_own_invalidations_without_news() -> None:
    with RedisServer() as server:
        async with instance(server.url) as one:
            entry = await stored(one.store)
            server.command("SAVE")
            await one.store.invalidate(["prices"])
            server.kill()
            server.restart(empty=False)
            found = await eventually(lambda: one.store.get(DIGEST, TAGS))
            assert isinstance(found, Absent)
            assert found.reason == "outdated"
            assert await one.store.put(DIGEST, entry) == "outdated"


async def test_a_lease_that_the_server_forgot_is_waited_for() -> None:
    """The snapshot knows of no running lease, and an instance that is cut off serves copies until its own ends."""
    with RedisServer() as server:
        async with (
            Proxy(server.port) as proxy,
            instance(server.url) as other,
            instance(f"redis://127.0.0.1:{proxy.port}") as one,
        ):
            assert one.bulletin is not None
            await eventually(lambda: other.store.invalidate(["prices"]))
            server.command("SAVE")
            await one.bulletin.start(lambda what, digests: None)
            await _until(one.bulletin.current)
            server.kill()
            proxy.mode = "refuse"
            server.restart(empty=False)
            await eventually(lambda: other.store.invalidate(["prices"]))
            assert not one.bulletin.current()


async def test_an_invalidation_returns_when_a_replica_has_it() -> None:
    with RedisServer(options=_QUICK) as master:
        async with Proxy(master.port) as proxy, instance(master.url) as backend:
            with RedisServer(options=_follow(proxy.port)) as replica:
                await backend.store.invalidate(["prices"])
                await _until(lambda: bool(replica.command("EXISTS", "{strata}v:prices")))
                proxy.delay = 0.01  # less than the store waits for
                for _ in range(5):
                    done = await backend.store.invalidate(["prices"])
                    assert int(replica.command("GET", "{strata}v:prices")) == done.versions[0][1]


# --- news of invalidations


async def test_an_invalidation_returns_when_every_instance_has_heard(redis_server: RedisServer) -> None:
    async with instance(redis_server.url) as one, instance(redis_server.url) as other:
        heard = await _listen(one), await _listen(other)
        for number in range(20):
            done = await one.store.invalidate([f"tag {number}"], [DIGEST])
            for news in heard:
                assert news[-1] == (Invalidated(None, done.versions), (DIGEST,))


async def test_a_lost_message_is_made_good_before_the_invalidation_returns(
    redis_server: RedisServer,
) -> None:
    async with instance(redis_server.url) as one, instance(redis_server.url) as other:
        heard = await _listen(other)
        for number in range(3):
            redis_server.command("CLIENT", "KILL", "TYPE", "pubsub")
            done = await one.store.invalidate([f"tag {number}"])
            assert heard[-1][0] == Invalidated(None, done.versions)


async def test_an_instance_that_hangs_is_waited_for_no_longer_than_its_lease(
    redis_server: RedisServer,
) -> None:
    url = redis_server.url
    async with (
        Proxy(redis_server.port) as proxy,
        instance(url) as one,
        instance(f"redis://127.0.0.1:{proxy.port}") as other,
    ):
        heard = await _listen(other)
        assert other.bulletin is not None
        proxy.mode = "black_hole"
        done = await one.store.invalidate(["prices"])
        assert not other.bulletin.current()
        proxy.mode = "pass"
        proxy.cut()
        await _until(other.bulletin.current)
        assert heard[-1][0] in (Invalidated(None, done.versions), None)


async def test_news_that_were_missed_are_told_as_lost(redis_server: RedisServer) -> None:
    url = redis_server.url
    async with (
        Proxy(redis_server.port) as proxy,
        instance(url) as one,
        instance(f"redis://127.0.0.1:{proxy.port}") as other,
    ):
        heard = await _listen(other)
        assert other.bulletin is not None
        proxy.mode = "refuse"
        await one.store.invalidate(["prices"])
        redis_server.command("DEL", "{strata}log")
        proxy.mode = "pass"
        await _until(other.bulletin.current)
        assert heard[-1] == (None, ())


async def test_a_closed_bulletin_is_not_waited_for_and_never_current(redis_server: RedisServer) -> None:
    async with instance(redis_server.url) as one, instance(redis_server.url) as other:
        await _listen(other)
        assert other.bulletin is not None
        await other.bulletin.close()
        await other.bulletin.close()
        assert not other.bulletin.current()
        assert b"l:" not in b"".join(redis_server.command("HKEYS", "{strata}instances"))
        await one.store.invalidate(["prices"])


async def test_an_invalidation_that_nobody_can_be_told_of_is_an_error(redis_server: RedisServer) -> None:
    async with instance(redis_server.url) as one:
        await stored(one.store)
        redis_server.command("SET", "{strata}instances", "foreign")
        with pytest.raises(StoreError):
            await one.store.invalidate(["prices"])


# --- slow, silent, busy


async def test_a_black_hole_costs_the_budget_and_heals() -> None:
    with RedisServer() as server:
        async with Proxy(server.port) as proxy, instance(f"redis://127.0.0.1:{proxy.port}") as backend:
            store = GuardedStore(backend.store, SystemClock(), budget=0.05)
            entry = await stored(store)
            proxy.mode = "black_hole"
            with pytest.raises(StoreSlow):
                await store.get(DIGEST, TAGS)
            with pytest.raises(StoreError):  # gives up by itself, without a budget
                await backend.store.invalidate(["other"])
            proxy.mode = "pass"
            assert await eventually(lambda: store.get(DIGEST, TAGS)) == entry


async def test_a_slow_server_costs_the_budget_and_no_connection() -> None:
    with RedisServer() as server:
        async with Proxy(server.port) as proxy, instance(f"redis://127.0.0.1:{proxy.port}") as backend:
            store = GuardedStore(backend.store, SystemClock(), budget=0.05)
            entry = await stored(store)
            connections = server.command("INFO", "stats").partition(b"total_connections_received:")[2]
            proxy.delay = 0.5
            with pytest.raises(StoreSlow):
                await store.get(DIGEST, TAGS)
            assert await backend.store.get(DIGEST, TAGS) == entry  # no error for who has the time
            proxy.delay = 0.0
            assert await eventually(lambda: store.get(DIGEST, TAGS)) == entry
            after = server.command("INFO", "stats").partition(b"total_connections_received:")[2]
            assert int(after.split()[0]) <= int(connections.split()[0]) + 2  # those of these two commands


async def test_a_cancelled_call_leaves_its_reply_to_nobody(redis_server: RedisServer) -> None:
    chance = random.Random(7)
    async with instance(redis_server.url) as backend:
        digests = [bytes([number]) * 16 for number in range(50)]
        entries = {one: await stored(backend.store, one.hex(), one) for one in digests}
        for _ in range(20):
            calls = [asyncio.create_task(backend.store.get(one, TAGS)) for one in digests]
            for call in calls:
                if chance.random() < 0.5:
                    asyncio.get_running_loop().call_later(chance.random() * 0.002, call.cancel)
            results = await asyncio.gather(*calls, return_exceptions=True)
            for one, result in zip(digests, results, strict=True):
                assert isinstance(result, asyncio.CancelledError) or result == entries[one]


async def test_a_burst_needs_one_connection(redis_server: RedisServer) -> None:
    async with instance(redis_server.url) as backend:
        entry = await stored(backend.store)
        before = len(redis_server.command("CLIENT", "LIST").splitlines())
        found = await asyncio.gather(*[backend.store.get(DIGEST, TAGS) for _ in range(300)])
        assert found == [entry] * 300
        assert len(redis_server.command("CLIENT", "LIST").splitlines()) == before


# --- the server refuses


async def test_a_full_server_reads_and_invalidates() -> None:
    with RedisServer() as server:
        async with instance(server.url) as backend:
            entry = await stored(backend.store)
            server.command("CONFIG", "SET", "maxmemory", 1)
            assert await backend.store.get(DIGEST, TAGS) == entry
            with pytest.raises(StoreError, match="OOM"):
                await backend.store.put(DIGEST, entry)
            await backend.store.invalidate(["prices"])
            assert isinstance(await backend.store.get(DIGEST, TAGS), Absent)
            server.command("CONFIG", "SET", "maxmemory", 0)
            await stored(backend.store, "new")


async def test_a_replica_is_not_asked() -> None:
    """It may lag behind an invalidation."""
    with RedisServer(options=_QUICK) as master, RedisServer(options=_follow(master.port)) as replica:
        async with instance(master.url) as writer, instance(replica.url) as backend:
            await stored(writer.store)
            wait_until(lambda: replica.command("EXISTS", KEY), "the replica follows")
            for call in (backend.store.get(DIGEST, TAGS), backend.store.invalidate(["*"])):
                with pytest.raises(StoreError, match=r"replica|cannot be reached"):
                    await call


async def test_a_master_that_becomes_a_replica_is_asked_no_more_and_again_when_it_is_a_master() -> None:
    with RedisServer(options=_QUICK) as gone:
        nobody = gone.port  # whose data would take the place of the replica's
    with RedisServer(options=_QUICK) as server:
        async with instance(server.url) as backend:
            entry = await stored(backend.store)
            server.command("REPLICAOF", "127.0.0.1", nobody)
            with pytest.raises(StoreError, match="READONLY"):
                await backend.store.put(DIGEST, entry)
            with pytest.raises(StoreError, match="replica"):
                await backend.store.get(DIGEST, TAGS)
            server.command("REPLICAOF", "NO", "ONE")
            await eventually(lambda: backend.store.invalidate(["prices"]))


@pytest.mark.parametrize("foreign", [("SET", KEY, "foreign"), ("RPUSH", KEY, "foreign"), ("SET", KEY, "")])
async def test_a_foreign_value_under_our_key_is_absent_and_replaced(
    redis_server: RedisServer, foreign: Sequence[str]
) -> None:
    redis_server.command(*foreign)
    async with instance(redis_server.url) as backend:
        missed = await backend.store.get(DIGEST, TAGS)
        assert isinstance(missed, Absent)
        assert missed.reason == "not_found"
        entry = await stored(backend.store)
        assert await backend.store.get(DIGEST, TAGS) == entry


async def test_an_entry_under_another_digest_is_foreign(redis_server: RedisServer) -> None:
    async with instance(redis_server.url) as backend:
        await stored(backend.store)
        other = b"o" * 16
        redis_server.command("COPY", KEY, f"{{strata}}e:{other.hex()}")
        assert isinstance(await backend.store.get(other, TAGS), Absent)


@pytest.mark.parametrize("kind", ["v", "n"])
@pytest.mark.parametrize(
    "foreign", [("SET", "foreign"), ("SET", "0x10"), ("SET", "-1"), ("RPUSH", "foreign")]
)
async def test_a_foreign_version_or_count_outdates_at_most(
    redis_server: RedisServer, kind: str, foreign: tuple[str, str]
) -> None:
    async with instance(redis_server.url) as backend:
        entry = await stored(backend.store)
        redis_server.command("DEL", key := f"{{strata}}{kind}:prices")
        redis_server.command(foreign[0], key, foreign[1])
        found = await backend.store.get(DIGEST, TAGS)
        if kind == "n":
            assert found == entry
            assert await backend.store.put(DIGEST, entry_of("again", entry.versions)) == "stored"
        else:
            assert isinstance(found, Absent)
            assert found.reason == "outdated"
            assert await backend.store.put(DIGEST, entry) == "outdated"
        await backend.store.invalidate(["prices"])
        await stored(backend.store, "new")


# --- who may come in


async def test_a_password_lets_in_and_is_never_told() -> None:
    with RedisServer() as server:
        server.command("CONFIG", "SET", "requirepass", "hunter2")
        async with instance(f"redis://:hunter2@{server.address}/3") as backend:
            await stored(backend.store)
            await backend.store.invalidate(["prices"])
        for login in ("", ":hunter3@", "somebody:hunter2@"):
            async with instance(f"redis://{login}{server.address}") as backend:
                with pytest.raises(StoreError, match=r"NOAUTH|WRONGPASS") as refused:
                    await backend.store.get(DIGEST, TAGS)
                assert "hunter" not in str(refused.value)


async def test_a_server_without_auth_is_not_made_to_tell_the_password() -> None:
    """It repeats the arguments of a command that it does not know."""
    with RedisServer(options=("--rename-command", "AUTH", "")) as server:
        async with instance(f"redis://:hunter2@{server.address}") as backend:
            with pytest.raises(StoreError, match="ERR") as refused:
                await backend.store.get(DIGEST, TAGS)
            assert "hunter" not in str(refused.value)


async def test_databases_and_prefixes_are_apart(redis_server: RedisServer) -> None:
    urls = [redis_server.url, f"{redis_server.url}/1", f"{redis_server.url}?prefix=other"]
    for url in urls:
        async with instance(url) as backend:
            await stored(backend.store)
            assert isinstance(await backend.store.get(DIGEST, TAGS), Entry)


async def test_certificates_are_verified(certificates: Certificates) -> None:
    with RedisServer(tls=certificates, options=("--tls-auth-clients", "yes")) as server:
        pair = f"&cert={certificates.client_cert}&key={certificates.client_key}"
        async with instance(f"{server.url}{pair}") as backend:
            await stored(backend.store)
        async with instance(f"{server.url}{pair}&tls_name=localhost") as backend:
            assert isinstance(await backend.store.get(DIGEST, TAGS), Entry)
        for url in (
            f"rediss://{server.address}",  # an authority that nobody here trusts
            f"{server.url}{pair}&tls_name=example.org",
            server.url,  # the server asks for the client's certificate
            f"redis://{server.address}",
        ):
            async with instance(url) as backend:
                with pytest.raises(StoreError):
                    await backend.store.get(DIGEST, TAGS)


async def _listen(backend: Backend) -> list[tuple[Invalidated | None, tuple[bytes, ...]]]:
    """What the instance's bulletin tells from now on."""
    bulletin = backend.bulletin
    assert bulletin is not None
    heard: list[tuple[Invalidated | None, tuple[bytes, ...]]] = []
    await bulletin.start(lambda what, digests: heard.append((what, tuple(digests))))
    await _until(bulletin.current)
    return heard


async def _until(true: Callable[[], bool], deadline: float = 10.0) -> None:
    async with asyncio.timeout(deadline):
        while not true():  # noqa: ASYNC110 -- it depends on the clock
            await asyncio.sleep(0.005)


def _follow(port: int) -> tuple[str, ...]:
    return (*_QUICK, "--replicaof", "127.0.0.1", str(port))
