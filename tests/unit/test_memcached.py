"""The Memcached store against real servers that fail in every way that servers do."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest
import uvloop
from tests.clock import FakeClock
from tests.servers.memcached import MemcachedServer, memcached

from stratacache.errors import StoreError
from stratacache.stores import memcached_wire as wire
from stratacache.stores.memcached import MemcachedStore
from stratacache.stores.memcached_ring import Ring
from stratacache.types import Absent, Entry, Versions


def digest_of(name: object) -> bytes:
    return hashlib.sha256(str(name).encode()).digest()[:16]


def entry_of(clock: FakeClock, text: str = "answer", *, size: int = 0, versions: Versions = ()) -> Entry:
    return Entry(b"form", text.encode().ljust(size), clock.now(), clock.now() + 600, versions=versions)


def store_on(*servers: MemcachedServer, clock: FakeClock, seconds: float = 5.0) -> MemcachedStore:
    ring = Ring([wire.Server("127.0.0.1", server.port, seconds=seconds) for server in servers])
    return MemcachedStore(ring, clock, prefix="t")


async def versions_of(store: MemcachedStore, *tags: str) -> Versions:
    found = await store.get(digest_of("nobody asked"), tags)
    assert isinstance(found, Absent)
    return found.versions


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def server() -> Iterator[MemcachedServer]:
    with memcached() as made:
        yield made


@pytest.fixture
async def store(server: MemcachedServer, clock: FakeClock) -> AsyncIterator[MemcachedStore]:
    made = store_on(server, clock=clock)
    yield made
    await made.close()


# --- the server fails


async def test_a_killed_server_is_an_error_at_once_and_used_again_when_it_is_back(
    server: MemcachedServer, store: MemcachedStore, clock: FakeClock
) -> None:
    entry = entry_of(clock, versions=await versions_of(store, "a"))
    assert await store.put(digest_of("a"), entry) == "stored"
    server.kill()
    for call in (
        lambda: store.get(digest_of("a"), ("a",)),
        lambda: store.put(digest_of("a"), entry),
        lambda: store.invalidate(["a"]),
        lambda: store.invalidate([], [digest_of("a")]),
        store.stats,
        store.check,
    ):
        with pytest.raises(StoreError):
            await call()
    server.start()  # empty
    assert isinstance(await store.get(digest_of("a"), ("a",)), Absent)
    assert await store.put(digest_of("a"), entry) == "outdated"
    fresh = entry_of(clock, versions=await versions_of(store, "a"))
    assert await store.put(digest_of("a"), fresh) == "stored"
    assert await store.get(digest_of("a"), ("a",)) == fresh


async def test_calls_in_flight_end_when_the_server_dies(
    server: MemcachedServer, store: MemcachedStore
) -> None:
    await store.check()
    server.freeze()
    calls = [asyncio.create_task(store.get(digest_of(number))) for number in range(50)]
    await asyncio.sleep(0)
    server.kill()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(result, StoreError) for result in results)


async def test_a_server_that_accepts_and_never_answers_is_given_up_and_found_again(
    server: MemcachedServer, clock: FakeClock
) -> None:
    store = store_on(server, clock=clock, seconds=0.1)
    await store.put(digest_of("a"), entry_of(clock))
    server.freeze()
    for _ in range(2):  # on the open connection, then on a new one
        with pytest.raises(StoreError, match=r"no reply within 0\.1 s"):
            await store.get(digest_of("a"))
    server.thaw()
    assert await store.get(digest_of("a")) == entry_of(clock)
    await store.close()


async def test_a_dead_connection_is_given_up_even_if_no_caller_waits_that_long(
    server: MemcachedServer, clock: FakeClock
) -> None:
    store = store_on(server, clock=clock, seconds=0.1)
    await store.check()
    server.freeze()
    first = asyncio.create_task(store.get(digest_of("a")))
    await asyncio.sleep(0)
    first.cancel()  # as the budget of a look-up does
    with pytest.raises(StoreError, match="no reply"):
        await store.get(digest_of("b"))
    server.thaw()
    await store.check()
    await store.close()


async def test_an_invalidation_that_a_server_missed_is_an_error(clock: FakeClock) -> None:
    with memcached() as one, memcached() as two:
        store = store_on(one, two, clock=clock)
        names = [f"tag {number}" for number in range(20)]
        before = await versions_of(store, *names)
        two.kill()
        with pytest.raises(StoreError):
            await store.invalidate(names)
        failed = []
        for name in names:
            try:
                await store.invalidate([name])
            except StoreError:
                failed.append(name)
        assert 0 < len(failed) < len(names), "each tag has one home, and no other"
        two.start()
        told = await store.invalidate(failed)
        assert not set(told.versions) & set(before)
        await store.close()


async def test_a_server_that_was_cut_off_and_comes_back_serves_nothing_that_a_repeated_invalidation_hit(
    server: MemcachedServer, clock: FakeClock
) -> None:
    store = store_on(server, clock=clock, seconds=0.1)
    await store.put(digest_of("a"), entry_of(clock, versions=await versions_of(store, "a")))
    server.freeze()
    with pytest.raises(StoreError):
        await store.invalidate(["a"])
    server.thaw()  # its memory intact, and the command may still arrive
    await store.invalidate(["a"])
    assert isinstance(await store.get(digest_of("a"), ("a",)), Absent)
    await store.close()


async def test_a_server_without_memory_is_a_store_error_and_never_stale(clock: FakeClock) -> None:
    with memcached("-m", "2", "-M") as full:
        store = store_on(full, clock=clock)
        versions = await versions_of(store, "a")
        stored = 0
        failure = None
        while failure is None and stored < 200:
            try:
                stored += await store.put(digest_of(stored), entry_of(clock, size=40_000)) == "stored"
            except StoreError as error:
                failure = error
        assert "memory" in str(failure)
        assert stored > 5
        assert isinstance(await store.get(digest_of(0)), Entry)
        told = await store.invalidate(["a"])
        assert told.versions != versions
        await store.close()


async def test_what_the_server_evicts_is_a_miss(clock: FakeClock) -> None:
    with memcached("-m", "2") as small:
        store = store_on(small, clock=clock)
        for number in range(300):
            versions = await versions_of(store, f"tag {number}")
            entry = entry_of(clock, size=30_000, versions=versions)
            assert await store.put(digest_of(number), entry) in ("stored", "outdated")
        assert (await store.stats()).evictions > 0
        kept = [await store.get(digest_of(number), (f"tag {number}",)) for number in range(300)]
        assert 0 < sum(isinstance(found, Entry) for found in kept) < 300
        await store.close()


async def test_an_answer_larger_than_the_servers_items_is_declined_and_what_was_there_gone(
    store: MemcachedStore, clock: FakeClock
) -> None:
    await store.put(digest_of("a"), entry_of(clock, "older"))
    assert await store.put(digest_of("a"), entry_of(clock, size=3 << 20)) == "declined"
    assert isinstance(await store.get(digest_of("a")), Absent)
    assert await store.put(digest_of("a"), entry_of(clock, size=900_000)) == "stored"
    assert await store.get(digest_of("a")) == entry_of(clock, size=900_000)
    assert (await store.stats()).rejections == 1


# --- what is under our keys is not ours


@pytest.mark.parametrize("foreign", [b"", b"x", b"SC1" + bytes(40), b"\r\nEND\r\n" * 5])
async def test_a_foreign_or_corrupt_entry_is_a_miss_and_is_replaced(
    server: MemcachedServer, store: MemcachedStore, clock: FakeClock, foreign: bytes
) -> None:
    key = f"t:e:{digest_of('a').hex()}".encode()
    assert server.say(b"set %b 7 0 %d\r\n%b\r\n" % (key, len(foreign), foreign)) == b"STORED\r\n"
    assert isinstance(await store.get(digest_of("a")), Absent)
    await store.put(digest_of("a"), entry_of(clock))
    assert await store.get(digest_of("a")) == entry_of(clock)


@pytest.mark.parametrize("foreign", [b"", b"x", b"-5", b"1.5", b"9" * 25])
async def test_a_foreign_version_outdates_and_is_replaced(
    server: MemcachedServer, store: MemcachedStore, clock: FakeClock, foreign: bytes
) -> None:
    await store.put(digest_of("a"), entry_of(clock, versions=await versions_of(store, "a")))
    key = f"t:v:{hashlib.sha256(b'a').hexdigest()[:32]}".encode()
    for step in ("look-up", "invalidation"):
        assert server.say(b"set %b 0 0 %d\r\n%b\r\n" % (key, len(foreign), foreign)) == b"STORED\r\n"
        if step == "look-up":
            assert isinstance(await store.get(digest_of("a"), ("a",)), Absent)
        else:
            assert (await store.invalidate(["a"])).versions == await versions_of(store, "a")
        entry = entry_of(clock, versions=await versions_of(store, "a"))
        assert await store.put(digest_of("a"), entry) == "stored"
        assert await store.get(digest_of("a"), ("a",)) == entry


async def test_what_speaks_another_protocol_is_a_store_error(clock: FakeClock) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.1 400 Bad Request\r\nVALUE a b c\r\n\r\n")
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    store = MemcachedStore(Ring([wire.Server("127.0.0.1", port)]), clock, prefix="t")
    for _ in range(3):
        with pytest.raises(StoreError):
            await store.get(digest_of("a"))
    await store.close()
    listener.close()


# --- races


class HesitantRing(Ring):
    """Carries out commands only once told so; look-ups pass."""

    def __init__(self, servers: Sequence[wire.Server]) -> None:
        super().__init__(servers)
        self.reached, self.go = asyncio.Event(), asyncio.Event()

    async def call(self, commands: Sequence[tuple[bytes, bytes]]) -> list[wire.Reply]:
        self.reached.set()
        await self.go.wait()
        return await super().call(commands)


async def test_a_bump_between_the_check_and_the_write_of_a_put_makes_the_entry_a_miss(
    server: MemcachedServer, store: MemcachedStore, clock: FakeClock
) -> None:
    """The race that Memcached cannot exclude: nothing stale comes of it, as reads compare what entries record."""
    entry = entry_of(clock, versions=await versions_of(store, "a"))
    ring = HesitantRing([wire.Server("127.0.0.1", server.port)])
    other = MemcachedStore(ring, clock, prefix="t")
    putting = asyncio.create_task(other.put(digest_of("a"), entry))
    await ring.reached.wait()  # the versions were compared
    await store.invalidate(["a"])
    ring.go.set()
    assert await putting == "stored"
    found = await store.get(digest_of("a"), ("a",))
    assert isinstance(found, Absent)
    assert found.reason == "outdated"
    assert await other.put(digest_of("a"), entry) == "outdated"
    await other.close()


async def test_concurrent_bumps_all_give_versions_of_their_own(store: MemcachedStore) -> None:
    told = await asyncio.gather(*(store.invalidate(["a"]) for _ in range(100)))
    final = await versions_of(store, "a")
    assert max(result.versions for result in told) == final


async def test_a_burst_with_cancellations_never_mixes_replies(
    store: MemcachedStore, clock: FakeClock
) -> None:
    chance = random.Random(3)
    for number in range(50):
        await store.put(digest_of(number), entry_of(clock, f"{number}:", size=20_000))

    async def ask(number: int) -> None:
        found = await store.get(digest_of(number))
        assert isinstance(found, Entry)
        assert found.body.startswith(b"%d:" % number)

    for _ in range(10):
        calls = [asyncio.create_task(ask(number % 50)) for number in range(300)]
        for _ in range(chance.randrange(20)):
            await asyncio.sleep(0)
        for call in chance.sample(calls, 100):
            call.cancel()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert all(result is None or isinstance(result, asyncio.CancelledError) for result in results)
        assert sum(result is None for result in results) >= 200


async def test_a_cancelled_caller_does_not_end_the_connecting_of_others(
    store: MemcachedStore,
) -> None:
    calls = [asyncio.create_task(store.get(digest_of(number))) for number in range(10)]
    await asyncio.sleep(0)
    calls[0].cancel()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results[1:]] == [Absent] * 9


async def test_a_server_that_cannot_follow_is_not_sent_ever_more(
    server: MemcachedServer, store: MemcachedStore
) -> None:
    await store.check()
    server.freeze()
    calls = [asyncio.create_task(store.get(digest_of(number))) for number in range(5000)]
    for _ in range(3):
        await asyncio.sleep(0)
    refused = [call.exception() for call in calls if call.done()]
    assert len(refused) > 500
    assert all("waiting already" in str(error) for error in refused)
    server.thaw()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(result, Absent) for result in results) == len(calls) - len(refused)


async def test_closing_ends_calls_that_wait(server: MemcachedServer, store: MemcachedStore) -> None:
    await store.check()
    server.freeze()
    call = asyncio.create_task(store.get(digest_of("a")))
    await asyncio.sleep(0)
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await call


def test_it_works_on_the_loop_that_serves(server: MemcachedServer, clock: FakeClock) -> None:
    async def use() -> None:
        store = store_on(server, clock=clock)
        await store.put(digest_of("a"), entry_of(clock, size=500_000))
        assert await store.get(digest_of("a")) == entry_of(clock, size=500_000)
        server.kill()
        with pytest.raises(StoreError):
            await store.get(digest_of("a"))
        await store.close()

    uvloop.run(use())


# --- keys


class CountingServer(wire.Server):
    """Counts the round trips."""

    trips = 0

    async def call(self, *commands: bytes) -> list[wire.Reply]:
        self.trips += 1
        return await super().call(*commands)


async def test_a_hit_is_one_round_trip_if_all_its_tags_are_asked_for(
    server: MemcachedServer, clock: FakeClock
) -> None:
    line = CountingServer("127.0.0.1", server.port)
    store = MemcachedStore(Ring([line]), clock, prefix="t")
    await store.put(digest_of("a"), entry_of(clock, versions=await versions_of(store, "a", "b")))
    for tags, trips in (("a", "b", "c"), 2), (("a", "b"), 1), (("a",), 2):
        line.trips = 0
        assert isinstance(await store.get(digest_of("a"), tags), Entry if "c" not in tags else Absent)
        assert line.trips == trips
    await store.close()


async def test_a_tag_may_be_any_text(store: MemcachedStore, clock: FakeClock) -> None:
    tags = ("", " ", "a b\r\nflush_all\r\n", "价格" * 200, "x" * 10_000, "\x00")
    versions = await versions_of(store, *tags)
    await store.put(digest_of("a"), entry_of(clock, versions=versions))
    assert isinstance(await store.get(digest_of("a"), tags), Entry)
    for tag in tags:
        assert len((await store.invalidate([tag])).versions) == 1
    assert not set(await versions_of(store, *tags)) & set(versions)


async def test_text_without_utf8_is_a_store_error(store: MemcachedStore, clock: FakeClock) -> None:
    broken = Entry(b"f", b"b", clock.now(), clock.now() + 9, model="\ud800")
    with pytest.raises(StoreError, match="UTF-8"):
        await store.put(digest_of("a"), broken)


async def test_a_key_stays_where_it_is_when_servers_are_named_in_another_order() -> None:
    servers = [wire.Server("127.0.0.1", port) for port in (1, 2, 3)]
    keys = [b"key %d" % number for number in range(300)]
    homes = [Ring(servers).home(key).name for key in keys]
    assert homes == [Ring(servers[::-1]).home(key).name for key in keys]
    assert all(60 < homes.count(server.name) < 140 for server in servers)
    without = [Ring(servers[:2]).home(key).name for key in keys]
    assert all(old == new for old, new in zip(homes, without, strict=True) if old != servers[2].name)


def test_hosts_are_named_as_in_a_url() -> None:
    ring = Ring.of("a.example:1,b.example,[::1]:3")
    assert [server.name for server in ring._servers] == ["a.example:1", "b.example:11211", "[::1]:3"]
