"""What becomes of the questions of stored answers: published once, for who may have more, and no fault is anybody's."""

from __future__ import annotations

import asyncio
import math

import pytest
from tests.clock import FakeClock
from tests.semantic_kit import DECISIONS, Embedder, chat, entry_of, keyed, stored_question

from stratacache.errors import ModelError, StoreError
from stratacache.policy.allowance import MAX_CALLERS, Allowance
from stratacache.ports import Vector
from stratacache.tiers.semantic_learn import MAX_UNDER_WAY, Learner
from stratacache.tiers.semantic_parts import Dependency
from stratacache.types import Question, Request


class Bench:
    def __init__(self, per_minute: int = 0) -> None:
        self.clock = FakeClock()
        self.embedder = Embedder()
        self.published: list[tuple[Question, Vector | None]] = []
        self.fault: BaseException | None = None
        self.tallied: list[str] = []
        self.learner = Learner(
            self.embedder,
            Dependency("embedder", self.clock),
            self._publish,
            DECISIONS,
            Allowance(per_minute),
            self.clock,
            self.tallied.append,
        )

    async def _publish(self, question: Question, vector: Vector | None) -> None:
        if self.fault is not None:
            raise self.fault
        self.published.append((question, vector))

    async def learn(self, request: Request) -> str:
        self.learner.learn(request, keyed(request), entry_of(request, self.clock.now()))
        await self.learner.settled()
        return self.tallied[-1]


async def test_a_question_is_published_with_its_vector_and_the_life_of_its_answer() -> None:
    bench = Bench()
    request = chat({"role": "system", "content": "Be brief."}, " How is bread baked? ", user="ann")
    assert await bench.learn(request) == "learned"
    ((question, vector),) = bench.published
    assert question == stored_question(request, bench.clock.now())
    assert question.text == "How is bread baked?"
    assert vector is not None


@pytest.mark.parametrize("asked", ["what is new today", "", "x" * 500])
async def test_what_nobody_else_may_be_answered_with_is_not_published(asked: str) -> None:
    bench = Bench()
    assert await bench.learn(chat(asked)) == "unfit"
    assert not bench.published


async def test_what_the_vector_says_is_not_cacheable_is_not_learned() -> None:
    bench = Bench()
    bench.embedder.angles["my cakes"] = -math.pi / 2
    assert await bench.learn(chat("my cakes")) == "unfit"


async def test_a_caller_that_adds_too_much_is_limited_and_nobody_else() -> None:
    bench = Bench(per_minute=2)
    assert [await bench.learn(chat(f"bread {n}", user="eve")) for n in range(3)] == [
        "learned",
        "learned",
        "limited",
    ]
    assert await bench.learn(chat("rolls", user="ann")) == "learned"
    bench.clock.advance(30)
    assert await bench.learn(chat("buns", user="eve")) == "learned"
    assert await bench.learn(chat("cakes", user="eve")) == "limited"


async def test_faults_are_counted() -> None:
    bench = Bench()
    bench.fault = StoreError("down")
    assert await bench.learn(chat("bread")) == "failed"
    bench.fault = RuntimeError("?")
    assert await bench.learn(chat("bread")) == "failed"
    bench.embedder.fault = ModelError("down", code="embedder_error")
    assert await bench.learn(chat("bread")) == "failed"


async def test_no_more_than_so_many_wait() -> None:
    bench = Bench()
    bench.embedder.before = asyncio.Event().wait
    request = chat("bread")
    for _ in range(MAX_UNDER_WAY + 1):
        bench.learner.learn(request, keyed(request), entry_of(request, bench.clock.now()))
    assert bench.tallied == ["dropped"]
    await bench.learner.close()
    assert not bench.published


async def test_a_witness_is_told_to_all_once() -> None:
    bench = Bench()
    question = stored_question(chat("bread", user="eve"), bench.clock.now())
    bench.learner.corroborate(question, "ann")
    await bench.learner.settled()
    told = bench.published[-1][0]
    assert told.witnesses == ("ann",)
    bench.learner.corroborate(told, "ann")
    await bench.learner.settled()
    assert len(bench.published) == 1


async def test_a_retracted_question_has_no_vector() -> None:
    bench = Bench()
    await bench.learner.retract(b"d" * 16, bench.clock.now() + 60)
    ((question, vector),) = bench.published
    assert (question.digest, vector) == (b"d" * 16, None)


def test_an_allowance_forgets_who_was_idle_longest() -> None:
    allowance = Allowance(1)
    assert allowance.take("first", 0)
    assert not allowance.take("first", 0)
    for number in range(MAX_CALLERS):
        assert allowance.take(str(number), 0)
    assert allowance.take("first", 0)


def test_a_clock_that_goes_back_gives_no_tokens() -> None:
    allowance = Allowance(60)
    assert sum(allowance.take("a", 100) for _ in range(100)) == 60
    assert not allowance.take("a", 0)
    assert not allowance.take("a", 0.5)
    assert allowance.take("a", 2.5)
