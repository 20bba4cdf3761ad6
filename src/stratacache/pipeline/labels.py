"""Teaches the error bound: compares fresh answers with those that the cache would have given instead."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from stratacache.dialects import wire
from stratacache.dialects.table import said_by
from stratacache.errors import ModelError, UpstreamError
from stratacache.pipeline.flight import Flight
from stratacache.policy.agreement import MAX_CHARS, compare_answers
from stratacache.ports import Embedder
from stratacache.tiers.semantic import SemanticTier
from stratacache.tiers.semantic_inquiry import Rival, Terms
from stratacache.tiers.semantic_parts import Bound, Source
from stratacache.types import JSON, Question

log = logging.getLogger(__name__)

MAX_LABELS = 10_000  # that are remembered, for calibration

Judge = Callable[[str, str, str], Awaitable[bool | None]]
LIKENESS_TIMEOUT = 2.0  # seconds


Comparison = Literal["agree", "disagree", "unsure", "gone"]


class Labelled(msgspec.Struct, frozen=True):
    """Whether the answer to ``stored`` was right for ``asked``; ``source`` says how that is known.

    ``probability`` is the verifier's.
    """

    asked: str
    stored: str
    right: bool
    scene: str
    source: Source
    probability: float


class Labeller:
    """Compares answers and tells the bound.

    Args:
        witnessed: told when another principal got an answer that agrees: the question, and who that was.
        tally: counts each result: ``agree``, ``disagree``, ``unsure``, ``gone``, ``told_right``,
            ``told_wrong``.
        judge: asked whether an answer, given to the second question, serves the first; None when there is none.
    """

    def __init__(
        self,
        tier: SemanticTier,
        bound: Bound,
        embedder: Embedder,
        witnessed: Callable[[Question, str], None],
        tally: Callable[[str], None],
        judge: Judge | None = None,
    ) -> None:
        self._tier = tier
        self._bound = bound
        self._embedder = embedder
        self._witnessed = witnessed
        self._tally = tally
        self._judge = judge
        self.labels: deque[Labelled] = deque(maxlen=MAX_LABELS)

    async def beside(
        self, flight: Flight, rival: Rival, terms: Terms, *, source: Source = "explored", weight: float = 1.0
    ) -> Comparison | None:
        """Wait for the answer of ``flight`` and judge ``rival`` by it; None when there is no answer to compare with.

        Raises only when cancelled.
        """
        try:
            landing = await flight.wait_landing()
        except UpstreamError:
            return None
        fresh = answer_text(landing.answer)
        if fresh is None or not landing.done:
            return None
        entry = await self._tier.rival_entry(rival, terms)
        cached = None if entry is None else answer_text(wire.decode_answer(entry.body))
        if cached is None:
            self._tally("gone")
            return "gone"
        right = await self._agrees(rival, fresh, cached)
        compared: Comparison = "unsure" if right is None else "agree" if right else "disagree"
        self._tally(compared)
        if right is None:
            return compared
        question, asked = rival.candidate.question, rival.asked
        if not rival.same:  # what no verifier was asked about says nothing of the verifier
            self._learned(rival, right, terms, source, weight)
        if right and asked.principal != question.principal:
            self._witnessed(question, asked.principal)
        return compared

    def _learned(self, rival: Rival, right: bool, terms: Terms, source: Source, weight: float) -> None:
        question, asked = rival.candidate.question, rival.asked
        self.labels.append(
            Labelled(asked.question, question.text, right, terms.scene, source, rival.probability)
        )
        self._bound.observe(
            terms.scene,
            question.digest,
            rival.probability,
            right,
            source=source,
            weight=weight,
            risk=asked.risk,
            language=asked.language,
        )

    async def _agrees(self, rival: Rival, fresh: str, cached: str) -> bool | None:
        """Whether the cached answer would have served; what the answers leave open a model may settle."""
        agreement = compare_answers(fresh, cached, await self._cosine(fresh, cached))
        if agreement != "unsure":
            return agreement == "agree"
        if self._judge is None:
            return None
        return await self._judge(rival.asked.question, rival.candidate.question.text, cached)

    def told(self, label: Labelled, entry: bytes, *, risk: str = "", language: str = "") -> None:
        """A person says whether an answer serves."""
        self._tally("told_right" if label.right else "told_wrong")
        if label.source != "review":  # the review queue keeps those, for longer than this process lives
            self.labels.append(label)
        self._bound.observe(
            label.scene,
            entry,
            label.probability,
            label.right,
            source=label.source,
            risk=risk,
            language=language,
        )

    async def _cosine(self, fresh: str, cached: str) -> float | None:
        try:
            async with asyncio.timeout(LIKENESS_TIMEOUT):
                one = await self._embedder.embed(fresh[:MAX_CHARS])
                return float(one @ await self._embedder.embed(cached[:MAX_CHARS]))
        except (ModelError, TimeoutError):
            return None


def answer_text(answer: JSON) -> str | None:
    """What an answer says, None unless it is one whole text: several choices and calls of tools are not compared."""
    return said_by(answer)
