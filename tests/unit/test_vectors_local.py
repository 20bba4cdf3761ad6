"""The local index's own: bounds, upkeep in the background, growth into a graph and back, expiry, its checks."""

from __future__ import annotations

import asyncio
import hashlib
import math
import threading
from array import array
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import numpy as np
import pytest
from tests.clock import FakeClock

from stratacache.errors import SettingsError, VectorIndexError
from stratacache.ports import Vector
from stratacache.types import Question
from stratacache.vectors.core import Core
from stratacache.vectors.hnsw import HnswCore
from stratacache.vectors.ivfpq import IvfPqCore
from stratacache.vectors.limits import IndexKind, IndexLimits
from stratacache.vectors.local import LocalIndex
from stratacache.vectors.rows import Half, Slots
from stratacache.vectors.slots import SlotTable, digest_of, prefix

DIMENSION = 24
HERE = b"h" * 16


def digest(name: object) -> bytes:
    return hashlib.sha256(str(name).encode()).digest()[:16]


def vectors_of(count: int, seed: int = 0) -> list[Vector]:
    found = np.random.default_rng(seed).standard_normal((count, DIMENSION)).astype(np.float32)
    return list(found / np.linalg.norm(found, axis=1, keepdims=True))


def question(clock: FakeClock, name: object, ttl: float = 600.0, partition: bytes = HERE) -> Question:
    return Question(digest(name), partition, str(name), clock.now(), clock.now() + ttl)


async def names(index: LocalIndex, vector: Vector, count: int = 10) -> list[str]:
    return [found.question.text for found in await index.search(HERE, vector, count)]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


Make = Callable[[IndexLimits], LocalIndex]


@pytest.fixture
async def make(clock: FakeClock, tmp_path: Path) -> AsyncIterator[Make]:
    made: list[LocalIndex] = []

    def index(limits: IndexLimits) -> LocalIndex:
        made.append(LocalIndex(DIMENSION, "f", clock, limits, folder=tmp_path / str(len(made))))
        return made[-1]

    yield index
    for one in made:
        await one.settled()
        await one.check()
        await one.close()


def core_of(index: LocalIndex) -> Core | None:
    large = index._table.partitions[HERE].large
    return large.core if large else None


# --- bounds


async def test_the_soonest_to_expire_makes_room(make: Make, clock: FakeClock) -> None:
    index = make(IndexLimits(max_vectors=10))
    vectors = vectors_of(13)
    for number in range(10):
        await index.add(question(clock, number, ttl=100.0 - number), vectors[number])
    await index.add(question(clock, 10, ttl=500.0), vectors[10])
    await index.add(question(clock, 11, ttl=500.0), vectors[11])
    assert sorted(map(int, await names(index, vectors[0], 20))) == [0, 1, 2, 3, 4, 5, 6, 7, 10, 11]
    assert (await index.stats()).vectors == 10


async def test_among_equals_the_oldest_makes_room(make: Make, clock: FakeClock) -> None:
    index = make(IndexLimits(max_vectors=3))
    vectors = vectors_of(5)
    for number in range(5):
        await index.add(question(clock, number, ttl=math.inf), vectors[number])
        clock.advance(1.0)
    assert sorted(await names(index, vectors[0])) == ["2", "3", "4"]


async def test_a_replacement_pushes_nothing_out(make: Make, clock: FakeClock) -> None:
    index = make(IndexLimits(max_vectors=3))
    vectors = vectors_of(3)
    for number in (0, 1, 2, 1, 1):
        await index.add(question(clock, number), vectors[number])
    assert sorted(await names(index, vectors[0])) == ["0", "1", "2"]


async def test_the_index_keeps_to_its_bytes(make: Make, clock: FakeClock) -> None:
    index = make(IndexLimits(max_vectors=50_000, max_bytes=1 << 20))
    vectors = vectors_of(500)
    for number in range(12_000):
        await index.add(question(clock, number, ttl=1000.0 + number), vectors[number % 500])
    stats = await index.stats()
    assert stats.bytes <= (1 << 20) + 64 * 250  # compared with the bound every 64 changes
    assert 6000 < stats.vectors < 12_000
    assert "11999" in await names(index, vectors[11_999 % 500], 40)


def test_memory_that_is_short_means_product_codes() -> None:
    assert IndexLimits(max_bytes=1 << 30, max_vectors=100_000).resolve(512) == "hnsw"
    assert IndexLimits(max_bytes=1 << 30, max_vectors=1_000_000).resolve(512) == "ivfpq"
    assert IndexLimits(max_bytes=1 << 30, max_vectors=1_000_000, kind="exact").resolve(512) == "exact"


@pytest.mark.parametrize(
    "limits", [IndexLimits(max_vectors=0), IndexLimits(max_vectors=1 << 40), IndexLimits(max_bytes=1000)]
)
def test_bounds_that_make_no_sense_are_refused(limits: IndexLimits, clock: FakeClock) -> None:
    with pytest.raises(SettingsError):
        LocalIndex(DIMENSION, "f", clock, limits)


# --- growth and upkeep


@pytest.mark.parametrize(("kind", "core"), [("hnsw", HnswCore), ("ivfpq", IvfPqCore)])
async def test_a_partition_gets_a_core_as_it_grows_and_loses_it_as_it_shrinks(
    make: Make, clock: FakeClock, kind: IndexKind, core: type
) -> None:
    index = make(IndexLimits(kind=kind, max_vectors=5000, exact_below=700))
    vectors = vectors_of(900)
    for number, vector in enumerate(vectors):
        await index.add(question(clock, number), vector)
        if number == 699:
            await index.settled()
            assert core_of(index) is None
    await index.settled()
    assert isinstance(core_of(index), core)
    await index.check()
    for number in range(0, 900, 50):
        assert (await names(index, vectors[number]))[0] == str(number)
    await index.remove([digest(number) for number in range(600)])
    await index.settled()
    assert core_of(index) is None
    assert (await names(index, vectors[800]))[0] == "800"
    await index.remove([digest(number) for number in range(900)])
    assert await names(index, vectors[800]) == []
    assert (await index.stats()).partitions == 0


async def test_many_removals_bring_a_new_core(make: Make, clock: FakeClock) -> None:
    index = make(IndexLimits(kind="hnsw", max_vectors=5000, exact_below=100, rebuild_share=0.25))
    vectors = vectors_of(600)
    for number, vector in enumerate(vectors):
        await index.add(question(clock, number), vector)
    await index.settled()
    first = core_of(index)
    await index.remove([digest(number) for number in range(60)])
    await index.settled()
    assert core_of(index) is first
    await index.remove([digest(number) for number in range(60, 200)])
    await index.settled()
    assert core_of(index) is not first
    assert core_of(index) is not None
    for number in range(200, 600, 20):
        assert (await names(index, vectors[number]))[0] == str(number)


class HeldBack:
    """Makes builds wait until they are let go."""

    def __init__(self, index: LocalIndex) -> None:
        self.may_go = threading.Event()
        self.begun = threading.Event()
        self.failing = False
        self._make = index._upkeep._build_core
        index._upkeep._build_core = self.build

    def build(self, slots: Slots, abandoned: Callable[[], bool]) -> Core:
        self.begun.set()
        while not self.may_go.wait(0.01):
            if abandoned():
                break
        if self.failing:
            raise MemoryError("no memory")
        assert self._make is not None
        return self._make(slots, abandoned)


async def begun(held: HeldBack) -> None:
    assert await asyncio.to_thread(held.begun.wait, 30)
    held.begun.clear()


async def test_searches_and_changes_go_on_while_a_core_is_built(make: Make, clock: FakeClock) -> None:
    index = make(IndexLimits(kind="hnsw", max_vectors=5000, exact_below=100))
    held = HeldBack(index)
    vectors = vectors_of(400)
    for number in range(200):
        await index.add(question(clock, number), vectors[number])
    await begun(held)
    for number in range(200, 300):
        await index.add(question(clock, number), vectors[number])
    await index.remove([digest(number) for number in (*range(50), *range(200, 220))])
    await index.add(question(clock, 5), vectors[5])  # may not get a row that the build has seen
    await index.add(question(clock, 60), vectors[399])
    for number in (5, 150, 250):
        assert (await names(index, vectors[number]))[0] == str(number)
    assert (await names(index, vectors[399]))[0] == "60"
    assert core_of(index) is None
    held.may_go.set()
    await index.settled()
    await index.check()
    assert core_of(index) is not None
    assert {"10", "210"}.isdisjoint(await names(index, vectors[10], 50))
    for number in (5, 150, 250):
        assert (await names(index, vectors[number]))[0] == str(number)
    assert (await names(index, vectors[399]))[0] == "60"


async def test_a_rebuild_that_fails_leaves_the_old_core_and_is_tried_again(
    make: Make, clock: FakeClock
) -> None:
    index = make(IndexLimits(kind="hnsw", max_vectors=5000, exact_below=50))
    vectors = vectors_of(400)
    for number in range(300):
        await index.add(question(clock, number), vectors[number])
    await index.settled()
    old = core_of(index)
    held = HeldBack(index)
    held.failing = True
    await index.remove([digest(number) for number in range(100)])
    await begun(held)
    await index.add(question(clock, 350), vectors[350])
    await index.remove([digest(number) for number in range(100, 120)])
    held.may_go.set()
    await index.settled()
    assert core_of(index) is old
    with pytest.raises(VectorIndexError, match="no memory"):
        await index.check()
    for number in (130, 200, 350):
        assert (await names(index, vectors[number]))[0] == str(number)
    held.failing = False
    clock.advance(61.0)
    await index.settled()
    assert core_of(index) is not old
    for number in (130, 200, 350):
        assert (await names(index, vectors[number]))[0] == str(number)


async def test_closing_gives_up_a_build(clock: FakeClock) -> None:
    index = LocalIndex(DIMENSION, "f", clock, IndexLimits(kind="hnsw", max_vectors=500, exact_below=50))
    held = HeldBack(index)
    for number, vector in enumerate(vectors_of(100)):
        await index.add(question(clock, number), vector)
    await begun(held)
    await index.close()
    assert core_of(index) is None


# --- expiry


async def test_the_sweep_gives_back_what_has_expired(make: Make, clock: FakeClock) -> None:
    index = make(IndexLimits(kind="hnsw", max_vectors=5000, exact_below=50))
    vectors = vectors_of(400)
    for number, vector in enumerate(vectors):
        await index.add(question(clock, number, ttl=10.0 if number % 2 else 100.0), vector)
    await index.settled()
    clock.advance(10.0)
    assert len(await names(index, vectors[1], 20)) == 20
    assert await index.sweep() == 200
    assert (await index.stats()).vectors == 200
    await index.settled()
    await index.check()
    clock.advance(90.0)
    assert await names(index, vectors[0]) == []
    assert await index.sweep() == 200
    assert (await index.stats()).vectors == 0


async def test_the_sweep_runs_by_itself(make: Make, clock: FakeClock) -> None:
    index = make(IndexLimits(max_vectors=100, sweep_seconds=0.01))
    (vector,) = vectors_of(1)
    await index.add(question(clock, "a", ttl=1.0), vector)
    clock.advance(2.0)
    async with asyncio.timeout(30):
        while (await index.stats()).vectors:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.01)


async def test_a_graph_full_of_expired_questions_still_gives_the_live_ones(
    make: Make, clock: FakeClock
) -> None:
    index = make(IndexLimits(kind="hnsw", max_vectors=5000, exact_below=50))
    (centre,) = vectors_of(1)
    for number, moved in enumerate(vectors_of(600, seed=3)):
        distance, ttl = (0.4, 1000.0) if number >= 595 else (0.1, 10.0)
        await index.add(question(clock, number, ttl), centre + distance * moved)
    await index.settled()
    clock.advance(10.0)
    assert set(await names(index, centre, 5)) == {"595", "596", "597", "598", "599"}


# --- reading


async def test_questions_gives_every_live_question_once(make: Make, clock: FakeClock) -> None:
    index = make(IndexLimits(max_vectors=5000))
    for number, vector in enumerate(vectors_of(2500)):
        partition = digest(number % 7)
        await index.add(question(clock, number, 10.0 if number < 5 else 99.0, partition), vector)
    clock.advance(10.0)
    found = [one async for batch in index.questions() for one in batch]
    assert sorted(int(one.text) for one in found) == list(range(5, 2500))
    assert all(one.partition == digest(int(one.text) % 7) for one in found)
    await index.clear()
    assert [batch async for batch in index.questions() if batch] == []


async def test_check_tells_a_broken_index(make: Make, clock: FakeClock) -> None:
    index = make(IndexLimits(max_vectors=100))
    vectors = vectors_of(5)
    for number, vector in enumerate(vectors):
        await index.add(question(clock, number), vector)
    rows = index._table.rows
    rows.vectors[2] = 0
    with pytest.raises(VectorIndexError, match="length 1"):
        await index.check()
    rows.vectors[2] = vectors[2]
    rows.places[1] = 3
    with pytest.raises(VectorIndexError, match="place"):
        await index.check()
    rows.places[1] = 1
    rows.free.append(0)
    with pytest.raises(VectorIndexError, match="free"):
        await index.check()
    rows.free = array("I")


async def test_too_many_searches_at_once_are_refused(make: Make, clock: FakeClock) -> None:
    index = make(IndexLimits(kind="exact", max_vectors=5000))
    vectors = vectors_of(600)
    for number, vector in enumerate(vectors):
        await index.add(question(clock, number), vector)
    results = await asyncio.gather(
        *(index.search(HERE, vectors[0], 3) for _ in range(1500)), return_exceptions=True
    )
    refused = [result for result in results if isinstance(result, VectorIndexError)]
    assert 0 < len(refused) < 1500
    assert all(isinstance(result, (list, VectorIndexError)) for result in results)
    assert (await names(index, vectors[0]))[0] == "0"


# --- parts


def test_the_slot_table_finds_what_collides() -> None:
    records: list[bytes] = []
    table = SlotTable(64, records)
    present: dict[bytes, int] = {}
    chance = np.random.default_rng(5)
    for step in range(3000):
        key = bytes([int(chance.integers(0, 90))]) * int(chance.integers(1, 3))
        if key in present:
            table.remove(key)
            records[present.pop(key)] = b""
        elif len(present) < 64:
            row = next((at for at, record in enumerate(records) if not record), len(records))
            if row == len(records):
                records.append(b"")
            records[row] = prefix(key) + b"rest"
            table.insert(key, row)
            present[key] = row
        if step % 50 == 0:
            assert {name: table.find(name) for name in present} == present
            assert table.find(b"nobody") == -1
            assert all(digest_of(records[row]) == name for name, row in present.items())
    assert len(table) == len(present)


@pytest.mark.parametrize("core", [HnswCore, IvfPqCore])
def test_applying_a_change_twice_changes_nothing_more(core: type[HnswCore] | type[IvfPqCore]) -> None:
    vectors: Half = np.stack(vectors_of(900)).astype(np.float16)
    made = core.build(vectors, np.arange(800, dtype=np.uint32), lambda: False)
    for _ in range(2):
        made.apply(np.arange(800, 820, dtype=np.uint32), np.arange(0, 30, dtype=np.uint32))
    assert set(made.slots().tolist()) == set(range(30, 820))
    made.apply(np.empty(0, np.uint32), np.array([5, 899], np.uint32))
    assert set(made.slots().tolist()) == set(range(30, 820))
    found = made.search(vectors[815].astype(np.float32), 5)
    assert 815 in found.tolist()
