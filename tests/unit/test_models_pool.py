"""The models' thread pool: its bounds, what is shed, and what cancelling frees."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from stratacache.errors import ModelError
from stratacache.models.pool import Pool


class Blocked:
    """Work that says when it has begun and runs until it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go = threading.Event()

    def __call__(self) -> str:
        self.begun.set()
        self.go.wait(20)
        return "done"

    async def under_way(self) -> None:
        assert await asyncio.to_thread(self.begun.wait, 20)


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    made = Pool(1, 1)
    yield made
    made.check()
    await made.close()


async def settle(pool: Pool, running: int, waiting: int) -> None:
    """Let callbacks run until the pool is as told."""
    for _ in range(100_000):
        if (pool.counts.running, pool.counts.waiting) == (running, waiting):
            return
        await asyncio.sleep(0)
    raise AssertionError(f"the pool is {pool.counts}")


async def test_gives_the_result_and_what_the_work_raises(pool: Pool) -> None:
    assert await pool.run(lambda: threading.current_thread().name, budget=5) != threading.main_thread().name

    def fails() -> None:
        raise TimeoutError("the work's own")

    with pytest.raises(TimeoutError, match="the work's own"):
        await pool.run(fails, budget=5)
    await settle(pool, 0, 0)
    assert (pool.counts.finished, pool.counts.late) == (2, 0)


async def test_sheds_when_the_queue_is_full(pool: Pool) -> None:
    work = Blocked()
    running = asyncio.create_task(pool.run(work, budget=None))
    await work.under_way()
    waiting = asyncio.create_task(pool.run(lambda: "waited", budget=None))
    await settle(pool, 1, 1)
    with pytest.raises(ModelError) as shed:
        await pool.run(lambda: None, budget=None)
    assert (shed.value.code, pool.counts.shed) == ("overloaded", 1)
    work.go.set()
    assert (await running, await waiting) == ("done", "waited")


async def test_a_call_waits_no_longer_than_its_budget(pool: Pool) -> None:
    work = Blocked()
    running = asyncio.create_task(pool.run(work, budget=None))
    await work.under_way()
    with pytest.raises(ModelError) as late:
        await pool.run(lambda: None, budget=0.001)
    assert (late.value.code, pool.counts.late, pool.counts.waiting) == ("overloaded", 1, 0)
    work.go.set()
    assert await running == "done"


async def test_late_work_keeps_its_thread_until_it_ends(pool: Pool) -> None:
    work = Blocked()
    with pytest.raises(ModelError) as late:
        await pool.run(work, budget=0.001)
    assert late.value.code == "overloaded"
    after = asyncio.create_task(pool.run(lambda: "after", budget=None))
    await settle(pool, int(work.begun.is_set()), int(work.begun.is_set()))
    work.go.set()
    assert await after == "after"


async def test_cancelling_a_waiting_call_frees_its_place(pool: Pool) -> None:
    work = Blocked()
    running = asyncio.create_task(pool.run(work, budget=None))
    await work.under_way()
    for _ in range(50):
        waiting = asyncio.create_task(pool.run(lambda: None, budget=None))
        await settle(pool, 1, 1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert (pool.counts.waiting, pool.counts.shed) == (0, 0)
    work.go.set()
    await running


async def test_closing_turns_away_who_waits_and_lets_work_end() -> None:
    pool = Pool(1, 4)
    work = Blocked()
    running = asyncio.create_task(pool.run(work, budget=None))
    await work.under_way()
    waiting = asyncio.create_task(pool.run(lambda: None, budget=None))
    await settle(pool, 1, 1)
    await pool.close()
    work.go.set()
    assert await running == "done"
    with pytest.raises(ModelError, match="closed"):
        await waiting
    with pytest.raises(ModelError, match="closed"):
        await pool.run(lambda: None, budget=None)
    await pool.close()


async def test_many_calls_keep_the_bounds() -> None:
    pool = Pool(2, 8)

    async def call(number: int) -> int | None:
        try:
            return await pool.run(lambda: number * number, budget=20)
        except ModelError:
            return None

    for _ in range(20):
        results = await asyncio.gather(*map(call, range(10)))
        pool.check()
        assert results == [n * n for n in range(10)]
    results = await asyncio.gather(*map(call, range(30)))
    assert sum(result is None for result in results) == pool.counts.shed == 20
    await pool.close()


@pytest.mark.parametrize(("size", "queue"), [(0, 1), (1, -1)])
def test_refuses_bounds_that_make_no_sense(size: int, queue: int) -> None:
    with pytest.raises(ValueError, match="a pool needs"):
        Pool(size, queue)
