"""Versions in the SQLite file: bounded, forgotten in time, never given twice; and how entries are counted."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from tests.clock import FakeClock

from stratacache.errors import StoreError
from stratacache.stores.sqlite import SQLiteStore
from stratacache.types import Absent, Entry, PutResult, Versions


def digest_of(name: object) -> bytes:
    return hashlib.sha256(str(name).encode()).digest()[:16]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(tmp_path: Path, clock: FakeClock) -> AsyncIterator[SQLiteStore]:
    made = SQLiteStore(tmp_path / "cache.db", 400_000, clock, busy_seconds=0.05)
    yield made
    await made.check()
    await made.close()


async def snapshot(store: SQLiteStore, *tags: str) -> Versions:
    found = await store.get(digest_of("nobody"), tags)
    assert isinstance(found, Absent)
    return found.versions


async def put(
    store: SQLiteStore, name: object, clock: FakeClock, versions: Versions, ttl: float = 60.0, size: int = 10
) -> PutResult:
    now = clock.now()
    return await store.put(digest_of(name), Entry(b"f", b"b" * size, now, now + ttl, versions=versions))


def query(tmp_path: Path, sql: str, *values: object) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(tmp_path / "cache.db")
    try:
        rows = connection.execute(sql, values).fetchall()
        connection.commit()
    finally:
        connection.close()
    return rows


async def test_a_snapshot_that_is_known_writes_nothing(store: SQLiteStore, tmp_path: Path) -> None:
    await snapshot(store, "a", "b")
    other = sqlite3.connect(tmp_path / "cache.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert len(await snapshot(store, "b", "a")) == 2
    with pytest.raises(StoreError, match="locked"):
        await snapshot(store, "c")
    other.execute("ROLLBACK")
    other.close()


async def test_versions_without_entries_are_forgotten_in_time(
    store: SQLiteStore, clock: FakeClock, tmp_path: Path
) -> None:
    old = await snapshot(store, *(str(number) for number in range(50)))
    clock.advance(7300)
    await snapshot(store, "fresh")
    await snapshot(store, "fresher")
    assert query(tmp_path, "SELECT tag FROM versions ORDER BY tag") == [("fresh",), ("fresher",)]
    assert await put(store, "a", clock, old[:1]) == "outdated"


async def test_a_version_lasts_as_long_as_its_entries(
    store: SQLiteStore, clock: FakeClock, tmp_path: Path
) -> None:
    versions = await snapshot(store, "a")
    await put(store, "long", clock, versions, ttl=1e6)
    await put(store, "short", clock, versions, ttl=10)
    clock.advance(1e6 - 1)
    await snapshot(store, "another")
    assert isinstance(await store.get(digest_of("long"), ["a"]), Entry)
    clock.advance(1e4)
    await snapshot(store, "yet another")
    assert query(tmp_path, "SELECT tag FROM versions WHERE tag = 'a'") == []


async def test_the_number_of_versions_is_bounded(
    store: SQLiteStore, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stratacache.stores.sqlite_versions.MAX_TAGS", 10)
    versions = await snapshot(store, "kept")
    await put(store, "a", clock, versions, ttl=1e5)
    for number in range(40):
        await snapshot(store, str(number), f"{number} too")
    await store.invalidate([f"bumped {number}" for number in range(5)])
    assert query(tmp_path, "SELECT count(*) FROM versions") == [(10,)]
    assert isinstance(await store.get(digest_of("a"), ["kept"]), Entry), "the one whose entries live longest"


async def test_a_forgotten_version_does_not_come_back(
    store: SQLiteStore, clock: FakeClock, tmp_path: Path
) -> None:
    versions = await snapshot(store, "a")
    await put(store, "x", clock, versions)
    query(tmp_path, "DELETE FROM versions")
    clock.jump(-1000)
    assert isinstance(await store.get(digest_of("x")), Absent)
    again = await snapshot(store, "a")
    assert dict(again)["a"] > dict(versions)["a"]
    assert await put(store, "x", clock, versions) == "outdated"


async def counted(store: SQLiteStore, *tags: str) -> int | None:
    return (await store.invalidate(tags, dry_run=True)).affected


async def test_entries_are_counted_exactly_as_they_come_and_go(store: SQLiteStore, clock: FakeClock) -> None:
    versions = await snapshot(store, "a")
    await asyncio.gather(*(put(store, number, clock, versions) for number in range(10)))
    await put(store, 0, clock, versions)  # replaced
    assert await counted(store, "a") == 10
    await store.invalidate([], [digest_of(1), digest_of(2)])
    assert await counted(store, "a") == 8
    await put(store, 3, clock, ())  # replaced by one without tags
    await put(store, 4, clock, versions, ttl=-1.0)  # declined: what was there goes
    assert await counted(store, "a") == 6
    clock.advance(61)
    await put(store, "fresh", clock, await snapshot(store, "a"))  # which sweeps
    assert await counted(store, "a") == 1


async def test_evicted_entries_are_not_counted(store: SQLiteStore, clock: FakeClock) -> None:
    versions = await snapshot(store, "a")
    for number in range(30):
        await put(store, number, clock, versions, size=30_000)
    entries = (await store.stats()).entries
    assert entries < 30
    assert await counted(store, "a") == entries


async def test_a_torn_row_is_counted_until_the_next_version(
    store: SQLiteStore, clock: FakeClock, tmp_path: Path
) -> None:
    versions = await snapshot(store, "a")
    await put(store, "x", clock, versions)
    await put(store, "y", clock, versions)
    query(tmp_path, "UPDATE entries SET value = x'00' WHERE digest = ?", digest_of("x"))
    assert isinstance(await store.get(digest_of("x")), Absent)
    await asyncio.gather(*store._tasks)
    await store.check()
    assert await counted(store, "a") == 1, "no more than there are entries"
    assert (await store.invalidate(["a"])).affected == 1
    assert await counted(store, "a") == 0


async def race(store: SQLiteStore, clock: FakeClock, names: Sequence[int]) -> list[PutResult]:
    versions = await snapshot(store, "a")
    results = await asyncio.gather(
        *(put(store, name, clock, versions) for name in names), store.invalidate(["a"])
    )
    return [result for result in results if isinstance(result, str)]


async def test_puts_that_wait_beside_an_invalidation_never_land_after_it(
    store: SQLiteStore, clock: FakeClock
) -> None:
    for turn in range(20):
        await race(store, clock, range(turn * 10, turn * 10 + 10))
        for name in range(turn * 10, turn * 10 + 10):
            assert isinstance(await store.get(digest_of(name)), Absent)


async def test_a_disk_that_takes_only_some_of_a_group_takes_those(
    store: SQLiteStore, clock: FakeClock
) -> None:
    versions = await snapshot(store, "a")
    pages = await store._lanes.write(lambda connection: connection.execute("PRAGMA page_count").fetchone()[0])
    await store._lanes.write(
        lambda connection: connection.execute(f"PRAGMA max_page_count = {pages + 2}").fetchone()
    )
    held = asyncio.create_task(put(store, "first", clock, versions))
    await asyncio.sleep(0)
    results = await asyncio.gather(
        *(put(store, size, clock, versions, size=size) for size in (100, 90_000, 200)), return_exceptions=True
    )
    assert await held == "stored"
    assert [results[0], results[2]] == ["stored", "stored"]
    assert isinstance(results[1], StoreError)
    assert "full" in str(results[1])
    assert await counted(store, "a") == 3
