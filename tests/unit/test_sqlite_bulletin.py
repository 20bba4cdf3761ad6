"""The SQLite bulletin: what is lost is told as lost, and no crash or lock makes an instance trust too early."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from tests.clock import FakeClock

from stratacache.errors import StoreError
from stratacache.stores.sqlite import SQLiteStore
from stratacache.stores.sqlite_bulletin import KEPT, Counter, SQLiteBulletin
from stratacache.types import Invalidated

DEADLINE = 10.0


class Listener:
    """An instance: its store, its bulletin and what it heard."""

    def __init__(self, path: Path) -> None:
        self.store = SQLiteStore(path, 400_000, FakeClock(), busy_seconds=0.05)
        self.bulletin: SQLiteBulletin = self.store.bulletin()
        self.heard: list[tuple[Invalidated | None, list[bytes]]] = []

    def hear(self, what: Invalidated | None, digests: Sequence[bytes]) -> None:
        self.heard.append((what, list(digests)))

    async def catch_up(self) -> None:
        async with asyncio.timeout(DEADLINE):
            while not self.bulletin.current():  # noqa: ASYNC110 - current() is what makes it go on
                await asyncio.sleep(0.005)

    async def close(self) -> None:
        await self.bulletin.close()
        await self.store.close()


def delete(path: Path) -> None:
    path.unlink()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache.db"


@pytest.fixture(autouse=True)
def nobody_looks_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stratacache.stores.sqlite_bulletin._WATCH_SECONDS", 3600)


@pytest.fixture
async def one(path: Path) -> AsyncIterator[Listener]:
    made = Listener(path)
    yield made
    await made.close()


@pytest.fixture
async def other(one: Listener, path: Path) -> AsyncIterator[Listener]:
    made = Listener(path)
    await made.bulletin.start(made.hear)
    yield made
    await made.close()


async def test_who_missed_more_than_is_kept_is_told_of_a_loss(one: Listener, other: Listener) -> None:
    for number in range(KEPT + 1):
        await one.store.invalidate([str(number % 7)])
    await other.catch_up()
    assert other.heard == [(None, [])]
    told = await one.store.invalidate(["a"])
    await other.catch_up()
    assert other.heard == [(None, []), (told, [])]


async def test_exactly_what_is_kept_is_heard(one: Listener, other: Listener) -> None:
    told = [await one.store.invalidate([str(number % 7)]) for number in range(KEPT)]
    await other.catch_up()
    assert other.heard == [(what, []) for what in told]


async def test_very_many_digests_are_told_as_a_loss(one: Listener, other: Listener) -> None:
    await one.store.invalidate(["a"], [number.to_bytes(16, "big") for number in range(5000)])
    told = await one.store.invalidate(["b"])
    await other.catch_up()
    assert other.heard == [(None, []), (told, [])]


async def test_a_file_that_was_replaced_is_told_as_a_loss(one: Listener, other: Listener, path: Path) -> None:
    delete(path)
    told = await one.store.invalidate(["a"])
    assert not other.bulletin.current()
    await other.catch_up()
    assert other.heard[0] == (None, [])
    later = await one.store.invalidate(["a"])
    await other.catch_up()
    assert other.heard[1:] == [(later, [])]
    assert dict(later.versions)["a"] > dict(told.versions)["a"]


async def test_a_writer_that_dies_around_its_commit_leaves_nothing_unheard(
    one: Listener, other: Listener, path: Path
) -> None:
    """The counter moves before the commit: dying in between leaves news to look for, and they are all there."""
    dying = sqlite3.connect(path, isolation_level=None)
    dying.execute("BEGIN IMMEDIATE")
    dying.execute("INSERT INTO bumps (told) VALUES (NULL)")
    counter = Counter(path.with_name("cache.db.bumps"))
    counter.advance()
    assert not other.bulletin.current()
    dying.close()  # rolled back
    counter.close()
    await other.catch_up()
    assert other.heard == []
    told = await one.store.invalidate(["a"])
    await other.catch_up()
    assert other.heard == [(told, [])]


async def test_while_an_invalidation_commits_nobody_is_current(
    one: Listener, other: Listener, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    committing = sqlite3.connect(path, isolation_level=None)
    committing.execute("BEGIN IMMEDIATE")
    committing.execute("INSERT INTO bumps (told) VALUES (NULL)")
    counter = Counter(path.with_name("cache.db.bumps"))
    counter.advance()
    async with asyncio.timeout(DEADLINE):
        while "locked" not in caplog.text:
            assert not other.bulletin.current()
            await asyncio.sleep(0.005)
    committing.execute("COMMIT")
    committing.close()
    counter.close()
    await other.catch_up()
    assert other.heard == [(None, [])]


async def test_a_start_that_meets_a_lock_begins_with_a_loss(one: Listener, path: Path) -> None:
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    late = Listener(path)
    await late.bulletin.start(late.hear)
    assert not late.bulletin.current()
    holder.close()
    await late.catch_up()
    assert late.heard == [(None, [])], "copies may have been made since the start"
    await late.close()


async def test_a_closed_store_makes_nobody_current(one: Listener, other: Listener) -> None:
    assert other.bulletin.current()
    await other.bulletin.close()
    await other.store.close()
    assert not other.bulletin.current()


def test_the_counter_is_shared_and_stays(path: Path) -> None:
    first, second = Counter(path), Counter(path)
    first.advance()
    second.advance()
    assert first.read() == second.read() == 2
    first.close()
    assert Counter(path).read() == 2
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(StoreError, match="cannot open"):
        Counter(path.parent)
