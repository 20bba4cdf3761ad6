"""What every question log promises: one order for all, nothing missed unsaid, bounded, and no foreign record given."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from tests.clock import FakeClock
from tests.contract.backends import KINDS, Kind

from stratacache.errors import LogGap, StoreError
from stratacache.ports import LogRecord, QuestionLog
from stratacache.stores.memory_log import MemoryQuestionLog
from stratacache.types import Question

BOUNDED = (500, 1 << 20)
START = 1_700_000_000.0

# The Redis servers expire nothing here by their own clock, so a clock that tests move serves all kinds.
Logs = Callable[[], AbstractAsyncContextManager[QuestionLog]]


def record_of(name: object, *, ttl: float = 600.0, removed: bool = False, text: str = "") -> LogRecord:
    digest = str(name).encode().rjust(16, b".")
    question = Question(digest, b"p" * 16, text or f"question {name}?", START, START + ttl, "who", ("a", "b"))
    return LogRecord(question) if removed else LogRecord(question, b"\0\x3c" * 8, "model 1")


@pytest.fixture(
    params=[None, *[kind for kind in KINDS if kind.log]], ids=lambda kind: kind.name if kind else "alone"
)
def kind(request: pytest.FixtureRequest) -> Kind | None:
    chosen: Kind | None = request.param
    return chosen


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
def logs(kind: Kind | None, clock: FakeClock, tmp_path: Path) -> Logs:
    """Opens an instance's view of one log; a log in memory has one view only."""
    alone = MemoryQuestionLog(clock, most=BOUNDED)

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[QuestionLog]:
        if kind is None:
            yield alone
            return
        async with kind.open(clock, 1 << 30, tmp_path) as backend:
            assert backend.question_log is not None
            backend.question_log._most = BOUNDED  # type: ignore[attr-defined]
            yield backend.question_log

    return opened


@pytest.fixture
async def log(logs: Logs) -> AsyncIterator[QuestionLog]:
    async with logs() as opened:
        yield opened
        await opened.close()


async def names(log: QuestionLog, after: bytes = b"", count: int = 1000) -> list[str]:
    return [record.question.digest.decode().strip(".") for _, record in await log.read(after, count)]


async def test_a_new_log_is_empty(log: QuestionLog) -> None:
    assert await log.read(b"", 10) == []
    assert log.skipped == 0


async def test_records_come_back_as_they_were_in_order(log: QuestionLog) -> None:
    records = [record_of("a"), record_of("b", removed=True), record_of("ß 试试", text="退款需要多久？")]
    await log.append(records[:2])
    await log.append(records[2:])
    found = await log.read(b"", 10)
    assert [record for _, record in found] == records
    assert len({position for position, _ in found}) == 3


async def test_reading_goes_on_from_any_position(log: QuestionLog) -> None:
    await log.append([record_of(number) for number in range(10)])
    first = await log.read(b"", 4)
    assert len(first) == 4
    assert await names(log, first[-1][0], 4) == ["4", "5", "6", "7"]
    assert await names(log, first[0][0], 2) == ["1", "2"]
    rest = await log.read(first[-1][0], 100)
    assert await log.read(rest[-1][0], 100) == []
    await log.append([record_of("new")])
    assert await names(log, rest[-1][0]) == ["new"]


async def test_nothing_is_appended_for_no_records(log: QuestionLog) -> None:
    await log.append([])
    assert await log.read(b"", 10) == []


async def test_instances_read_the_same_order_and_positions(
    kind: Kind | None, log: QuestionLog, logs: Logs
) -> None:
    async with logs() as other:
        for number in range(20):
            await asyncio.gather(
                log.append([record_of(f"a{number}"), record_of(f"b{number}")]),
                other.append([record_of(f"c{number}")]),
            )
        one, two = await log.read(b"", 100), await other.read(b"", 100)
    assert one == two
    assert len(one) == 60


async def test_an_append_is_in_one_piece(log: QuestionLog) -> None:
    await asyncio.gather(*[log.append([record_of((n, m)) for m in range(3)]) for n in range(20)])
    found = await names(log)
    assert len(found) == 60
    groups = [found[first : first + 3] for first in range(0, 60, 3)]
    assert all(len({name[1:].split(",")[0] for name in group}) == 1 for group in groups)


async def test_expired_records_are_not_given_and_do_not_hold_up_a_reader(
    log: QuestionLog, clock: FakeClock
) -> None:
    await log.append([record_of("kept"), *[record_of(n, ttl=10.0) for n in range(30)]])
    first = (await log.read(b"", 1))[0][0]
    clock.advance(10.0)
    assert await log.read(first, 4) == []
    await log.append([record_of("dead on arrival", ttl=10.0), record_of("later")])
    assert await names(log, first, 4) == ["later"]
    assert await names(log) == ["kept", "later"]
    assert log.skipped == 0


async def test_it_stays_bounded_and_keeps_the_latest(log: QuestionLog) -> None:
    most, _ = BOUNDED
    for first in range(0, 4 * most, 50):
        await log.append([record_of(number) for number in range(first, first + 50)])
    found = await names(log, count=10 * most)
    assert found[-1] == str(4 * most - 1)
    assert most <= len(found) <= 2 * most, "a server may keep a little more than it must"
    assert found == [str(number) for number in range(4 * most - len(found), 4 * most)]


async def test_it_is_bounded_in_bytes(log: QuestionLog) -> None:
    for number in range(200):
        await log.append([record_of(number, text="long " * 4000)])
    found = await names(log)
    assert found[-1] == "199"
    assert 20 <= len(found) <= 80


async def test_who_was_away_for_too_long_is_told(log: QuestionLog) -> None:
    await log.append([record_of("first")])
    position = (await log.read(b"", 1))[0][0]
    for first in range(0, 2000, 100):
        await log.append([record_of(number) for number in range(first, first + 100)])
    with pytest.raises(LogGap):
        await log.read(position, 10)
    with pytest.raises(LogGap):
        await log.wait(position, 1.0)
    recovered = await log.read(b"", 1)
    assert await log.read(recovered[0][0], 10)


@pytest.mark.parametrize(
    "position", [b"x", b"1-1:00", b"\0" * 16, b"\xff" * 40, b"1700000000000-5:0123456789abcdef"]
)
async def test_a_position_of_another_log_is_a_gap(log: QuestionLog, position: bytes) -> None:
    for _ in range(2):
        with pytest.raises(LogGap):
            await log.read(position, 10)
        await log.append([record_of("a")])


async def test_waiting_ends_when_something_comes(log: QuestionLog, logs: Logs) -> None:
    await log.append([record_of("old")])
    position = (await log.read(b"", 1))[0][0]
    async with logs() as other:
        waiting = asyncio.create_task(log.wait(position, 30.0))
        await asyncio.sleep(0)
        assert not waiting.done()
        end = time.monotonic() + 20.0
        while not waiting.done():  # again and again: who subscribes may just miss the first message
            assert time.monotonic() < end
            await other.append([record_of("new")])
            await asyncio.wait([waiting], timeout=0.5)
        await waiting
    assert (await names(log, position))[0] == "new"


async def test_waiting_ends_at_once_when_something_is_there(log: QuestionLog) -> None:
    await log.append([record_of("a")])
    async with asyncio.timeout(10.0):
        await log.wait(b"", 600.0)


async def test_waiting_ends_after_its_time(log: QuestionLog) -> None:
    await log.wait(b"", 0.01)
    await log.append([record_of("a")])
    await log.wait((await log.read(b"", 1))[0][0], 0.01)


async def test_too_large_a_record_is_refused_whole(log: QuestionLog, kind: Kind | None) -> None:
    if kind is None:  # what is large costs what it weighs, and nothing is copied
        return
    with pytest.raises(StoreError, match="larger than"):
        await log.append([record_of("a"), record_of("b", text="x" * 100_000)])
    assert await log.read(b"", 10) == []


async def test_after_close_every_call_is_an_error_but_close(log: QuestionLog) -> None:
    async def keep_waiting() -> None:
        while True:  # it may end for no reason
            await log.wait(b"", 600.0)

    waiting = asyncio.create_task(keep_waiting())
    await asyncio.sleep(0.05)  # until it waits; the test is as true when it does not yet
    await log.close()
    await log.close()
    with pytest.raises(StoreError, match="closed"):
        await waiting
    for call in (log.read(b"", 1), log.append([record_of("a")]), log.wait(b"", 1.0)):
        with pytest.raises(StoreError, match="closed"):
            await call


async def test_what_is_erased_leaves_no_text_and_all_are_told(
    kind: Kind | None, log: QuestionLog, logs: Logs
) -> None:
    await log.append([record_of(name, text=f"secret of {name}") for name in ("a", "b", "c")])
    (_, (before, _), (end, _)) = [(position, record) for position, record in await log.read(b"", 10)]
    kept = {record_of("b").question.digest}
    made = record_of("a").question.created_at
    assert await log.forget(kept, made - 1) == 0  # none is as old
    assert await log.forget(kept, made) == 2
    async with logs() as other:
        left = [record for _, record in await other.read(b"", 100)]
        assert [one.question.text for one in left if one.question.text] == ["secret of b"]
        assert [one.question.digest for one in left if one.vector] == [record_of("b").question.digest]
        with contextlib.suppress(LogGap):  # Redis has to make who stood on an erased record begin anew
            news = {record.question.digest for _, record in await other.read(end, 100)}
            assert {record_of("a").question.digest, record_of("c").question.digest} <= news
        await log.append([record_of("new")])
        assert (await names(other, before))[-1] == "new"
        assert await log.forget(kept | {record_of("new").question.digest}, made) == 0
