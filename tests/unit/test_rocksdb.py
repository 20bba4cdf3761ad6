"""The RocksDB store's folder: ours alone, bounded, and whole after a kill, damage or a full disk."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import random
import stat
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.clock import FakeClock

from stratacache.errors import SettingsError, StoreError
from stratacache.stores import open_backend, rocksdb_shelf
from stratacache.stores.rocksdb import RocksDBStore
from stratacache.types import Absent, Entry, Versions

MAX_BYTES = 4 << 20


def digest_of(name: object) -> bytes:
    return hashlib.sha256(str(name).encode()).digest()[:16]


def entry_of(
    clock: FakeClock, body: bytes = b"answer", *, versions: Versions = (), ttl: float = 600
) -> Entry:
    return Entry(b"form", body, clock.now(), clock.now() + ttl, versions=versions)


async def versions_of(store: RocksDBStore, *tags: str) -> Versions:
    found = await store.get(digest_of("nobody asked"), tags)
    assert isinstance(found, Absent)
    return found.versions


def size_of(folder: Path) -> int:
    size = 0
    for path in folder.iterdir():
        try:
            size += path.stat().st_size
        except FileNotFoundError:  # RocksDB has just done with it
            continue
    return size


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program, folder], capture_output=True, text=True)


def make(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def files(folder: Path, pattern: str = "*") -> list[Path]:
    return sorted(folder.glob(pattern))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
async def store(folder: Path, clock: FakeClock) -> AsyncIterator[RocksDBStore]:
    made = RocksDBStore(folder, MAX_BYTES, clock)
    yield made
    await made.check()
    await made.close()


@pytest.mark.parametrize("size", [2_600, 20_000])
async def test_the_folder_stays_near_the_bound_however_fast_it_is_filled(
    folder: Path, clock: FakeClock, size: int
) -> None:
    bound = 8 << 20
    store = RocksDBStore(folder, bound, clock)
    chance = random.Random(5)
    sizes: list[int] = []
    for number in range(5 * bound // 2 // size):
        clock.advance(1)
        entry = entry_of(clock, chance.randbytes(size), versions=await versions_of(store, "*", "m"), ttl=1e7)
        assert await store.put(digest_of(number), entry) == "stored"
        if number % 4 == 0:
            await store.get(
                digest_of(number - chance.randrange(61, 200)), ("*", "m")
            )  # to the end of the order
        if number % 20 == 0:
            sizes.append(size_of(folder))
    stats = await store.stats()
    assert stats.evictions > 0
    assert stats.bytes > 0.9 * bound
    usual = statistics.quantiles(sizes, n=10)[-1]
    assert usual <= 1.3 * bound, usual / bound
    assert max(sizes) <= 1.7 * bound, (
        max(sizes) / bound
    )  # a compaction holds what it reads and what it writes
    await store.check()
    await store.close()


async def test_entries_that_only_expire_do_not_swell_the_folder(
    store: RocksDBStore, folder: Path, clock: FakeClock
) -> None:
    chance = random.Random(6)
    worst = 0
    for number in range(5_000):
        clock.advance(1)
        await store.put(digest_of(number), entry_of(clock, chance.randbytes(2_600), ttl=400))
        if number % 100 == 0:
            worst = max(worst, size_of(folder))
    stats = await store.stats()
    assert stats.entries <= 420
    assert stats.evictions == 0
    assert worst <= 1.7 * MAX_BYTES, worst / MAX_BYTES


async def test_only_one_opener_at_a_time(store: RocksDBStore, folder: Path, clock: FakeClock) -> None:
    with pytest.raises(StoreError, match="in use; RocksDB is for one process"):
        RocksDBStore(folder, MAX_BYTES, clock)
    program = (
        "import sys; from pathlib import Path; from tests.clock import FakeClock;"
        "from stratacache.stores.rocksdb import RocksDBStore; RocksDBStore(Path(sys.argv[1]), 1 << 20, FakeClock())"
    )
    done = run(program, folder)
    assert "in use; RocksDB is for one process" in done.stderr


WRITER = """
import asyncio, sys
from pathlib import Path
from tests.clock import FakeClock
from tests.unit.test_rocksdb import digest_of, entry_of, versions_of
from stratacache.stores.rocksdb import RocksDBStore

async def work():
    clock = FakeClock()
    store = RocksDBStore(Path(sys.argv[1]), 1 << 20, clock)
    for number in range(10**9):
        name = number % 300
        entry = entry_of(clock, b"x" * 5_000, versions=await versions_of(store, "*", f"t{name % 7}"))
        await store.put(digest_of(name), entry)
        if number % 10 == 0:
            told = await store.invalidate([f"t{name % 7}"])
            print(number, *dict(told.versions).values(), flush=True)

asyncio.run(work())
"""


def write_until_killed(folder: Path, stop: int) -> tuple[int, int]:
    """A writer that is killed once it did ``stop`` steps; its last step and the version that it then gave."""
    number = version = 0
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, folder], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            number, version = map(int, line.split())
            if number >= stop:
                break
        writer.kill()
    return number, version


async def test_a_writer_killed_in_the_midst_leaves_all_whole_and_no_invalidation_undone(
    folder: Path, clock: FakeClock
) -> None:
    for stop in (30, 95, 600):
        number, version = write_until_killed(folder, stop)
        store = RocksDBStore(folder, 1 << 20, clock)
        await store.check()
        ((_, now),) = await versions_of(store, f"t{number % 300 % 7}")
        assert now >= version
        assert (await store.stats()).entries > 10
        await store.close()


async def test_versions_and_counts_outlive_the_process(folder: Path, clock: FakeClock) -> None:
    store = RocksDBStore(folder, MAX_BYTES, clock)
    versions = await versions_of(store, "*", "a")
    for number in range(5):
        await store.put(digest_of(number), entry_of(clock, versions=versions))
    await store.close()
    clock.jump(-1e6)
    store = RocksDBStore(folder, MAX_BYTES, clock)
    assert await versions_of(store, "*", "a") == versions
    told = await store.invalidate(["a"])
    assert told.affected == 5
    assert dict(told.versions)["a"] > dict(versions)["a"]
    assert dict(await versions_of(store, "new"))["new"] > dict(told.versions)["a"], (
        "though the clock was set back"
    )
    await store.close()


async def test_a_folder_of_another_program_is_refused_and_left_alone(folder: Path, clock: FakeClock) -> None:
    thesis = folder / "thesis.txt"
    make(thesis, "all of it")
    with pytest.raises(StoreError, match="not a store of Stratacache"):
        RocksDBStore(folder, MAX_BYTES, clock)
    assert files(folder) == [thesis]


async def test_a_folder_of_another_version_is_refused(folder: Path, clock: FakeClock) -> None:
    await RocksDBStore(folder, MAX_BYTES, clock).close()
    (folder / "STRATACACHE").write_text("Stratacache RocksDB store, format 2\n")
    with pytest.raises(StoreError, match="another version"):
        RocksDBStore(folder, MAX_BYTES, clock)


async def test_a_path_that_is_a_file_is_a_store_error(folder: Path, clock: FakeClock) -> None:
    make(folder, "x")
    with pytest.raises(StoreError, match="cannot open"):
        RocksDBStore(folder, MAX_BYTES, clock)


async def filled(folder: Path, clock: FakeClock) -> None:
    store = RocksDBStore(folder, MAX_BYTES, clock)
    chance = random.Random(7)
    for number in range(900):
        await store.put(digest_of(number), entry_of(clock, chance.randbytes(3_000)))
    await store.close()


@pytest.mark.parametrize("pattern", ["MANIFEST-*", "CURRENT"])
async def test_a_damaged_folder_is_moved_aside(
    folder: Path, clock: FakeClock, pattern: str, caplog: pytest.LogCaptureFixture
) -> None:
    await filled(folder, clock)
    for path in files(folder, pattern):
        path.write_bytes(b"not what was here" * 100)
    with caplog.at_level(logging.WARNING):
        store = RocksDBStore(folder, MAX_BYTES, clock)
    assert "is damaged" in caplog.text
    assert (await store.stats()).entries == 0
    assert await store.put(digest_of("a"), entry_of(clock)) == "stored"
    await store.close()
    assert files(folder.parent, "cache.corrupt-*") == [folder.with_name("cache.corrupt-20231114T221320Z")]


async def test_damage_met_later_is_an_error_and_mended_at_the_next_start(
    folder: Path, clock: FakeClock
) -> None:
    await filled(folder, clock)
    for path in files(folder, "*.sst"):
        content = bytearray(path.read_bytes())
        for at in range(0, len(content) * 3 // 4, 1_000):
            content[at] ^= 0xFF
        path.write_bytes(content)
    wrong = 0
    store = RocksDBStore(folder, MAX_BYTES, clock)
    if (await store.stats()).entries:  # else the totals were hit, and it was mended at once
        for number in range(900):
            try:
                found = await store.get(digest_of(number))
            except StoreError:
                wrong += 1
            else:
                assert isinstance(found, Absent) or found.form == b"form"
        assert wrong > 0
    await store.close()
    store = RocksDBStore(folder, MAX_BYTES, clock)
    assert (await store.stats()).entries == 0
    await store.check()
    await store.close()


LIMITED = """
import asyncio, resource, sys
from pathlib import Path
from tests.clock import FakeClock
from tests.unit.test_rocksdb import digest_of, entry_of
from stratacache.errors import StoreError
from stratacache.stores.rocksdb import RocksDBStore
from stratacache.types import Entry

async def work():
    clock = FakeClock()
    store = RocksDBStore(Path(sys.argv[1]), 64 << 20, clock)
    await store.put(digest_of("before"), entry_of(clock))
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
    failed = 0
    for number in range(400):
        try:
            await store.put(digest_of(number), entry_of(clock, bytes(3_000)))
        except StoreError:
            failed += 1
    assert failed > 3, failed
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert await store.put(digest_of("after"), entry_of(clock)) == "stored"
    assert isinstance(await store.get(digest_of("after")), Entry)
    assert isinstance(await store.get(digest_of("before")), Entry)
    await store.check()
    await store.close()
    print("recovered")

asyncio.run(work())
"""


async def test_a_disk_that_takes_no_more_is_a_store_error_until_it_does(folder: Path) -> None:
    done = run(LIMITED, folder)
    assert done.stdout == "recovered\n", done.stderr


async def test_tags_that_no_entry_has_are_forgotten_in_time(
    store: RocksDBStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocksdb_shelf, "MAX_IDLE_TAGS", 500)
    versions = await versions_of(store, "*")
    await store.put(digest_of("a"), entry_of(clock, versions=versions, ttl=1e7))
    for number in range(0, 6_000, 20):
        clock.advance(200)
        await versions_of(store, *(f"tag {n}" for n in range(number, number + 20)))
    await store.check()
    assert store._lane._connection.totals.tags < 2_000
    assert isinstance(await store.get(digest_of("a"), ("*",)), Entry)


async def test_the_filter_of_questions_lies_beside_the_folder(folder: Path, clock: FakeClock) -> None:
    backend = open_backend(f"rocksdb:///{folder}", max_bytes=MAX_BYTES, clock=clock)
    questions = backend.questions(1_000, 0.01)
    await questions.note(digest_of("a"))
    await questions.close()
    again = backend.questions(1_000, 0.01)
    assert await again.seen(digest_of("a"))
    await again.close()
    await backend.store.close()
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    assert files(folder.parent, "cache.questions")


async def test_more_work_than_the_disk_can_follow_is_refused(store: RocksDBStore, clock: FakeClock) -> None:
    results = await asyncio.gather(
        *(store.get(digest_of(number)) for number in range(3_000)), return_exceptions=True
    )
    assert all(isinstance(result, Absent | StoreError) for result in results)
    assert isinstance(results[0], Absent)


def test_a_bound_that_is_none_is_refused(folder: Path, clock: FakeClock) -> None:
    with pytest.raises(SettingsError):
        RocksDBStore(folder, 0, clock)
    assert not os.path.lexists(folder)
