"""Labels: what a fresh answer says of the stored one beside it, and who settles what is not clear."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from tests.clock import FakeClock
from tests.semantic_kit import (
    DECISIONS,
    Embedder,
    FixedBound,
    Index,
    Verifier,
    chat,
    entry_of,
    keyed,
    stored_question,
)

from stratacache.errors import UpstreamError
from stratacache.pipeline.flight import Flight, Landing
from stratacache.pipeline.labels import Labeller
from stratacache.policy.partition import Unfit
from stratacache.tiers.semantic import SemanticTier
from stratacache.tiers.semantic_inquiry import Rival, Terms
from stratacache.tiers.semantic_parts import Limits
from stratacache.tiers.semantic_question import read_question
from stratacache.types import Absent, Candidate, Entry, Question, Usage

STORED, ASKED = chat("how is bread made", user="eve"), chat("how to make bread", user="bob")
TERMS = Terms(scene="default", tags=(), max_age=1e9, min_fresh=0.0)
CACHED = "Knead the dough, let it rise, and bake it."


class Bench:
    def __init__(self, verdict: bool | None = None) -> None:
        self.clock, self.embedder, self.bound = FakeClock(), Embedder(), FixedBound()
        self.entry: Entry | None = entry_of(STORED, self.clock.now(), text=CACHED)
        self.judged: list[tuple[str, str, str]] = []
        self.verdict = verdict
        self.witnessed: list[tuple[Question, str]] = []
        self.tallied: list[str] = []
        tier = SemanticTier(
            self._get,
            self.embedder,
            Index(),
            Verifier(),
            self.bound,
            DECISIONS,
            Limits(),
            self.clock,
            lambda: 0.5,
        )
        self.labeller = Labeller(
            tier,
            self.bound,
            self.embedder,
            lambda question, who: self.witnessed.append((question, who)),
            self.tallied.append,
            self._judge,
        )

    async def _get(self, digest: bytes, tags: Sequence[str]) -> Entry | Absent:
        return self.entry or Absent("not_found", ())

    async def _judge(self, asked: str, stored: str, answer: str) -> bool | None:
        self.judged.append((asked, stored, answer))
        return self.verdict

    async def label(self, fresh: str | None, *, done: bool = True) -> list[str]:
        """What a fresh answer comes to; None is a call that failed."""
        key = keyed(ASKED)
        flight = Flight(key, (), ASKED.body, b"place", lambda _: None)
        if fresh is None:
            flight.fail(UpstreamError("down"))
        else:
            body = entry_of(ASKED, 0, text=fresh).body
            flight.land(Landing(body, msgspec.json.decode(body), Usage(), done))
        asked = read_question(ASKED, key, DECISIONS)
        assert not isinstance(asked, Unfit)
        question = stored_question(STORED, self.clock.now())
        rival = Rival(Candidate(question, 0.8), asked.whole, 0.7, asked)
        await self.labeller.beside(flight, rival, TERMS, source="checked", weight=5.0)
        return self.tallied


@pytest.mark.parametrize(("fresh", "right"), [(CACHED.upper(), True), ("Rivers run to the sea.", False)])
async def test_a_clear_answer_is_a_label(fresh: str, right: bool) -> None:
    bench = Bench()
    bench.embedder.angles[fresh] = 0.0 if right else 1.5
    assert await bench.label(fresh) == ["agree" if right else "disagree"]
    ((scene, entry, probability, observed, source, weight),) = bench.bound.observed
    assert (scene, entry, probability) == ("default", keyed(STORED).digest, 0.7)
    assert (observed, source, weight) == (right, "checked", 5.0)
    assert len(bench.witnessed) == right  # another principal got the same answer
    assert not bench.judged


@pytest.mark.parametrize(("verdict", "word"), [(True, "agree"), (False, "disagree"), (None, "unsure")])
async def test_what_is_not_clear_is_put_to_the_judge(verdict: bool | None, word: str) -> None:
    bench = Bench(verdict)
    fresh = "Knead it well."
    bench.embedder.angles[fresh] = 0.9
    assert await bench.label(fresh) == [word]
    assert bench.judged == [("how to make bread", "how is bread made", CACHED)]
    assert len(bench.bound.observed) == (verdict is not None)


async def test_no_answer_is_no_label() -> None:
    bench = Bench()
    assert await bench.label(None) == []
    assert await bench.label(CACHED, done=False) == []
    bench.entry = None
    assert await bench.label(CACHED) == ["gone"]
    assert not bench.bound.observed
