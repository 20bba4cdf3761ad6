"""The memory store's parts: sketch, calendar, climber, and what they make of it together."""

from __future__ import annotations

import hashlib
import math
import subprocess
import sys
import tracemalloc
from collections import OrderedDict

import pytest
from tests.clock import FakeClock

from stratacache.errors import SettingsError, StoreError
from stratacache.stores.climber import WindowClimber
from stratacache.stores.deadlines import Deadlines
from stratacache.stores.memory import MemoryStore, cost_of
from stratacache.stores.null import NullStore
from stratacache.stores.sketch import FrequencySketch
from stratacache.types import Absent, Entry, Invalidated


def digest_of(name: object) -> bytes:
    return hashlib.sha256(str(name).encode()).digest()


def entry_of(size: int = 2000) -> Entry:
    return Entry(form=b"form", body=b"b" * size, created_at=0.0, expires_at=math.inf)


# --- sketch


def test_the_sketch_counts_up_to_sixteen_and_never_too_low() -> None:
    sketch = FrequencySketch(1024)
    accesses = {digest_of(number): number % 20 for number in range(200)}
    sketch.add(digest for digest, count in accesses.items() for _ in range(count))
    for digest, count in accesses.items():
        assert min(count, 16) <= sketch.estimate(digest) <= 16


def test_the_sketch_tells_the_unknown_from_the_known() -> None:
    sketch = FrequencySketch(1024)
    sketch.add([digest_of(number) for number in range(500)] * 2)
    guessed = [sketch.estimate(digest_of(f"never {number}")) for number in range(1000)]
    assert sum(map(bool, guessed)) < 100  # doorkeeper and counters may collide, a little


def test_the_doorkeeper_keeps_a_first_access_out_of_the_counters() -> None:
    sketch = FrequencySketch(128)
    sketch.add([digest_of("once")])
    assert sketch.estimate(digest_of("once")) == 1
    assert not any(sketch._counters)


def test_a_full_counter_does_not_spill_into_its_neighbour() -> None:
    sketch = FrequencySketch(1024)
    sketch.add([digest_of("hot")] * 400)
    nibbles = [word >> shift & 15 for word in sketch._counters for shift in range(0, 64, 4)]
    assert sorted(nibbles, reverse=True)[:5] == [15, 15, 15, 15, 0]


def test_counts_are_halved_with_age() -> None:
    sketch = FrequencySketch(128)
    sketch.add([digest_of("old favourite")] * 9)  # one at the door, eight counted
    filler = [digest_of(number) for number in range(1271)]
    sketch.add(filler[:1270])
    assert sketch.estimate(digest_of("old favourite")) >= 9
    sketch.add(filler[1270:])
    assert sketch.estimate(digest_of("old favourite")) == 4
    assert sketch.check() == ""


def test_growing_keeps_every_estimate() -> None:
    sketch = FrequencySketch(128)
    digests = [digest_of(number) for number in range(60)]
    sketch.add(digest for number, digest in enumerate(digests) for _ in range(number % 12))
    before = [sketch.estimate(digest) for digest in digests]
    sketch.grow(1000)
    assert sketch.capacity == 1024
    assert [sketch.estimate(digest) for digest in digests] == before
    assert sketch.check() == ""


def test_the_sketch_stays_small() -> None:
    assert FrequencySketch(10_000).nbytes == 16 * 16_384


def test_estimates_are_the_same_in_every_process() -> None:
    program = (
        "import hashlib; from stratacache.stores.sketch import FrequencySketch as S; s = S(128);"
        "d = [hashlib.sha256(bytes([n])).digest() for n in range(200)]; s.add(d * 3);"
        "print(s._counters.tobytes().hex())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


# --- calendar


def test_the_calendar_names_what_is_due_and_no_more_than_asked() -> None:
    calendar = Deadlines(width=10.0)
    for number in range(5):
        calendar.add(bytes([number]), 3.0)
    calendar.add(b"later", 25.0)
    calendar.add(b"never", math.inf)
    assert calendar.due(9.9, 10) == []
    assert calendar.due(10.0, 2) == [b"\x00", b"\x01"]
    for number in range(5):
        calendar.discard(bytes([number]), 3.0)
    assert calendar.due(29.9, 10) == []
    assert calendar.due(30.0, 10) == [b"later"]
    assert (len(calendar), calendar.check()) == (1, "")


# --- climber


def test_the_climber_goes_on_while_the_hit_rate_rises_and_turns_when_it_falls() -> None:
    climber = WindowClimber()
    start = climber.share
    climber.observe(0.30)
    higher = climber.share
    assert higher > start
    climber.observe(0.31)
    assert climber.share > higher
    top = climber.share
    climber.observe(0.30)
    assert climber.share < top


def test_the_climber_stays_between_its_bounds() -> None:
    climber = WindowClimber()
    for step in range(200):
        climber.observe(step / 200)
        assert 0.01 <= climber.share <= 0.8
    for step in range(200):
        climber.observe(0.5 if step % 2 else 0.6)
        assert 0.01 <= climber.share <= 0.8


# --- store


async def replay(keys: list[bytes], room: int) -> tuple[float, MemoryStore]:
    entry = entry_of()
    store = MemoryStore(cost_of(entry) * room, FakeClock())
    hits = 0
    for key in keys:
        if isinstance(await store.get(key), Entry):
            hits += 1
        else:
            await store.put(key, entry)
    await store.check()
    return hits / len(keys), store


def replay_lru(keys: list[bytes], room: int) -> float:
    kept: OrderedDict[bytes, None] = OrderedDict()
    hits = 0
    for key in keys:
        if key in kept:
            kept.move_to_end(key)
            hits += 1
        else:
            kept[key] = None
            if len(kept) > room:
                kept.popitem(last=False)
    return hits / len(keys)


def popular_and_scan(rounds: int) -> list[bytes]:
    """A hundred popular keys asked once a round, then a scan of two hundred keys that never come back."""
    return [
        digest_of(name)
        for turn in range(rounds)
        for name in [*range(100), *(f"{turn} {number}" for number in range(200))]
    ]


async def test_a_scan_does_not_push_out_the_popular() -> None:
    keys = popular_and_scan(40)
    assert replay_lru(keys, 150) == 0.0
    rate, _ = await replay(keys, 150)
    assert rate > 0.24  # of at most 1/3


async def test_traffic_that_favours_the_recent_is_served_like_lru() -> None:
    keys = [digest_of(number - back) for number in range(4000) for back in (0, 7, 19, 37)]
    rate, store = await replay(keys, 100)
    assert rate > replay_lru(keys, 100) - 0.08
    assert store._climber.share > 0.5


async def test_a_large_candidate_must_be_worth_all_that_it_displaces() -> None:
    small = entry_of(1000)
    store = MemoryStore(cost_of(small) * 40, FakeClock())
    store._climber.share = 0.1
    store._divide()
    for number in range(40):
        for _ in range(2):
            await store.get(digest_of(number))
        await store.put(digest_of(number), small)
    before = await store.stats()
    for _ in range(3):
        await store.get(digest_of("large"))
    assert await store.put(digest_of("large"), entry_of(cost_of(small) * 9)) == "declined"
    after = await store.stats()
    assert (after.entries, after.evictions, after.rejections) == (
        before.entries,
        before.evictions,
        before.rejections + 1,
    )
    await store.check()


async def test_no_more_is_displaced_than_needed() -> None:
    entry = entry_of()
    store = MemoryStore(cost_of(entry) * 40, FakeClock())
    for number in range(50):
        for _ in range(4 if number > 40 else 1):
            await store.get(digest_of(number))
        await store.put(digest_of(number), entry)
        stats = await store.stats()
        assert stats.entries == min(number + 1, 40)
        assert stats.evictions == max(number - 39, 0)


async def test_expired_entries_are_given_back_without_being_asked_for() -> None:
    clock = FakeClock()
    store = MemoryStore(10_000_000, clock)
    for number in range(100):
        await store.put(
            digest_of(number), Entry(form=b"", body=b"", created_at=0, expires_at=clock.now() + 5)
        )
    clock.advance(60)
    for number in range(10):
        await store.put(digest_of(f"fresh {number}"), entry_of())
    assert (await store.stats()).entries == 10
    await store.check()


async def test_setting_the_clock_back_does_not_lengthen_a_life() -> None:
    clock = FakeClock()
    store = MemoryStore(1_000_000, clock)
    await store.put(b"a", Entry(form=b"", body=b"", created_at=0, expires_at=clock.now() + 10))
    clock.jump(-3600)
    clock.advance(10)
    assert isinstance(await store.get(b"a"), Absent)


async def test_the_charge_is_honest() -> None:
    clock = FakeClock()
    store = MemoryStore(100_000_000, clock)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(1500):
        entry = Entry(
            form=bytes(600),
            body=bytes(2048),
            created_at=clock.now() + number,
            expires_at=clock.now() + 3600.5 + number,
            prompt_tokens=number + 1000,
            completion_tokens=number + 2000,
        )
        await store.put(digest_of(number), entry)
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    charged = (await store.stats()).bytes
    assert 0.9 * charged < used <= charged
    assert used * 10_000 / 1500 < 45_000_000


async def test_check_names_what_is_broken() -> None:
    store = MemoryStore(1_000_000, FakeClock())
    await store.put(b"a", entry_of())
    store._window.bytes += 1
    with pytest.raises(StoreError, match="sum of its entries' costs"):
        await store.check()


def test_a_bound_of_nothing_is_refused() -> None:
    with pytest.raises(SettingsError, match="positive max_bytes"):
        MemoryStore(0, FakeClock())


async def test_the_null_store_keeps_nothing() -> None:
    store = NullStore()
    assert await store.put(b"a", entry_of()) == "declined"
    assert isinstance(await store.get(b"a"), Absent)
    assert await store.invalidate(["*"], [b"a"]) == Invalidated(0, ())
    await store.check()
    assert (await store.stats()).rejections == 1
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.get(b"a")
