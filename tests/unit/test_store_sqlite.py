"""The SQLite file: how it is made, recognised, bounded, and what happens when it is broken, full or locked."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.clock import FakeClock

from stratacache.errors import SettingsError, StoreError
from stratacache.stores import sqlite_work
from stratacache.stores.lane import Lane
from stratacache.stores.sqlite import SQLiteStore
from stratacache.stores.sqlite_file import mark_damaged, open_writer
from stratacache.stores.sqlite_schema import CACHE
from stratacache.types import Absent, Entry, Invalidated, Versions

MAX_BYTES = 400_000


def digest_of(name: object) -> bytes:
    return hashlib.sha256(str(name).encode()).digest()


def entry_of(
    clock: FakeClock, text: str = "answer", *, ttl: float = 1e6, size: int = 0, versions: Versions = ()
) -> Entry:
    now = clock.now()
    return Entry(b"form", text.encode().ljust(size), now, expires_at=now + ttl, versions=versions)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache.db"


@pytest.fixture
async def store(path: Path, clock: FakeClock) -> AsyncIterator[SQLiteStore]:
    made = SQLiteStore(path, MAX_BYTES, clock, busy_seconds=0.01)
    yield made
    await made.close()


def size_of(path: Path) -> int:
    return path.stat().st_size


def delete(path: Path) -> None:
    path.unlink()


def spoil(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def damage(path: Path, marker: bytes) -> None:
    """Overwrite the page that holds ``marker``."""
    content = bytearray(path.read_bytes())
    page = content.index(marker) // 16_384 * 16_384
    content[page : page + 200] = b"\xff" * 200
    path.write_bytes(content)


async def test_files_are_private_and_the_folder_is_made(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "a" / "b" / "cache.db"
    store = SQLiteStore(path, MAX_BYTES, clock)
    await store.put(b"a", entry_of(clock))
    assert {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {
        "cache.db": 0o600,
        "cache.db-wal": 0o600,
        "cache.db-shm": 0o600,
        "cache.db.lock": 0o600,
        "cache.db.bumps": 0o600,
    }
    await store.close()


async def test_entries_outlive_the_store(store: SQLiteStore, path: Path, clock: FakeClock) -> None:
    await store.put(b"a", entry_of(clock))
    await store.close()
    again = SQLiteStore(path, MAX_BYTES, clock)
    assert await again.get(b"a") == entry_of(clock)
    await again.check()
    await again.close()


def test_another_programs_database_is_left_alone(path: Path, clock: FakeClock) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE notes (text)")
    other.commit()
    other.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"another program's database; name another file"):
        SQLiteStore(path, MAX_BYTES, clock)
    assert path.read_bytes() == before


async def test_a_newer_file_is_left_alone(store: SQLiteStore, path: Path, clock: FakeClock) -> None:
    await store.close()
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA user_version = 99")
    newer.close()
    with pytest.raises(StoreError, match=r"schema version 99.*upgrade Stratacache"):
        SQLiteStore(path, MAX_BYTES, clock)
    assert not list(path.parent.glob("*corrupt*"))


@pytest.mark.parametrize("content", [b"not a database at all" * 100, b"SQLite format 3\x00" + b"\x07" * 5000])
async def test_a_file_that_is_no_database_is_moved_aside(
    path: Path, clock: FakeClock, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    spoil(path, content)
    store = SQLiteStore(path, MAX_BYTES, clock)
    assert await store.put(b"a", entry_of(clock)) == "stored"
    await store.check()
    await store.close()
    aside = path.with_name("cache.db.corrupt-20231114T221320Z")
    assert aside.read_bytes() == content
    assert f"moved to {aside}" in caplog.text


async def test_a_damaged_page_is_found_at_the_start(store: SQLiteStore, path: Path, clock: FakeClock) -> None:
    for number in range(40):
        await store.put(digest_of(number), entry_of(clock, f"text of {number}", size=2000))
    await store.close()
    damage(path, b"text of 20")
    again = SQLiteStore(path, MAX_BYTES, clock)
    assert (await again.stats()).entries == 0
    await again.close()
    assert len(list(path.parent.glob("cache.db.corrupt-*"))) == 1


async def test_damage_met_by_a_read_is_an_error_once_and_a_fresh_start_for_all(
    store: SQLiteStore, path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stratacache.stores.sqlite_file._CHECKED_BYTES", 0)
    for number in range(40):
        await store.put(digest_of(number), entry_of(clock, f"text of {number}", size=2000))
    await store.close()
    damage(path, b"text of 20")
    damaged, neighbour = SQLiteStore(path, MAX_BYTES, clock), SQLiteStore(path, MAX_BYTES, clock)
    assert isinstance(await neighbour.get(digest_of(1)), Entry)
    with pytest.raises(StoreError, match="is damaged and will be replaced"):
        await damaged.get(digest_of(20))
    assert await damaged.get(digest_of(20), ["a"]) == await neighbour.get(digest_of(20), ["a"])
    assert isinstance(await neighbour.get(digest_of(1)), Absent)
    await damaged.put(digest_of(1), entry_of(clock))
    assert await neighbour.get(digest_of(1)) == entry_of(clock)
    for one in (damaged, neighbour):
        await one.check()
        await one.close()
    assert len(list(path.parent.glob("cache.db.corrupt-*Z"))) == 1


@pytest.mark.parametrize("suffixes", [("",), ("", "-wal", "-shm")])
async def test_a_file_that_is_deleted_is_made_anew_for_all(
    store: SQLiteStore, path: Path, clock: FakeClock, suffixes: tuple[str, ...]
) -> None:
    neighbour = SQLiteStore(path, MAX_BYTES, clock)
    old = dict((await neighbour.get(b"a", ["t"])).versions)
    await store.put(b"a", entry_of(clock, versions=tuple(old.items())))
    for suffix in suffixes:
        delete(path.with_name(path.name + suffix))
    assert isinstance(await store.get(b"a"), Absent)
    assert await store.put(b"a", entry_of(clock, versions=tuple(old.items()))) == "outdated"
    await store.put(b"b", entry_of(clock))
    assert await neighbour.get(b"b") == entry_of(clock)
    await neighbour.check()
    await neighbour.close()


async def test_an_invalidation_while_the_file_is_replaced_reaches_the_new_file(
    store: SQLiteStore, path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = sqlite_work.invalidate
    late: list[Versions] = []

    def replaced_meanwhile(connection: sqlite3.Connection, *arguments: Any) -> Invalidated:
        told = original(connection, *arguments)
        if not late:
            mark_damaged(path)
            fresh = open_writer(path, CACHE, 0.1, clock.now())
            late.append(sqlite_work.snapshot(fresh, ["t"], clock.now()))
            fresh.close()
        return told

    monkeypatch.setattr(sqlite_work, "invalidate", replaced_meanwhile)
    told = await store.invalidate(["t"])
    assert dict(told.versions)["t"] > dict(late[0])["t"]
    assert await store.put(b"a", entry_of(clock, versions=late[0])) == "outdated"


async def test_a_file_of_the_first_schema_starts_empty(
    path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    old = sqlite3.connect(path)
    old.executescript(
        "CREATE TABLE entries (id INTEGER PRIMARY KEY, digest BLOB NOT NULL, body BLOB NOT NULL);"
        "CREATE TABLE totals (entries INTEGER NOT NULL, bytes INTEGER NOT NULL);"
        "CREATE TRIGGER added AFTER INSERT ON entries BEGIN UPDATE totals SET entries = entries + 1; END;"
        "INSERT INTO totals VALUES (0, 0); INSERT INTO entries VALUES (1, x'00', x'00');"
        f"PRAGMA application_id = {CACHE.application}; PRAGMA user_version = 1;"
    )
    old.close()
    store = SQLiteStore(path, MAX_BYTES, clock)
    assert (await store.stats()).entries == 0
    assert await store.put(b"a", entry_of(clock)) == "stored"
    await store.check()
    await store.close()
    assert [record.message for record in caplog.records] == [
        f"{path} has schema version 1, now 3: the cache starts empty"
    ]
    assert not list(path.parent.glob("*corrupt*"))


async def test_a_damaged_file_takes_its_log_along(store: SQLiteStore, path: Path, clock: FakeClock) -> None:
    await store.put(b"a", entry_of(clock))  # another process that still has the file, and so its log, open
    mark_damaged(path)
    again = SQLiteStore(path, MAX_BYTES, clock)
    assert isinstance(await again.get(b"a"), Absent)
    await again.check()
    await again.close()
    aside = {file.name[-4:] for file in path.parent.glob("cache.db.corrupt-*")}
    assert aside == {"320Z", "-wal", "-shm"}


async def test_a_second_damaged_file_does_not_overwrite_the_first(path: Path, clock: FakeClock) -> None:
    for content in (b"first" * 100, b"second" * 100):
        spoil(path, content)
        await SQLiteStore(path, MAX_BYTES, clock).close()
    assert len(list(path.parent.glob("cache.db.corrupt-*"))) == 2


@pytest.mark.parametrize(
    "change",
    [
        "value = x'00'",
        "value = substr(value, 1, length(value) - 1)",
        "value = substr(value, 1, 40) || x'00' || substr(value, 42)",
        "value = 'text'",
        "value = 7",
        "value = ''",
        "digest = (SELECT digest FROM entries WHERE id = 2), id = 9",
    ],
)
async def test_a_torn_or_foreign_row_is_a_miss_and_is_deleted(
    store: SQLiteStore, path: Path, clock: FakeClock, change: str
) -> None:
    await store.put(digest_of("a"), entry_of(clock, "a"))
    await store.put(digest_of("b"), entry_of(clock, "b"))
    vandal = sqlite3.connect(path)
    if "digest" in change:
        vandal.execute("UPDATE entries SET digest = x'00' WHERE id = 2")
        vandal.execute("UPDATE entries SET digest = ? WHERE id = 1", (digest_of("b"),))
        asked = digest_of("b")
    else:
        vandal.execute(f"UPDATE entries SET {change} WHERE id = 1")
        asked = digest_of("a")
    vandal.commit()
    with pytest.raises(StoreError, match="torn or foreign"):
        await store.check()
    assert isinstance(await store.get(asked), Absent)
    await asyncio.gather(*store._tasks)
    assert vandal.execute("SELECT count(*) FROM entries WHERE digest = ?", (asked,)).fetchone() == (0,)
    vandal.close()


async def test_a_late_removal_does_not_hit_what_replaced_the_row(
    store: SQLiteStore, clock: FakeClock
) -> None:
    await store.put(b"a", entry_of(clock, "old", ttl=5))
    clock.advance(6)
    found, kept = await asyncio.gather(store.get(b"a"), store.put(b"a", entry_of(clock, "new")))
    assert kept == "stored"
    assert isinstance(found, Absent) or found == entry_of(clock, "new")
    await asyncio.gather(*store._tasks)
    assert await store.get(b"a") == entry_of(clock, "new")


async def test_a_row_seen_expired_stays_gone_while_its_removal_waits(
    store: SQLiteStore, clock: FakeClock
) -> None:
    await store.put(b"a", entry_of(clock, ttl=5))
    go = threading.Event()
    busy = asyncio.ensure_future(store._lanes.write(lambda _: go.wait()))
    clock.advance(6)
    assert isinstance(await store.get(b"a"), Absent)
    clock.jump(-6)
    assert isinstance(await store.get(b"a"), Absent)
    go.set()
    await asyncio.gather(busy, *store._tasks)
    assert (await store.stats()).entries == 0
    assert store._condemned == set()


async def test_a_slow_read_does_not_bring_back_what_was_removed_meanwhile(
    store: SQLiteStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put(b"a", entry_of(clock, ttl=5))
    clock.advance(6)
    writer_may_go, has_read, reader_may_go = threading.Event(), threading.Event(), threading.Event()
    held = asyncio.ensure_future(store._lanes.write(lambda _: writer_may_go.wait()))
    assert isinstance(await store.get(b"a"), Absent)  # its removal waits behind ``held``
    original = sqlite_work.read

    def slow_read(connection: sqlite3.Connection, digest: bytes, tags: Sequence[str]) -> sqlite_work.Look:
        found = original(connection, digest, tags)
        has_read.set()
        reader_may_go.wait()
        return found

    monkeypatch.setattr(sqlite_work, "read", slow_read)
    second = asyncio.ensure_future(store.get(b"a"))
    await asyncio.to_thread(has_read.wait)
    writer_may_go.set()
    await held
    await store._lanes.write(lambda _: None)  # the row is gone
    for _ in range(10):
        await asyncio.sleep(0)
    clock.jump(-6)
    reader_may_go.set()
    assert isinstance(await second, Absent)


async def test_text_that_has_no_utf8_is_an_error_of_the_store(store: SQLiteStore, clock: FakeClock) -> None:
    entry = Entry(form=b"f", body=b"b", created_at=0.0, expires_at=clock.now() + 9, model="\ud800")
    with pytest.raises(StoreError, match="no UTF-8"):
        await store.put(b"a", entry)
    assert isinstance(await store.get(b"a"), Absent)
    await store.check()


async def test_replacing_the_oldest_by_something_larger_keeps_it(
    store: SQLiteStore, clock: FakeClock
) -> None:
    for number in range(10):
        await store.put(digest_of(number), entry_of(clock, size=38_000))
        clock.advance(1)
    larger = entry_of(clock, "larger", size=80_000)
    assert await store.put(digest_of(0), larger) == "stored"
    assert await store.get(digest_of(0)) == larger
    assert isinstance(await store.get(digest_of(1)), Absent)
    await store.check()


async def test_a_full_disk_is_an_error_and_loses_nothing(store: SQLiteStore, clock: FakeClock) -> None:
    await store.put(b"a", entry_of(clock, "kept"))
    pages = await store._lanes.write(lambda connection: connection.execute("PRAGMA page_count").fetchone()[0])
    await store._lanes.write(lambda connection: connection.execute(f"PRAGMA max_page_count = {pages}"))
    with pytest.raises(StoreError, match="full") as caught:
        await store.put(b"b", entry_of(clock, size=90_000))
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    assert await store.get(b"a") == entry_of(clock, "kept")
    assert isinstance(await store.get(b"b"), Absent)
    await store._lanes.write(lambda connection: connection.execute("PRAGMA max_page_count = 100000"))
    assert await store.put(b"b", entry_of(clock, size=90_000)) == "stored"
    await store.check()


async def test_a_locked_file_is_an_error_for_writes_only(
    store: SQLiteStore, path: Path, clock: FakeClock
) -> None:
    await store.put(b"a", entry_of(clock))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked"):
        await store.put(b"b", entry_of(clock))
    with pytest.raises(StoreError, match="locked"):
        await store.invalidate([], [b"a"])
    assert await store.get(b"a") == entry_of(clock)
    other.execute("ROLLBACK")
    assert await store.put(b"b", entry_of(clock)) == "stored"
    other.close()


async def test_a_background_write_that_fails_is_logged(
    store: SQLiteStore, path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    await store.put(b"a", entry_of(clock, ttl=1))
    clock.advance(2)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert isinstance(await store.get(b"a"), Absent)
    await asyncio.gather(*store._tasks)
    assert "locked" in caplog.text
    other.close()


async def test_a_full_queue_is_an_error(path: Path) -> None:
    go = threading.Event()
    lane = Lane("test", lambda: sqlite3.connect(path))
    waiting = [asyncio.ensure_future(lane.run(lambda _: go.wait())) for _ in range(1024)]
    await asyncio.wait(waiting, timeout=0)
    with pytest.raises(StoreError, match="1024 operations are waiting"):
        await lane.run(lambda _: None)
    go.set()
    await asyncio.gather(*waiting)
    assert await lane.run(lambda _: 7) == 7
    await lane.close()


async def test_the_least_recently_used_makes_way(store: SQLiteStore, clock: FakeClock) -> None:
    for number in range(10):
        await store.put(digest_of(number), entry_of(clock, size=30_000))
        clock.advance(100)
    for number in (0, 1):
        await store.get(digest_of(number))
    for number in range(10, 15):
        clock.advance(100)
        await store.put(digest_of(number), entry_of(clock, size=30_000))
    kept = {number for number in range(15) if isinstance(await store.get(digest_of(number)), Entry)}
    assert kept == {0, 1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}


async def test_uses_are_written_once_a_minute_and_without_a_put(store: SQLiteStore, clock: FakeClock) -> None:
    for number in range(256):
        await store.put(digest_of(number), entry_of(clock, size=500))
    for number in range(256):
        await store.get(digest_of(number))
    assert store._uses == {}
    clock.advance(60)
    for number in range(256):
        await store.get(digest_of(number))
    await asyncio.gather(*store._tasks)
    query = "SELECT min(used), max(used) FROM entries"
    used = await store._lanes.read(lambda connection: connection.execute(query).fetchone())
    assert used == (int(clock.now()), int(clock.now()))


async def test_uses_that_wait_are_written_at_close(store: SQLiteStore, path: Path, clock: FakeClock) -> None:
    for name in (b"a", b"b", b"c"):
        await store.put(name, entry_of(clock, size=80_000))
    clock.advance(100)
    await store.get(b"a")
    await store.close()
    reader = sqlite3.connect(path)
    assert reader.execute("SELECT max(used) FROM entries").fetchone() == (int(clock.now()),)
    reader.close()


async def test_uses_are_not_written_while_there_is_room(
    store: SQLiteStore, path: Path, clock: FakeClock
) -> None:
    await store.put(b"a", entry_of(clock, size=80_000))
    clock.advance(100)
    await store.get(b"a")
    await store.close()
    reader = sqlite3.connect(path)
    assert reader.execute("SELECT used FROM entries").fetchone() == (int(clock.now()) - 100,)
    reader.close()


async def test_expired_rows_leave_without_being_asked_for(store: SQLiteStore, clock: FakeClock) -> None:
    for number in range(50):
        await store.put(digest_of(number), entry_of(clock, ttl=5))
    clock.advance(6)
    for number in range(2):
        await store.put(digest_of(f"fresh {number}"), entry_of(clock))
    assert (await store.stats()).entries == 2


async def test_the_file_shrinks(path: Path, clock: FakeClock) -> None:
    store = SQLiteStore(path, 50_000_000, clock)
    digests = [digest_of(number) for number in range(60)]
    for digest in digests:
        await store.put(digest, entry_of(clock, size=100_000))
    await store.invalidate([], digests)
    await store.invalidate([], [])
    await store.close()
    assert size_of(path) < 2_000_000


async def test_churn_at_the_bound_does_not_grow_the_file(path: Path, clock: FakeClock) -> None:
    store = SQLiteStore(path, 2_000_000, clock)
    for number in range(1500):
        size = 500 + int.from_bytes(digest_of(number)[:2], "big") % 4000
        await store.put(digest_of(number), entry_of(clock, size=size))
        if number % 3 == 0:
            clock.advance(70)
            await store.get(digest_of(number * 7919 % (number + 1)))
    await store.check()
    await store.close()
    assert size_of(path) < 1.2 * 2_000_000


async def test_the_event_loops_thread_never_touches_sqlite(store: SQLiteStore) -> None:
    for lane in (store._lanes._writer, store._lanes._reader):
        with pytest.raises(sqlite3.ProgrammingError, match="created in a thread"):
            lane._connection.read(lambda connection: connection.execute("SELECT 1"))


def test_what_cannot_be_opened_says_why(tmp_path: Path, clock: FakeClock) -> None:
    with pytest.raises(StoreError, match="cannot open the SQLite store"):
        SQLiteStore(tmp_path, MAX_BYTES, clock)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot open the SQLite store"):
        SQLiteStore(tmp_path / "file" / "cache.db", MAX_BYTES, clock)
    with pytest.raises(SettingsError, match="positive max_bytes"):
        SQLiteStore(tmp_path / "x.db", 0, clock)


async def test_two_stores_on_one_file_see_each_other(
    store: SQLiteStore, path: Path, clock: FakeClock
) -> None:
    other = SQLiteStore(path, MAX_BYTES, clock)
    await store.put(b"a", entry_of(clock))
    assert await other.get(b"a") == entry_of(clock)
    assert (await other.invalidate([], [b"a"])).affected == 1
    assert isinstance(await store.get(b"a"), Absent)
    await other.close()
    await store.check()
