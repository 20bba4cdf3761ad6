"""The shared question logs when their server or file loses, garbles or refuses something."""

from __future__ import annotations

import asyncio
import multiprocessing
import sqlite3
from pathlib import Path

import pytest
from tests.clock import FakeClock
from tests.contract.redis_kit import eventually, instance
from tests.contract.test_question_log import names, record_of
from tests.servers.redis import RedisServer
from tests.servers.redis_cluster import ClusterDeployment
from tests.servers.redis_sentinels import SentinelDeployment

from stratacache.clock import SystemClock
from stratacache.errors import LogGap, StoreError
from stratacache.ports import QuestionLog
from stratacache.stores import Backend
from stratacache.stores.sqlite import SQLiteStore
from stratacache.stores.sqlite_file import mark_damaged
from stratacache.stores.sqlite_log import SQLiteQuestionLog

pytest_plugins = ["tests.servers.fixtures"]

KEY = "{strata}asked"
LONG = 4e9  # seconds: the records' times are of a test's clock, the instance's of today


def log_of(backend: Backend) -> QuestionLog:
    assert backend.question_log is not None
    return backend.question_log


async def test_a_flushed_server_is_noticed_though_nothing_is_asked(redis_server: RedisServer) -> None:
    async with instance(redis_server.url) as backend:
        log = log_of(backend)
        await log.append([record_of("a", ttl=LONG)])
        position = (await log.read(b"", 1))[0][0]
        redis_server.flush()
        with pytest.raises(LogGap):
            await log.wait(position, 1.0)
        await log.append([record_of("b", ttl=LONG)])
        with pytest.raises(LogGap):
            await log.read(position, 10)
        assert await names(log) == ["b"]


async def test_an_old_snapshot_is_noticed_also_when_it_has_grown_past_a_reader(
    redis_server: RedisServer,
) -> None:
    async with instance(redis_server.url) as backend:
        log = log_of(backend)
        await log.append([record_of(name, ttl=LONG) for name in "ab"])
        shared = (await log.read(b"", 10))[-1][0]
        redis_server.command("SAVE")
        await log.append([record_of(name, ttl=LONG) for name in "cd"])
        lost = (await log.read(b"", 10))[-1][0]
        redis_server.kill()
        redis_server.start()
        await eventually(lambda: log.append([record_of(name, ttl=LONG) for name in "xyz"]))
        with pytest.raises(LogGap):
            await log.read(lost, 10)
        assert await names(log, shared) == ["x", "y", "z"]


async def test_what_is_not_a_record_is_passed_over(redis_server: RedisServer) -> None:
    async with instance(redis_server.url) as backend:
        log = log_of(backend)
        await log.append([record_of("a", ttl=LONG)])
        first = (await log.read(b"", 1))[0][0]
        for number in range(10):
            redis_server.command("XADD", KEY, "*", "m", str(number), "e", "9", "u", "9", "d", "garbled")
        assert await log.read(first, 3) == []
        assert log.skipped == 10
        await log.append([record_of("b", ttl=LONG)])
        assert await names(log, first, 3) == ["b"]
        assert log.skipped == 10, "they are passed once"


async def test_foreign_fields_do_no_harm(redis_server: RedisServer) -> None:
    async with instance(redis_server.url) as backend:
        log = log_of(backend)
        redis_server.command("XADD", KEY, "*", "hello", "world")
        await log.append([record_of("a", ttl=LONG)])
        redis_server.command("XADD", KEY, "*", "hello", "world")
        await log.append([record_of("b", ttl=LONG)])
        assert await names(log) == ["a", "b"]


async def test_another_type_under_the_key_is_replaced(redis_server: RedisServer) -> None:
    async with instance(redis_server.url) as backend:
        log = log_of(backend)
        redis_server.command("SET", KEY, "foreign")
        assert await log.read(b"", 10) == []
        await log.append([record_of("a", ttl=LONG)])
        assert await names(log) == ["a"]


async def test_a_server_that_hangs_is_an_error_in_time(redis_server: RedisServer) -> None:
    async with instance(redis_server.url) as backend:
        log = log_of(backend)
        await log.append([record_of("a", ttl=LONG)])
        redis_server.pause()
        try:
            async with asyncio.timeout(10.0):
                for call in (log.append([record_of("b", ttl=LONG)]), log.read(b"", 1), log.wait(b"", 1.0)):
                    with pytest.raises(StoreError):
                        await call
        finally:
            redis_server.resume()
        assert (await eventually(lambda: names(log)))[0] == "a"


async def test_a_full_server_refuses_and_keeps_what_it_has(redis_server: RedisServer) -> None:
    async with instance(redis_server.url) as backend:
        log = log_of(backend)
        await log.append([record_of("a", ttl=LONG)])
        redis_server.command("CONFIG", "SET", "maxmemory", "1")
        try:
            with pytest.raises(StoreError, match="OOM"):
                await log.append([record_of("b", ttl=LONG)])
        finally:
            redis_server.command("CONFIG", "SET", "maxmemory", "0")
        await log.append([record_of("c", ttl=LONG)])
        assert await names(log) == ["a", "c"]


async def test_after_a_failover_nothing_is_missed_unsaid(redis_sentinels: SentinelDeployment) -> None:
    async with instance(redis_sentinels.url) as backend:
        log = log_of(backend)
        await log.append([record_of("a", ttl=LONG)])
        position = (await log.read(b"", 1))[0][0]
        redis_sentinels.master().kill()
        await eventually(lambda: log.append([record_of("b", ttl=LONG)]), deadline=60.0)
        try:
            found = await names(log, position)
        except LogGap:
            found = await names(log)
        assert found[-1] == "b"


async def test_a_cluster_keeps_it_on_one_server(redis_cluster: ClusterDeployment) -> None:
    async with instance(redis_cluster.url) as one, instance(redis_cluster.url) as two:
        await log_of(one).append([record_of("a", ttl=LONG)])
        waiting = asyncio.create_task(log_of(two).wait((await log_of(two).read(b"", 1))[0][0], 60.0))
        while not waiting.done():
            await log_of(one).append([record_of("b", ttl=LONG)])
            await asyncio.wait([waiting], timeout=0.2)
        await waiting
        assert (await names(log_of(two)))[:2] == ["a", "b"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache.db"


async def test_a_file_that_was_replaced_is_noticed(path: Path) -> None:
    store = SQLiteStore(path, 1 << 20, FakeClock())
    log = store.question_log()
    await log.append([record_of("a")])
    position = (await log.read(b"", 1))[0][0]
    mark_damaged(path)
    again = SQLiteStore(path, 1 << 20, FakeClock())
    with pytest.raises(LogGap):
        await log.read(position, 10)
    other = again.question_log()
    await log.append([record_of("b")])
    assert await names(other) == ["b"]
    for part in (log, other, store, again):
        await part.close()


async def test_garbled_rows_are_passed_over(path: Path) -> None:
    store = SQLiteStore(path, 1 << 20, FakeClock())
    log = store.question_log()
    await log.append([record_of(name) for name in "abc"])
    first = (await log.read(b"", 1))[0][0]
    file = sqlite3.connect(path)
    file.execute("UPDATE asked SET record = substr(record, 1, length(record) - 1) || x'00' WHERE number = 2")
    file.execute("UPDATE asked SET record = 'text' WHERE number = 3")
    file.commit()
    file.close()
    assert await log.read(first, 1) == []
    assert log.skipped == 2
    await log.append([record_of("d")])
    assert await names(log, first) == ["d"]
    await log.close()
    await store.close()


async def test_the_latest_number_is_never_used_again(path: Path) -> None:
    clock = FakeClock()
    store = SQLiteStore(path, 1 << 20, clock)
    log = store.question_log()
    await log.append([record_of(name, ttl=5.0) for name in "abc"])
    last = (await log.read(b"", 10))[-1][0]
    clock.advance(100.0)
    await log.append([record_of("d")])
    assert await names(log, last) == ["d"], "its predecessor has expired, and nothing was missed"
    await log.close()
    await store.close()


def _append_many(path: Path, name: str) -> None:
    async def run() -> None:
        store = SQLiteStore(path, 1 << 26, SystemClock(), busy_seconds=30.0)
        log = store.question_log()
        for number in range(50):
            await log.append([record_of(f"{name}{number}", ttl=LONG)])
        await log.close()
        await store.close()

    asyncio.run(run())


async def test_processes_append_to_one_log(path: Path) -> None:
    store = SQLiteStore(path, 1 << 26, SystemClock())
    log: SQLiteQuestionLog = store.question_log()
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_append_many, args=(path, name)) for name in "xy"]
    for worker in workers:
        worker.start()
    heard: list[str] = []
    position = b""
    async with asyncio.timeout(100.0):
        while len(heard) < 100:
            await log.wait(position, 5.0)
            found = await log.read(position, 7)
            position = found[-1][0] if found else position
            heard += [record.question.digest.decode().strip(".") for _, record in found]
    for worker in workers:
        worker.join(30)
    assert [name for name in heard if name[0] == "x"] == [f"x{number}" for number in range(50)]
    assert [name for name in heard if name[0] == "y"] == [f"y{number}" for number in range(50)]
    assert heard == await names(log)
    await log.close()
    await store.close()
