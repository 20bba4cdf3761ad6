"""What every store promises, tried on every store for real."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.clock import FakeClock

from stratacache.errors import StoreError
from stratacache.ports import Store
from stratacache.stores import open_store
from stratacache.types import Entry

MAX_BYTES = 200_000


def digest_of(name: object) -> bytes:
    return hashlib.sha256(str(name).encode()).digest()


def entry_of(clock: FakeClock, text: str = "answer", *, ttl: float = 600.0, size: int = 0) -> Entry:
    now = clock.now()
    return Entry(
        form=b"form of " + text.encode(), body=text.encode().ljust(size), created_at=now, expires_at=now + ttl
    )


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path / 'deep' / 'cache.db'}"}[request.param]


@pytest.fixture
async def store(url: str, clock: FakeClock) -> AsyncIterator[Store]:
    made = open_store(url, max_bytes=MAX_BYTES, clock=clock)
    yield made
    try:
        await made.check()
    finally:
        await made.close()


async def test_an_unknown_digest_is_a_miss(store: Store) -> None:
    assert await store.get(digest_of("nobody")) is None


async def test_every_field_of_an_entry_comes_back(store: Store, clock: FakeClock) -> None:
    entry = Entry(
        form=b"\x00form\xff",
        body="答案 \x00".encode(),
        created_at=clock.now() - 1.25,
        expires_at=clock.now() + 10.5,
        tenant="acme",
        model="smollm2-135m",
        tags=("价格", "b"),
        prompt_tokens=12,
        completion_tokens=34,
    )
    defaults = msgspec.structs.asdict(Entry(form=b"", body=b"", created_at=0.0, expires_at=0.0))
    assert all(
        getattr(entry, name) != value for name, value in defaults.items()
    )  # a new field must be set above
    assert await store.put(digest_of("a"), entry)
    assert await store.get(digest_of("a")) == entry


async def test_empty_form_and_body_come_back(store: Store, clock: FakeClock) -> None:
    entry = Entry(form=b"", body=b"", created_at=clock.now(), expires_at=clock.now() + 1)
    await store.put(digest_of("a"), entry)
    assert await store.get(digest_of("a")) == entry


async def test_a_put_replaces(store: Store, clock: FakeClock) -> None:
    await store.put(digest_of("a"), entry_of(clock, "old", size=5000))
    assert await store.put(digest_of("a"), entry_of(clock, "new"))
    assert await store.get(digest_of("a")) == entry_of(clock, "new")
    assert (await store.stats()).entries == 1


async def test_digests_of_any_length_are_told_apart(store: Store, clock: FakeClock) -> None:
    digests = [b"", b"a", b"a\x00", b"a" * 16, b"a" * 32, b"a" * 100]
    for number, digest in enumerate(digests):
        await store.put(digest, entry_of(clock, str(number)))
    for number, digest in enumerate(digests):
        assert await store.get(digest) == entry_of(clock, str(number))


async def test_an_entry_lives_until_its_expiry_and_no_longer(store: Store, clock: FakeClock) -> None:
    await store.put(digest_of("a"), entry_of(clock, ttl=10.0))
    clock.advance(9.5)
    assert await store.get(digest_of("a")) is not None
    clock.advance(0.5)
    assert await store.get(digest_of("a")) is None


async def test_an_expired_entry_is_declined_and_what_it_replaces_is_gone(
    store: Store, clock: FakeClock
) -> None:
    await store.put(digest_of("a"), entry_of(clock))
    assert not await store.put(digest_of("a"), entry_of(clock, ttl=0.0))
    assert await store.get(digest_of("a")) is None
    assert (await store.stats()).rejections == 1


@pytest.mark.parametrize("expires", [math.nan, -math.inf])
async def test_an_expiry_that_is_no_time_is_declined(store: Store, clock: FakeClock, expires: float) -> None:
    entry = Entry(form=b"f", body=b"b", created_at=clock.now(), expires_at=expires)
    assert not await store.put(digest_of("a"), entry)
    assert await store.get(digest_of("a")) is None


async def test_an_entry_may_live_for_ever(store: Store, clock: FakeClock) -> None:
    entry = Entry(form=b"f", body=b"b", created_at=clock.now(), expires_at=math.inf)
    await store.put(digest_of("a"), entry)
    clock.advance(1e9)
    assert await store.get(digest_of("a")) == entry


async def test_setting_the_clock_back_does_not_revive_what_was_seen_expired(
    store: Store, clock: FakeClock
) -> None:
    await store.put(digest_of("a"), entry_of(clock, ttl=10.0))
    clock.advance(11)
    assert await store.get(digest_of("a")) is None
    clock.jump(-8)
    assert await store.get(digest_of("a")) is None


async def test_setting_the_clock_forward_and_back_does_not_revive_either(
    store: Store, clock: FakeClock
) -> None:
    await store.put(digest_of("a"), entry_of(clock, ttl=10.0))
    clock.jump(11)
    assert await store.get(digest_of("a")) is None
    clock.jump(-8)
    assert await store.get(digest_of("a")) is None


async def test_a_clock_that_jumps_breaks_nothing(store: Store, clock: FakeClock) -> None:
    for number, jump in enumerate([0, 3600, -7200, 1e6, -1e6]):
        clock.jump(jump)
        await store.put(digest_of(number), entry_of(clock, str(number)))
        assert await store.get(digest_of(number)) == entry_of(clock, str(number))
        await store.check()


async def test_delete_counts_what_was_there(store: Store, clock: FakeClock) -> None:
    await store.put(digest_of("a"), entry_of(clock))
    await store.put(digest_of("b"), entry_of(clock))
    assert await store.delete([digest_of("a"), digest_of("nobody"), digest_of("a")]) == 1
    assert await store.get(digest_of("a")) is None
    assert await store.get(digest_of("b")) is not None
    assert await store.delete([]) == 0


async def test_an_entry_that_would_fill_the_store_is_declined(store: Store, clock: FakeClock) -> None:
    await store.put(digest_of("a"), entry_of(clock, "older"))
    assert not await store.put(digest_of("a"), entry_of(clock, size=MAX_BYTES // 4))
    assert await store.get(digest_of("a")) is None, "the older answer was superseded"
    assert await store.put(digest_of("b"), entry_of(clock, size=MAX_BYTES // 5))


async def test_the_bound_holds_whatever_is_put(store: Store, clock: FakeClock) -> None:
    for number in range(300):
        size = (number * 977) % 9000
        await store.put(digest_of(number), entry_of(clock, str(number), size=size))
    stats = await store.stats()
    assert MAX_BYTES // 2 < stats.bytes <= MAX_BYTES
    assert stats.evictions > 0


async def test_bytes_cover_the_payload(store: Store, clock: FakeClock) -> None:
    entries = [entry_of(clock, str(number), size=2000) for number in range(20)]
    for number, entry in enumerate(entries):
        await store.put(digest_of(number), entry)
    stats = await store.stats()
    assert stats.entries == 20
    assert stats.bytes > sum(entry.size for entry in entries)
    await store.delete([digest_of(number) for number in range(20)])
    assert ((await store.stats()).entries, (await store.stats()).bytes) == (0, 0)


async def test_room_is_made_from_expired_entries_first(store: Store, clock: FakeClock) -> None:
    for number in range(20):
        await store.put(digest_of(f"short {number}"), entry_of(clock, ttl=5.0, size=4000))
    clock.advance(60)
    for number in range(35):
        assert await store.put(digest_of(f"long {number}"), entry_of(clock, str(number), size=4000))
    assert (await store.stats()).evictions == 0
    for number in range(35):
        assert await store.get(digest_of(f"long {number}")) is not None


async def test_what_is_asked_for_again_and_again_outlives_a_scan(store: Store, clock: FakeClock) -> None:
    for number in range(10):
        await store.put(digest_of(f"hot {number}"), entry_of(clock, str(number), size=2000))
    for number in range(200):
        clock.advance(61)  # a store may note recency coarsely
        for hot in range(10):
            await store.get(digest_of(f"hot {hot}"))
        await store.put(digest_of(f"scan {number}"), entry_of(clock, size=2000, ttl=1e6))
        if number == 5:
            for hot in range(10):  # so that expiry plays no part
                await store.put(digest_of(f"hot {hot}"), entry_of(clock, str(hot), size=2000, ttl=1e6))
    kept = [await store.get(digest_of(f"hot {number}")) for number in range(10)]
    assert None not in kept


async def test_many_tasks_see_whole_entries_only(store: Store, clock: FakeClock) -> None:
    async def work(worker: int) -> None:
        for step in range(20):
            name = (worker * 7 + step) % 5
            await store.put(digest_of(name), entry_of(clock, f"{name} by {worker}"))
            found = await store.get(digest_of(name))
            if found is not None:
                text = found.body.decode()
                assert text.startswith(f"{name} by ")
                assert found.form == b"form of " + found.body
            if step % 7 == 0:
                await store.delete([digest_of(name)])

    await asyncio.gather(*(work(worker) for worker in range(30)))


async def test_after_close_every_call_is_an_error_but_close(url: str, clock: FakeClock) -> None:
    store = open_store(url, max_bytes=MAX_BYTES, clock=clock)
    await store.put(digest_of("a"), entry_of(clock))
    await store.close()
    await store.close()
    calls = [
        store.get(digest_of("a")),
        store.put(digest_of("a"), entry_of(clock)),
        store.delete([digest_of("a")]),
        store.stats(),
        store.check(),
    ]
    for call in calls:
        with pytest.raises(StoreError, match="closed"):
            await call
