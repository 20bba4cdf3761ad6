"""Requests with one cold prefix: the first writes it, the others wait for its first token."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from tests.clock import FakeClock

from stratacache.pipeline.siblings import MOST_WAITING, WARM, Siblings, Ticket

SHARED, TAIL = b"shared", b"tail"


class Counts:
    def __init__(self) -> None:
        self.results: Counter[str] = Counter()

    def sibling(self, result: str) -> None:
        self.results[result] += 1


class Table:
    """Siblings with a clock that stands still, so that only a deadline of its own ends a wait."""

    def __init__(self, deadline: float = 60.0) -> None:
        self.clock, self.counts = FakeClock(), Counts()
        self.siblings = Siblings(deadline, self.clock, self.counts)

    def ask(self, *prefixes: bytes) -> asyncio.Task[Ticket]:
        return asyncio.create_task(self.siblings.board(prefixes))


@pytest.fixture
def table() -> Iterator[Table]:
    made = Table()
    yield made
    made.siblings.check()


async def settled() -> None:
    """Let every task run until it waits."""
    for _ in range(10):
        await asyncio.sleep(0)


def done(tasks: Sequence[asyncio.Task[Ticket]]) -> list[bool]:
    return [task.done() for task in tasks]


async def test_siblings_wait_for_the_first_token(table: Table) -> None:
    leader = await table.ask(SHARED, b"0")
    waiting = [table.ask(SHARED, bytes([n])) for n in range(7)]
    await settled()
    assert done(waiting) == [False] * 7
    leader.began()
    for task in waiting:
        (await task).close()
    assert table.counts.results == {"began": 7}


async def test_what_others_write_is_not_waited_for(table: Table) -> None:
    await table.ask(SHARED)
    assert (await table.ask(TAIL)).prefixes == [TAIL]
    assert (await table.ask()).prefixes == []


async def test_a_prefix_that_was_written_is_warm_for_a_while(table: Table) -> None:
    (await table.ask(SHARED)).began()
    assert (await table.ask(SHARED, TAIL)).prefixes == [TAIL]
    table.clock.advance(WARM)
    assert (await table.ask(SHARED)).prefixes == [SHARED]


async def test_a_leader_that_fails_is_followed_by_one_of_those_that_waited(table: Table) -> None:
    leader = await table.ask(SHARED)
    waiting = [table.ask(SHARED) for _ in range(3)]
    await settled()
    leader.close()
    await settled()
    assert sorted(done(waiting)) == [False, False, True]
    next(task for task in waiting if task.done()).result().began()
    for task in waiting:
        await task
    assert table.counts.results["failed"] == 3
    assert table.counts.results["began"] == 2


async def test_nobody_waits_longer_than_the_deadline() -> None:
    table = Table(deadline=0.01)
    await table.ask(SHARED)
    second = await table.ask(SHARED, TAIL)
    assert second.prefixes == [TAIL]
    assert table.counts.results == {"expired": 1}


async def test_time_that_was_waited_for_one_leader_counts_for_the_next(table: Table) -> None:
    first = await table.ask(SHARED)
    waiting = [table.ask(SHARED) for _ in range(2)]
    await settled()
    table.clock.advance(60.0)
    first.close()
    await asyncio.gather(*waiting)
    assert table.counts.results == {"failed": 2, "expired": 1}


async def test_switched_off_nobody_waits() -> None:
    table = Table(deadline=0)
    assert [(await table.ask(SHARED)).prefixes for _ in range(2)] == [[], []]
    assert not table.counts.results


async def test_one_that_gives_up_waiting_is_forgotten(table: Table) -> None:
    leader = await table.ask(SHARED)
    task = table.ask(SHARED)
    await settled()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    table.siblings.check()
    leader.close()
    assert (await table.ask(SHARED)).prefixes == [SHARED]


async def test_no_more_wait_than_are_allowed(table: Table) -> None:
    leader = await table.ask(SHARED)
    waiting = [table.ask(SHARED) for _ in range(MOST_WAITING + 1)]
    await settled()
    assert done(waiting).count(True) == 1
    leader.began()
    await asyncio.gather(*waiting)


async def test_a_ticket_ends_once(table: Table) -> None:
    leader = await table.ask(SHARED)
    leader.close()
    second = await table.ask(SHARED)
    leader.began()
    assert not leader.has_begun
    waiting = table.ask(SHARED)
    await settled()
    assert not waiting.done()
    second.began()
    await waiting
