"""L2: the answer to another question that asks the same, when guards, verifier and error bound all say so."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

from stratacache.errors import StoreDown, StoreError, VectorIndexError
from stratacache.policy.normalise import normalise, tidy
from stratacache.policy.partition import Scoped, Unfit, scope_of
from stratacache.ports import Clock, Embedder, VectorIndex, Verifier
from stratacache.tiers.exact import Get, age_of, staleness
from stratacache.tiers.semantic_inquiry import Contender, Inquiry, Near, Rival, Terms
from stratacache.tiers.semantic_parts import Bound, Decisions, Dependency, Limits, Passed
from stratacache.tiers.semantic_question import Asked, read_question
from stratacache.types import Absent, Candidate, Entry, Hit, Key, Question, Request

log = logging.getLogger(__name__)

Mode = Literal["serve", "shadow", "off"]

NOTHING_NEAR = "no_candidate"
_GONE = frozenset({"entry_gone", "outdated", "index_disagrees"})
"""Reasons for which the index has no use for a question any more."""
_FORGET_TIMEOUT = 5.0  # seconds


class SemanticTier:
    """Looks for a stored question that asks the same. Trusts neither embedding nor index: they only find candidates.

    Args:
        get: as ``ports.Store.get``, with a time limit of its own.
        bound: decides by probability whether to serve; ``draw`` gives it uniform draws from [0, 1).
        mode: may be changed at any time; ``shadow`` and ``off`` are for the pipeline to heed.
    """

    def __init__(
        self,
        get: Get,
        embedder: Embedder,
        index: VectorIndex,
        verifier: Verifier,
        bound: Bound,
        decisions: Decisions,
        limits: Limits,
        clock: Clock,
        draw: Callable[[], float],
        *,
        mode: Mode = "serve",
    ) -> None:
        self.mode: Mode = mode
        self._get = get
        self._embedder = embedder
        self._index = index
        self._verifier = verifier
        self._bound = bound
        self._decisions = decisions
        self._limits = limits
        self._clock = clock
        self._draw = draw
        self.dependencies = {name: Dependency(name, clock) for name in ("embedder", "index", "verifier")}
        self._under_way: dict[tuple[bytes, Terms], asyncio.Task[Near]] = {}
        self._forgetting: set[asyncio.Task[None]] = set()

    async def lookup(self, request: Request, key: Key, terms: Terms) -> Near:
        """A hit, or why there is none. Never raises. Equal requests at a time share one look-up."""
        place = (key.form, terms)
        task = self._under_way.get(place)
        if task is None:
            task = asyncio.create_task(self._look(request, key, terms), name="semantic look-up")
            self._under_way[place] = task
            task.add_done_callback(lambda _: self._under_way.pop(place, None))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Give up what is under way. Idempotent."""
        tasks = [*self._under_way.values(), *self._forgetting]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self, request: Request, key: Key, terms: Terms) -> Near:
        inquiry = Inquiry(self._clock)
        try:
            asked = read_question(request, key, self._decisions)
            if isinstance(asked, Unfit):
                return inquiry.end(None, asked.reason)
            inquiry.asked = asked
            until = asyncio.get_running_loop().time() + self._limits.budget
            contenders = self._examine(inquiry, asked, await self._search(inquiry, asked, until))
            if not contenders:
                return inquiry.end(None, "vetoed" if inquiry.looks else NOTHING_NEAR)
            return await self._verify(inquiry, asked, contenders[: self._limits.verify], terms, until)
        except Passed as passed:
            return inquiry.end(None, passed.reason)
        except Exception:  # whatever it is, the request has a model to go to
            log.exception("a semantic look-up failed in a way that nothing announces")
            return inquiry.end(None, "semantic_error")

    async def _search(self, inquiry: Inquiry, asked: Asked, until: float) -> list[tuple[Candidate, Scoped]]:
        """The nearest stored questions, nearest first, each with the scope that it was found under."""
        count, floor = self._limits.candidates, self._limits.floor
        with inquiry.stage("embed"):
            vector = await self.dependencies["embedder"].ask(
                lambda: self._embedder.embed(asked.question), until
            )
        found: list[tuple[Candidate, Scoped]] = []
        with inquiry.stage("search"):
            for partition, scope in asked.scopes:

                def search(partition: bytes = partition) -> Awaitable[Sequence[Candidate]]:
                    return self._index.search(partition, vector, count)

                near = await self.dependencies["index"].ask(search, until)
                found += [(one, scope) for one in near if one.similarity >= floor]
        found.sort(key=lambda pair: -pair[0].similarity)
        return found[:count]

    def _examine(
        self, inquiry: Inquiry, asked: Asked, found: Sequence[tuple[Candidate, Scoped]]
    ) -> list[Contender]:
        """Those that no guard vetoes, the most promising first."""
        words = normalise(asked.question)
        contenders = []
        for candidate, scope in found:
            stored = candidate.question.text
            said = self._decisions.examine(asked.question, stored)
            one = inquiry.examined(candidate, scope, said, same=normalise(stored) == words)
            if one is not None:
                contenders.append(one)
        contenders.sort(key=lambda one: (not one.same, not one.sure, -one.candidate.similarity))
        return contenders

    async def _verify(
        self, inquiry: Inquiry, asked: Asked, contenders: Sequence[Contender], terms: Terms, until: float
    ) -> Near:
        """The first that may answer; without one, the reason that the most promising was refused for."""
        reason = ""
        for one in contenders:
            probability = await self._probability(inquiry, asked, one, until)
            refused = self._refusal(inquiry, asked, one, probability, terms)
            if refused is None:
                found = await self._fetch(one, terms)
                if isinstance(found, Entry):
                    one.look.verdict = "hit"
                    inquiry.rival = Rival(one.candidate, one.scope, probability, asked.principal)
                    return inquiry.end(self._hit(found, one.candidate, probability), "")
                refused = found
                if refused in _GONE:
                    self._forget(one.candidate.question)
            one.look.verdict = refused
            reason = reason or refused
            if refused == "explored":
                break  # serving the next best instead would leave the best one unexplored
        return inquiry.end(None, reason)

    async def _probability(self, inquiry: Inquiry, asked: Asked, one: Contender, until: float) -> float:
        """That the stored answer serves."""
        if one.same:
            return 1.0
        with inquiry.stage("verify"):
            return await self.dependencies["verifier"].ask(
                lambda: self._verifier.verify(asked.question, one.candidate.question.text), until
            )

    def _refusal(
        self, inquiry: Inquiry, asked: Asked, one: Contender, probability: float, terms: Terms
    ) -> str | None:
        """Why ``one`` must not answer whatever its entry holds, None when it may."""
        question = one.candidate.question
        ruling = self._bound.decide(terms.scene, question.digest, probability, self._draw())
        inquiry.ruled(asked, one, probability, ruling)
        if ruling.choice == "reject":
            return "unverified"
        if probability < terms.min_confidence:
            return "low_confidence"
        if ruling.choice == "explore":
            return "explored"
        known = {question.principal, *question.witnesses}
        if asked.principal not in known and len(known) <= self._limits.corroboration:
            return "uncorroborated"
        return None

    async def rival_entry(self, rival: Rival, terms: Terms) -> Entry | None:
        """What a rival would have answered, None when it may not answer any more."""
        found = await self._entry(rival.candidate.question, rival.scope, terms)
        return found if isinstance(found, Entry) else None

    async def _fetch(self, one: Contender, terms: Terms) -> Entry | str:
        return await self._entry(one.candidate.question, one.scope, terms)

    async def _entry(self, question: Question, scope: Scoped, terms: Terms) -> Entry | str:
        """The entry of ``question``, or why it may not answer: what the index says of it is checked here."""
        try:
            found = await self._get(question.digest, terms.tags)
        except StoreError as error:
            if not isinstance(error, StoreDown):
                log.warning("a semantic candidate could not be read: %s", error)
            return error.code
        if isinstance(found, Absent):
            return "entry_gone" if found.reason == "not_found" else found.reason
        own = scope_of(found.form)
        if own is None or own.form != scope.form or not _says(own.text, question.text):
            return "index_disagrees"
        if found.negative or found.status != 200:
            return "entry_gone"
        stale = staleness(found, self._clock.now(), terms.max_age, terms.min_fresh)
        return found if stale is None else stale

    def _hit(self, entry: Entry, candidate: Candidate, probability: float) -> Hit:
        age = age_of(entry, self._clock.now())
        digest, similarity = candidate.question.digest, candidate.similarity
        return Hit(entry, "semantic", "semantic", age, digest, similarity, probability)

    def _forget(self, question: Question) -> None:
        """Drop ``question`` from the index, with nobody waiting: its entry went by expiry, eviction or invalidation."""
        task = asyncio.create_task(self._remove(question.digest), name="forget question")
        self._forgetting.add(task)
        task.add_done_callback(self._forgetting.discard)

    async def _remove(self, digest: bytes) -> None:
        try:
            async with asyncio.timeout(_FORGET_TIMEOUT):
                await self._index.remove([digest])
        except (VectorIndexError, TimeoutError) as error:
            log.warning("a question whose entry is gone stays in the index: %s", error or "it is slow")


def _says(folded: str, text: str) -> bool:
    """Whether ``folded``, the question in an entry's canonical form, is that of ``text``."""
    return folded in (text, tidy(text)) or folded == normalise(text)
