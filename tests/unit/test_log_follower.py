"""The follower of the question log: what becomes of records in the index, in what order, and after which faults."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import numpy as np
import pytest
from tests.clock import FakeClock

from stratacache.errors import ModelError, StoreError, VectorIndexError
from stratacache.ports import LogRecord, Vector
from stratacache.stores.memory_log import MemoryQuestionLog
from stratacache.types import Candidate, IndexStats, Question
from stratacache.vectors import follower as module
from stratacache.vectors.follower import LogFollower
from stratacache.vectors.swapping import StampedVector

DIMENSION = 4


class PlainIndex:
    """Questions in a dict. ``fails``: so many changes fail first."""

    def __init__(self) -> None:
        self.questions: dict[bytes, tuple[Question, Vector]] = {}
        self.fails = 0

    async def search(self, partition: bytes, vector: Vector, count: int) -> Sequence[Candidate]:
        raise NotImplementedError

    async def add(self, question: Question, vector: Vector) -> None:
        await self._change()
        self.questions[question.digest] = question, vector

    async def remove(self, digests: Sequence[bytes]) -> None:
        await self._change()
        for digest in digests:
            self.questions.pop(digest, None)

    async def _change(self) -> None:
        await asyncio.sleep(0)
        if self.fails:
            self.fails -= 1
            raise VectorIndexError("not now")

    async def stats(self) -> IndexStats:
        raise NotImplementedError

    async def check(self) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    @property
    def texts(self) -> set[str]:
        return {question.text for question, _ in self.questions.values()}


class HandEmbedder:
    """Embeds when a test lets it: ``go`` is set from the beginning."""

    fingerprint = "ours"
    dimension = DIMENSION

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.go.set()
        self.asked: list[str] = []
        self.fails: list[ModelError] = []
        self.most = self._now = 0

    async def embed(self, text: str) -> Vector:
        self.asked.append(text)
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            await self.go.wait()
            await asyncio.sleep(0)
        finally:
            self._now -= 1
        if self.fails:
            raise self.fails.pop()
        return np.eye(DIMENSION, dtype=np.float32)[1]

    async def close(self) -> None:
        raise NotImplementedError


class World:
    """A log, an index, an embedder, and a follower between them."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.log = MemoryQuestionLog(self.clock, most=(200, 1 << 20))
        self.index = PlainIndex()
        self.embedder = HandEmbedder()
        self.gaps = 0
        self.gap_fails = 0
        self.follower = self.follow()

    def follow(self, after: bytes = b"") -> LogFollower:
        async def on_gap() -> None:
            self.gaps += 1
            if self.gap_fails:
                self.gap_fails -= 1
                raise VectorIndexError("cannot be emptied")
            self.index.questions.clear()

        return LogFollower(self.log, self.index, self.embedder, self.clock, after=after, on_gap=on_gap)

    def record(self, name: str, by: str = "ours", *, ttl: float = 600.0, value: float = 1.0) -> LogRecord:
        now = self.clock.now()
        digest = name.partition("/")[0].encode().rjust(16)  # "a/1" and "a/2" are of one question
        question = Question(digest, b"p" * 16, name, now, now + ttl)
        return LogRecord(question, np.array([value, 0, 0, 0], "<f2").tobytes(), by)

    def removal(self, name: str) -> LogRecord:
        return LogRecord(self.record(name).question)

    async def until(self, true: Callable[[], object]) -> None:
        async with asyncio.timeout(20.0):
            while True:
                if true():
                    return
                await asyncio.sleep(0.001)

    async def settled(self) -> None:
        """Until all that was appended is in the index."""
        last = await self.log.read(b"", 1000)
        await self.until(lambda: self.follower.caught_up and self.follower.position == last[-1][0])


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAUSES", (0.001,))
    monkeypatch.setattr(module, "_TRIES", (0.001, 0.001))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.follower.close()
    await made.follower.close()


async def test_it_catches_up_and_then_follows(world: World) -> None:
    await world.log.append([world.record(str(number)) for number in range(150)])
    assert not world.follower.caught_up
    world.follower.start()
    await world.settled()
    assert len(world.index.questions) == 150
    await world.log.append([world.removal("7"), world.record("new")])
    await world.settled()
    assert "7" not in world.index.texts
    assert "new" in world.index.texts
    stats = world.follower.stats()
    assert (stats.added, stats.removed, stats.embedded, stats.failed, stats.lag) == (151, 1, 0, 0, 0.0)
    assert not world.embedder.asked


async def test_vectors_are_made_unit_again(world: World) -> None:
    await world.log.append([world.record("a", value=0.7)])
    world.follower.start()
    await world.settled()
    assert np.allclose(world.index.questions[b"a".rjust(16)][1], [1, 0, 0, 0])


async def test_it_goes_on_from_a_snapshot(world: World) -> None:
    await world.log.append([world.record("old"), world.record("new")])
    position = (await world.log.read(b"", 1))[0][0]
    world.follower = world.follow(position)
    world.follower.start()
    await world.settled()
    assert world.index.texts == {"new"}


async def test_expired_questions_are_left_out(world: World) -> None:
    await world.log.append([world.record("short", by="theirs", ttl=5.0), world.record("long")])
    world.clock.advance(5.0)
    world.follower.start()
    await world.settled()
    assert world.index.texts == {"long"}
    assert not world.embedder.asked


@pytest.mark.parametrize("vector", [b"\0\x3c", b"\0\x7e" * 4, b"\0\0" * 4], ids=["short", "nan", "zero"])
async def test_vectors_of_no_use_are_made_anew(world: World, vector: bytes) -> None:
    await world.log.append([LogRecord(world.record("a").question, vector, "ours")])
    world.follower.start()
    await world.settled()
    assert np.allclose(world.index.questions[b"a".rjust(16)][1], [0, 1, 0, 0])


async def test_other_embedders_questions_are_embedded_aside(world: World) -> None:
    world.embedder.go.clear()
    first = world.record("first")
    theirs = [world.record(f"their {number}", by="theirs") for number in range(5)]
    await world.log.append([first, *theirs, world.record("ours")])
    world.follower.start()
    await world.until(lambda: "ours" in world.index.texts)
    assert not world.follower.caught_up
    assert world.follower.position == (await world.log.read(b"", 1))[0][0], "a snapshot now lacks the others"
    world.clock.advance(3.0)
    assert world.follower.stats().lag == 3.0
    world.embedder.go.set()
    await world.settled()
    assert len(world.index.questions) == 7
    assert world.embedder.most == 2
    stats = world.follower.stats()
    assert (stats.embedded, stats.pending, stats.lag) == (5, 0, 0.0)


async def test_a_vector_that_was_made_while_the_embedder_changed_is_made_anew(world: World) -> None:
    plain = world.embedder.embed

    async def stamped(text: str) -> Vector:
        made_by = world.embedder.fingerprint
        vector = (await plain(text)).view(StampedVector)
        vector.fingerprint = made_by
        return vector

    world.embedder.embed = stamped  # type: ignore[method-assign]
    world.embedder.go.clear()
    await world.log.append([world.record("a", by="theirs")])
    world.follower.start()
    await world.until(lambda: world.embedder.asked)
    world.embedder.fingerprint = "next"
    world.embedder.go.set()
    await world.settled()
    ((_, vector),) = world.index.questions.values()
    assert isinstance(vector, StampedVector)
    assert (vector.fingerprint, world.embedder.asked) == ("next", ["a", "a"])
    await world.log.append([world.record("b", by="ours")])  # the embedder's own, until a moment ago
    await world.settled()
    assert world.embedder.asked == ["a", "a", "b"]
    assert world.follower.stats().failed == 0


@pytest.mark.parametrize("later", ["removal", "ours", "theirs"])
async def test_what_came_later_for_a_question_stays(world: World, later: str) -> None:
    world.embedder.go.clear()
    last = world.removal("a/2") if later == "removal" else world.record("a/2", by=later)
    await world.log.append([world.record("a/1", by="theirs")])
    world.follower.start()
    await world.until(lambda: world.embedder.asked)
    await world.log.append([last, world.record("end")])
    await world.until(lambda: "end" in world.index.texts)
    world.embedder.go.set()
    await world.settled()
    assert world.index.texts == ({"end"} if later == "removal" else {"a/2", "end"})


async def test_the_number_that_waits_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_PENDING", 10)
    world.embedder.go.clear()
    await world.log.append([world.record(str(number), by="theirs") for number in range(60)])
    world.follower.start()
    await world.until(lambda: world.follower.stats().pending == 10)
    for _ in range(20):
        await asyncio.sleep(0)
    assert world.follower.stats().pending == 10
    world.embedder.go.set()
    await world.settled()
    assert len(world.index.questions) == 60


async def test_an_embedder_that_fails_is_asked_again(world: World) -> None:
    world.embedder.fails = [ModelError("down", code="embedder_error")] * 2
    await world.log.append([world.record("a", by="theirs")])
    world.follower.start()
    await world.settled()
    assert world.index.texts == {"a"}


@pytest.mark.parametrize(("code", "calls"), [("nothing_to_embed", 1), ("embedder_error", 3)])
async def test_a_question_that_cannot_be_embedded_is_given_up(world: World, code: str, calls: int) -> None:
    world.embedder.fails = [ModelError("no", code=code)] * calls
    await world.log.append([world.record("a", by="theirs"), world.record("b")])
    world.follower.start()
    await world.settled()
    assert world.index.texts == {"b"}
    assert len(world.embedder.asked) == calls
    assert world.follower.stats().failed == 1


async def test_an_index_that_fails_is_tried_again_and_at_last_passed(world: World) -> None:
    world.index.fails = 2
    await world.log.append([world.record("a")])
    world.follower.start()
    await world.settled()
    assert world.index.texts == {"a"}
    world.index.fails = 3
    await world.log.append([world.record("b"), world.record("c")])
    await world.settled()
    assert world.index.texts == {"a", "c"}
    assert world.follower.stats().failed == 1


async def test_a_gap_starts_over(world: World) -> None:
    await world.log.append([world.record("lost")])
    position = (await world.log.read(b"", 1))[0][0]
    await world.index.add(world.record("lost").question, np.eye(DIMENSION, dtype=np.float32)[0])
    await world.log.append([world.record(str(number)) for number in range(250)])
    world.gap_fails = 1
    world.follower = world.follow(position)
    world.follower.start()
    await world.settled()
    assert world.gaps == 2, "what failed is done again"
    assert world.index.texts == {str(number) for number in range(50, 250)}
    assert world.follower.stats().gaps == 2


async def test_a_log_that_fails_is_asked_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [StoreError("down"), StoreError("down"), ValueError("nobody foresaw this")]
    read: Callable[[bytes, int], Awaitable[list[tuple[bytes, LogRecord]]]] = world.log.read

    async def failing(after: bytes, count: int) -> list[tuple[bytes, LogRecord]]:
        if failures:
            raise failures.pop()
        return await read(after, count)

    monkeypatch.setattr(world.log, "read", failing)
    world.follower.start()
    await world.until(lambda: world.follower.caught_up)
    assert world.follower.stats().faults == 3
    await world.log.append([world.record("a")])
    await world.settled()
    assert world.index.texts == {"a"}
