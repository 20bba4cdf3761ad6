"""The semantic tier: what answers, what does not and why, and that no fault of its parts is anybody's error."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from tests.clock import FakeClock
from tests.semantic_kit import (
    DECISIONS,
    Embedder,
    FixedBound,
    Index,
    MissingVerifier,
    Verifier,
    chat,
    entry_of,
    keyed,
    stored_question,
)

from stratacache.errors import ModelError, StoreDown, StoreError, VectorIndexError
from stratacache.ports import Similarity
from stratacache.ports import Verifier as VerifierPort
from stratacache.tiers.semantic import SemanticTier
from stratacache.tiers.semantic_inquiry import Near, Terms
from stratacache.tiers.semantic_parts import Limits
from stratacache.types import Absent, Entry, Request, Scope

SYSTEM = {"role": "system", "content": "Be brief."}
TURN = ({"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi."})
ASKED = "how do you bake bread at home"
STORED = "What is the way to bake bread?"


class Bench:
    """A tier over doubles. ``stored`` puts an answer where the tier finds it."""

    def __init__(self, limits: Limits | None = None, verifier: VerifierPort | None = None) -> None:
        self.clock = FakeClock()
        self.entries: dict[bytes, Entry] = {}
        self.fault: BaseException | None = None
        self.got: list[tuple[bytes, Sequence[str]]] = []
        self.embedder, self.index, self.bound = Embedder(), Index(), FixedBound()
        self.verifier = Verifier()
        self.tier = SemanticTier(
            self._get,
            self.embedder,
            self.index,
            verifier or self.verifier,
            self.bound,
            DECISIONS,
            limits or Limits(),
            self.clock,
            lambda: 0.5,
        )

    async def _get(self, digest: bytes, tags: Sequence[str]) -> Entry | Absent:
        self.got.append((digest, tags))
        if self.fault is not None:
            raise self.fault
        return self.entries.get(digest) or Absent("not_found", ())

    async def stored(self, request: Request, *, text: str = "An answer.", **fields: Any) -> bytes:
        question = stored_question(request, self.clock.now(), **fields)
        self.entries[question.digest] = entry_of(request, self.clock.now(), text=text)
        await self.index.add(question, await self.embedder.embed(question.text))
        return question.digest

    async def ask(self, request: Request, **terms: Any) -> Near:
        asked = {"scene": "default", "tags": ("*",), "max_age": 1000.0, "min_fresh": 0.0, **terms}
        return await self.tier.lookup(request, keyed(request), Terms(**asked))


async def test_another_question_that_asks_the_same_is_answered() -> None:
    bench = Bench()
    digest = await bench.stored(chat(SYSTEM, STORED))
    bench.embedder.angles[ASKED] = 0.5
    bench.verifier.table[ASKED, STORED] = 0.97
    bench.clock.advance(7)
    near = await bench.ask(chat(SYSTEM, ASKED))
    assert near.hit is not None
    assert (near.hit.tier, near.hit.reason, near.hit.age, near.hit.digest) == (
        "semantic",
        "semantic",
        7,
        digest,
    )
    assert near.hit.similarity == pytest.approx(0.8776, abs=1e-4)
    assert near.hit.confidence == 0.97
    assert [name for name, _ in near.stages] == ["embed", "search", "verify"]
    assert bench.got == [(digest, ("*",))]
    (similarity,) = bench.verifier.similarities
    assert similarity == Similarity(near.hit.similarity, "table/1")
    (look,) = near.trace.looks
    assert (look.similarity, look.verified, look.probability) == (near.hit.similarity, 0.97 / 2, 0.97)


@pytest.mark.parametrize(
    "asked",
    [
        chat(SYSTEM, ASKED, scope=Scope(tenant="other")),
        chat(SYSTEM, ASKED, temperature=1),
        chat({"role": "system", "content": "Be long."}, ASKED),
        chat(ASKED),
        chat(SYSTEM, "怎样烤面包"),
    ],
    ids=["tenant", "parameter", "system prompt", "no system prompt", "language"],
)
async def test_nothing_crosses_a_partition(asked: Request) -> None:
    bench = Bench()
    bench.verifier.otherwise = 1.0
    await bench.stored(chat(SYSTEM, STORED))
    assert (await bench.ask(asked)).reason == "no_candidate"
    assert not bench.got


async def test_an_index_that_lies_is_not_believed() -> None:
    bench = Bench()
    bench.verifier.otherwise = 1.0
    asked = chat(SYSTEM, ASKED)
    partition = stored_question(asked, 0).partition
    digest = await bench.stored(chat({"role": "system", "content": "Be rude."}, STORED), partition=partition)
    assert (await bench.ask(asked)).reason == "index_disagrees"
    await asyncio.sleep(0)
    assert digest not in bench.index.held
    await bench.stored(chat(SYSTEM, STORED), text="other words")  # the entry's own question is another
    bench.index.held = {d: (msgspec.structs.replace(q, text="How to bake rolls?"), v)
                        for d, (q, v) in bench.index.held.items()}  # fmt: skip
    assert (await bench.ask(asked)).reason == "index_disagrees"


@pytest.mark.parametrize(
    ("probability", "terms", "reason"),
    [
        (0.2, {}, "unverified"),
        (0.7, {}, "explored"),
        (0.95, {"min_confidence": 0.99}, "low_confidence"),
        (0.7, {"min_confidence": 0.99}, "low_confidence"),
        (0.2, {"max_age": 5.0}, "too_old"),
        (0.95, {"max_age": 5.0}, "too_old"),
        (0.95, {"min_fresh": 95.0}, "too_old"),
    ],
)
async def test_what_is_not_good_enough_does_not_answer(
    probability: float, terms: dict[str, Any], reason: str
) -> None:
    bench = Bench()
    await bench.stored(chat(STORED))
    bench.verifier.otherwise = probability
    bench.clock.advance(7)
    near = await bench.ask(chat(ASKED), **terms)
    assert (near.hit, near.reason) == (None, reason)
    assert (near.rival is None) == (reason != "explored")


async def test_guards_veto_before_the_verifier_is_asked() -> None:
    bench = Bench()
    bench.verifier.otherwise = 1.0
    await bench.stored(chat("should bread not rise"))
    near = await bench.ask(chat("should bread rise"))
    assert near.reason == "vetoed"
    assert near.trace.looks[0].findings == ("negation veto: not / ",)
    assert not bench.verifier.asked


async def test_the_most_promising_are_verified_first_and_no_more_than_allowed() -> None:
    bench = Bench(Limits(verify=2))
    for n, words in enumerate(("near", "nearer", "nearest", "far")):
        bench.embedder.angles[words] = (0.3, 0.2, 0.1, 1.5)[n]
        await bench.stored(chat(words))
    near = await bench.ask(chat(ASKED))
    assert [stored for _, stored in bench.verifier.asked] == ["nearest", "nearer"]
    assert near.reason == "unverified"
    # What is less near than enough that will be verified is not looked at, nor is what is below the floor.
    assert [look.question for look in near.trace.looks] == ["nearest", "nearer"]
    bench.verifier.asked.clear()
    bench.verifier.table[ASKED, "nearer"] = 0.96
    bench.verifier.table[ASKED, "nearest"] = 0.89
    near = await bench.ask(chat(ASKED))
    assert near.hit is not None
    assert near.hit.confidence == 0.96
    assert len(bench.verifier.asked) == 2
    bench.verifier.asked.clear()
    bench.verifier.otherwise = bench.verifier.table[ASKED, "nearest"] = 0.99
    assert (await bench.ask(chat(ASKED))).hit is not None
    assert len(bench.verifier.asked) == 1  # nothing better is looked for
    assert (len(bench.bound.decided), bench.bound.looks) == (
        2,
        3,
    )  # one ruling a request; none on the hopeless


async def test_what_was_verified_answers_when_the_verifier_fails_midway() -> None:
    bench = Bench(verifier=MissingVerifier())
    bench.embedder.angles["bread baking"] = 0.3
    await bench.stored(chat("bread baking"))
    bench.embedder.angles[ASKED] = 0.1
    await bench.stored(chat(ASKED + "?"))
    assert (await bench.ask(chat(ASKED))).hit is not None


async def test_the_next_best_answers_when_the_best_is_gone() -> None:
    bench = Bench(Limits(sure=0.99))
    bench.verifier.otherwise = 0.95
    gone = await bench.stored(chat("bread baking"))
    bench.embedder.angles[STORED] = 0.1
    there = await bench.stored(chat(STORED))
    del bench.entries[gone]
    near = await bench.ask(chat(ASKED))
    assert near.hit is not None
    assert near.hit.digest == there
    await asyncio.sleep(0)
    assert set(bench.index.held) == {there}


async def test_the_same_question_needs_no_verifier() -> None:
    bench = Bench(verifier=MissingVerifier())
    await bench.stored(chat(SYSTEM, STORED))
    near = await bench.ask(chat(SYSTEM, *TURN, STORED))
    assert near.hit is not None
    assert near.hit.confidence == 1.0
    assert (await bench.ask(chat(SYSTEM, ASKED))).reason == "verifier_missing"


async def test_in_a_conversation_only_what_stands_alone_is_looked_for_outside_of_it() -> None:
    bench = Bench()
    bench.verifier.otherwise = 0.95
    await bench.stored(chat(SYSTEM, STORED))
    assert (await bench.ask(chat(SYSTEM, *TURN, ASKED))).hit is not None
    assert (await bench.ask(chat(SYSTEM, *TURN, "how do you bake it"))).reason == "no_candidate"
    assert (await bench.ask(chat(SYSTEM, "how do you bake it"))).reason == "context_dependent"


async def test_an_answer_of_a_conversation_stays_in_it() -> None:
    bench = Bench()
    bench.verifier.otherwise = 0.95
    await bench.stored(chat(*TURN, STORED))
    assert (await bench.ask(chat(*TURN, ASKED))).hit is not None
    assert (await bench.ask(chat(*TURN, "how do you bake it"))).hit is not None
    assert (await bench.ask(chat(ASKED))).reason == "no_candidate"
    assert (await bench.ask(chat(*TURN, *TURN, ASKED))).reason == "no_candidate"


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ("what is new today", "time_bound"),
        ("who is me@example.com", "personal_data"),
        ("x" * 401, "question_too_long"),
        ("", "no_question"),
    ],
)
async def test_what_is_not_cacheable_costs_no_embedding(asked: str, reason: str) -> None:
    bench = Bench()
    assert (await bench.ask(chat(asked))).reason == reason
    assert not bench.embedder.asked


async def test_what_the_vector_says_is_not_cacheable_finds_nothing() -> None:
    bench = Bench()
    await bench.stored(chat(STORED))
    bench.embedder.angles[ASKED] = -math.pi / 2
    near = await bench.ask(chat(ASKED))
    assert (near.hit, near.reason, near.rival) == (None, "personal", None)
    assert [name for name, _ in near.stages] == ["embed"]


@pytest.mark.parametrize(
    ("part", "fault", "reason"),
    [
        ("embedder", ModelError("down", code="embedder_error"), "embedder_error"),
        ("embedder", ModelError("full", code="overloaded"), "overloaded"),
        ("embedder", ValueError("?"), "embedder_error"),
        ("index", VectorIndexError("torn"), "index_error"),
        ("index", OSError("?"), "index_error"),
        ("verifier", ModelError("down", code="verifier_error"), "verifier_error"),
        ("verifier", RuntimeError("?"), "verifier_error"),
    ],
)
async def test_a_fault_is_a_miss_with_its_name(part: str, fault: BaseException, reason: str) -> None:
    bench = Bench()
    await bench.stored(chat(STORED))
    getattr(bench, part).fault = fault
    for _ in range(5):
        assert (await bench.ask(chat(ASKED))).reason == reason
    blameless = reason == "overloaded"
    assert bench.tier.dependencies[part].current() == ("closed" if blameless else "open")
    assert (await bench.ask(chat(ASKED))).reason == (reason if blameless else f"{part}_down")
    getattr(bench, part).fault = None
    bench.clock.advance(1)
    assert (await bench.ask(chat(ASKED))).reason == "unverified"
    assert bench.tier.dependencies[part].current() == "closed"


@pytest.mark.parametrize(
    ("fault", "reason"), [(StoreError("?"), "store_error"), (StoreDown("?"), "store_down")]
)
async def test_a_store_that_fails_is_a_miss(fault: StoreError, reason: str) -> None:
    bench = Bench()
    bench.verifier.otherwise = 1.0
    await bench.stored(chat(STORED))
    bench.fault = fault
    assert (await bench.ask(chat(ASKED))).reason == reason


async def test_a_part_that_hangs_is_left_when_the_budget_is_spent() -> None:
    bench = Bench(Limits(budget=0.01))
    bench.embedder.before = asyncio.Event().wait
    assert (await bench.ask(chat(ASKED))).reason == "embedder_slow"


async def test_an_answer_crosses_principals_once_enough_others_got_the_same() -> None:
    bench = Bench(Limits(corroboration=1))
    bench.verifier.otherwise = 0.95
    await bench.stored(chat(STORED, user="eve"))
    assert (await bench.ask(chat(ASKED, user="eve"))).hit is not None
    assert (await bench.ask(chat(ASKED, user="bob"))).reason == "uncorroborated"
    witness = stored_question(chat(STORED, user="ann"), 0).principal
    await bench.stored(chat(STORED, user="eve"), witnesses=(witness,))
    assert (await bench.ask(chat(ASKED, user="bob"))).hit is not None


async def test_equal_questions_at_a_time_share_one_look_up() -> None:
    bench = Bench()
    bench.verifier.otherwise = 0.95
    await bench.stored(chat(STORED))
    bench.embedder.asked.clear()
    go = asyncio.Event()
    bench.embedder.before = go.wait
    asking = [asyncio.ensure_future(bench.ask(chat(ASKED))) for _ in range(8)]
    stricter = asyncio.ensure_future(bench.ask(chat(ASKED), min_confidence=0.99))
    await asyncio.sleep(0)
    asking[0].cancel()  # takes nobody with it
    go.set()
    assert all(near.hit for near in await asyncio.gather(*asking[1:]))
    assert (await stricter).reason == "low_confidence"
    assert bench.embedder.asked == [ASKED, ASKED]
    assert len(bench.bound.decided) == 7  # each that got an answer counts


async def test_the_bound_is_told_of_scene_risk_and_language() -> None:
    bench = Bench()
    bench.verifier.otherwise = 0.95
    digest = await bench.stored(chat("take pills"))
    assert (await bench.ask(chat("swallow pills"), scene="knowledge")).hit is not None
    assert bench.bound.decided == [("knowledge", digest, 0.95, "medical", "en")]


async def test_explaining_counts_nothing() -> None:
    bench = Bench()
    bench.verifier.otherwise = 0.95
    await bench.stored(chat(STORED))
    request = chat(ASKED)
    terms = Terms(scene="default", tags=(), max_age=1000.0, min_fresh=0.0)
    near = await bench.tier.explain(request, keyed(request), terms)
    assert near.hit is not None
    assert (near.bound["adjusted"], near.trace.looks[0].verdict) == (0.95, "best")
    bench.verifier.otherwise = 0.3
    near = await bench.tier.explain(request, keyed(request), terms)
    assert (near.hit, near.reason) == (None, "unverified")
    assert (bench.bound.looks, bench.bound.decided) == (0, [])


async def test_a_refused_answer_is_never_served() -> None:
    bench = Bench()
    bench.verifier.otherwise = 1.0
    digest = await bench.stored(chat(STORED))
    bench.entries[digest] = msgspec.structs.replace(bench.entries[digest], negative=True)
    assert (await bench.ask(chat(ASKED))).reason == "entry_gone"


async def test_what_only_lacks_corroboration_is_worth_comparing_with_a_fresh_answer() -> None:
    bench = Bench(Limits(corroboration=1))
    bench.verifier.otherwise = 0.95
    digest = await bench.stored(chat(STORED, user="eve"))
    near = await bench.ask(chat(ASKED, user="bob"))
    assert (near.hit, near.reason) == (None, "uncorroborated")
    assert near.rival is not None
    assert near.rival.candidate.question.digest == digest
    bench.verifier.otherwise = 0.1
    assert (await bench.ask(chat(ASKED, user="bob"))).rival is None


async def test_no_budget_of_errors_buys_what_is_improbable_or_in_doubt() -> None:
    bench = Bench()
    bench.bound.serves = bench.bound.explores = 0.0
    await bench.stored(chat(STORED))
    for asked, probability, reason in (
        (ASKED, 0.69, "explored"),
        (ASKED, 0.29, "unverified"),
        (f"{ASKED} maybe", 0.84, "explored"),  # a guard has doubts
    ):
        bench.verifier.otherwise = probability
        near = await bench.ask(chat(asked))
        assert (near.hit, near.reason) == (None, reason)
    for asked, probability in ((ASKED, 0.7), (f"{ASKED} maybe", 0.85)):
        bench.verifier.otherwise = probability
        assert (await bench.ask(chat(asked))).hit is not None


async def test_the_verifier_sees_words_without_invisible_characters() -> None:
    bench = Bench()
    await bench.stored(chat(f"{STORED} n\u200bo"))
    await bench.ask(chat(f"{ASKED} now\u2060here"))
    assert bench.verifier.asked == [(f"{ASKED} nowhere", f"{STORED} no")]
