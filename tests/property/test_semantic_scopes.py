"""Whatever is stored, and whatever the index says: nobody gets an answer from another scope."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
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

from stratacache.policy.partition import scope_of
from stratacache.tiers.semantic import SemanticTier
from stratacache.tiers.semantic_inquiry import Terms
from stratacache.tiers.semantic_parts import Limits
from stratacache.types import Absent, Entry, Request, Scope

SYSTEMS = st.sampled_from(("", "Be brief.", "Be rude."))
TURNS = st.lists(st.sampled_from(("Hello", "What is bread", "why not")), max_size=2)
QUESTIONS = st.sampled_from(
    ("how is bread made", "how to make bread", "怎样烤面包", "how is it made", "why not")
)
SCOPES = st.builds(Scope, st.sampled_from("ab"), st.sampled_from(("", "n")), st.sampled_from(("", "gold")))
FIELDS = st.sampled_from(({}, {"temperature": 0}, {"temperature": 0.0}, {"seed": 2**60}, {"tools": []}))


@st.composite
def requests(draw: st.DrawFn) -> Request:
    system, turns = draw(SYSTEMS), draw(TURNS)
    messages: list[Any] = [{"role": "system", "content": system}] if system else []
    for turn in turns:
        messages += [turn, {"role": "assistant", "content": "So."}]
    return chat(*messages, draw(QUESTIONS), scope=draw(SCOPES), **draw(FIELDS))


class Liar(Index):
    """Finds everything in every partition, under texts that are another's."""

    def __init__(self, order: Sequence[int], *, swaps: bool) -> None:
        super().__init__()
        self._order = order
        self._swaps = swaps

    async def search(self, partition: bytes, vector: Any, count: int) -> Any:
        found = [
            one
            for p in {q.partition for q, _ in self.held.values()}
            for one in await super().search(p, vector, 50)
        ]
        texts = [one.question.text for one in found]
        if self._swaps and found:
            shift = self._order[0] % len(found)
            texts = texts[shift:] + texts[:shift]
        return [
            msgspec.structs.replace(one, question=msgspec.structs.replace(one.question, text=text))
            for one, text in zip(found, texts, strict=True)
        ]


def _outside(request: Request) -> tuple[Any, ...]:
    """All that must be equal, told without the code under test: a question that stands alone needs no history."""
    said = request.body["messages"]
    system = [m for m in said if m["role"] == "system"]
    rest = {k: v for k, v in request.body.items() if k != "messages"}
    scope = request.scope
    return (system, msgspec.json.encode(rest, order="sorted"), scope.tenant, scope.namespace, scope.profile)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(requests(), min_size=1, max_size=6), requests(), st.booleans(), st.booleans(), st.integers(0, 9)
)
def test_no_answer_leaves_its_scope(
    stored: list[Request], asked: Request, lies: bool, swaps: bool, shift: int
) -> None:
    async def run() -> None:
        clock, embedder, verifier = FakeClock(), Embedder(), Verifier()
        verifier.otherwise = 1.0
        index = Liar([shift], swaps=swaps) if lies else Index()
        entries: dict[bytes, tuple[Entry, Request]] = {}
        for request in stored:
            if not DECISIONS.classify(request.body["messages"][-1]["content"]).cacheable:
                continue
            question = stored_question(request, clock.now())
            entries[question.digest] = (entry_of(request, clock.now()), request)
            await index.add(question, await embedder.embed(question.text))

        async def get(digest: bytes, tags: Sequence[str]) -> Entry | Absent:
            return entries[digest][0] if digest in entries else Absent("not_found", ())

        tier = SemanticTier(
            get, embedder, index, verifier, FixedBound(), DECISIONS, Limits(), clock, lambda: 0.5
        )
        terms = Terms(scene="default", tags=(), max_age=1e9, min_fresh=0.0)
        near = await tier.lookup(asked, keyed(asked), terms)
        await tier.close()
        if near.hit is None:
            return
        assert near.hit.digest is not None
        entry, origin = entries[near.hit.digest]
        assert _outside(origin) == _outside(asked)
        own, whole = scope_of(entry.form), scope_of(keyed(asked).form)
        alone = scope_of(keyed(asked).form, alone=True)
        assert own is not None
        assert whole is not None
        assert alone is not None
        assert own.form in (whole.form, alone.form)
        if "it" in asked.body["messages"][-1]["content"].split():
            assert own.form == whole.form  # what needs its context gets it

    asyncio.run(run())
