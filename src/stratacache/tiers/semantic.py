"""L2: the answer to another question that asks the same, when guards, verifier and error bound all say so."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

from stratacache.errors import StoreDown, StoreError, VectorIndexError
from stratacache.policy.guards import visible
from stratacache.policy.normalise import normalise, tidy
from stratacache.policy.partition import Scoped, Unfit, scope_of
from stratacache.policy.wording import plain_wording
from stratacache.ports import Clock, Embedder, Similarity, Vector, VectorIndex, Verifier
from stratacache.tiers.exact import Get, age_of, staleness
from stratacache.tiers.semantic_inquiry import Best, Contender, Finding, Inquiry, Near, Rival, Terms
from stratacache.tiers.semantic_parts import Bound, Decisions, Dependency, Limits, Passed, embedder_of
from stratacache.tiers.semantic_question import Asked, confirmed, read_question
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
        self._under_way: dict[tuple[bytes, Terms], asyncio.Task[Finding]] = {}
        self._forgetting: set[asyncio.Task[None]] = set()

    async def lookup(self, request: Request, key: Key, terms: Terms) -> Near:
        """A hit, or why there is none. Never raises. Equal requests at a time share the search, each has its ruling."""
        found = await self._found(request, key, terms)
        asked, best = found.asked, found.best
        if asked is not None:
            self._bound.looked(terms.scene, asked.risk)
        if asked is None or best is None:
            return Near(None, found.reason, found.stages, found.witness, trace=found.trace)
        rival, question = best.rival, best.rival.candidate.question
        if rival.same:
            return Near(self._hit(best), "", found.stages, rival, trace=found.trace)
        if rival.probability < self._least(best):
            worth = rival.probability >= self._limits.worth
            reason = "explored" if worth else "unverified"
            return Near(None, reason, found.stages, rival if worth else None, trace=found.trace)
        ruling = self._bound.decide(
            terms.scene,
            question.digest,
            rival.probability,
            self._draw(),
            risk=asked.risk,
            language=asked.language,
        )
        if ruling.choice == "serve":
            return Near(self._hit(best), "", found.stages, rival, ruling.checked, found.trace)
        reason = "explored" if ruling.choice == "explore" else "unverified"
        return Near(
            None, reason, found.stages, rival if ruling.choice == "explore" else None, trace=found.trace
        )

    async def explain(self, request: Request, key: Key, terms: Terms) -> Near:
        """As :meth:`lookup`, with the numbers behind the ruling; counts nothing for the bound."""
        found = await self._found(request, key, terms)
        if found.asked is None or found.best is None:
            return Near(None, found.reason, found.stages, trace=found.trace)
        rival = found.best.rival
        if rival.same:
            return Near(self._hit(found.best), "", found.stages, rival, trace=found.trace)
        numbers = self._bound.explain(
            terms.scene,
            rival.candidate.question.digest,
            rival.probability,
            risk=found.asked.risk,
            language=found.asked.language,
        )
        least = self._least(found.best)
        serves = numbers["adjusted"] >= numbers["threshold"] and rival.probability >= least
        numbers = {**numbers, "least_p": least}
        hit = self._hit(found.best) if serves else None
        return Near(
            hit, "" if serves else "unverified", found.stages, rival, trace=found.trace, bound=numbers
        )

    def _least(self, best: Best) -> float:
        """The probability without which no budget of errors is spent: who floods a cache with look-ups enlarges it."""
        return self._limits.least if best.sure else self._limits.least_unsure

    async def _found(self, request: Request, key: Key, terms: Terms) -> Finding:
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

    async def _look(self, request: Request, key: Key, terms: Terms) -> Finding:
        inquiry = Inquiry(self._clock)
        try:
            asked = read_question(request, key, self._decisions)
            if isinstance(asked, Unfit):
                return inquiry.unfit(asked)
            until = asyncio.get_running_loop().time() + self._limits.budget
            vector = await self._embed(inquiry, asked, until)
            asked = confirmed(asked, request, self._decisions, vector, inquiry.embedder)
            if isinstance(asked, Unfit):
                return inquiry.unfit(asked)
            inquiry.asked = asked
            contenders = self._examine(inquiry, asked, await self._search(inquiry, asked, vector, until))
            if not contenders:
                return inquiry.end(None, "vetoed" if inquiry.looks else NOTHING_NEAR)
            rivals = await self._verify(inquiry, asked, contenders[: self._limits.verify], until)
            return await self._choose(inquiry, asked, rivals, terms)
        except Passed as passed:
            return inquiry.end(None, passed.reason)
        except Exception:  # whatever it is, the request has a model to go to
            log.exception("a semantic look-up failed in a way that nothing announces")
            return inquiry.end(None, "semantic_error")

    async def _embed(self, inquiry: Inquiry, asked: Asked, until: float) -> Vector:
        with inquiry.stage("embed"):
            vector = await self.dependencies["embedder"].ask(
                lambda: self._embedder.embed(asked.question), until
            )
        inquiry.embedder = embedder_of(vector, self._embedder)
        return vector

    async def _search(
        self, inquiry: Inquiry, asked: Asked, vector: Vector, until: float
    ) -> list[tuple[Candidate, Scoped]]:
        """The nearest stored questions, nearest first, each with the scope that it was found under."""
        count, floor = self._limits.candidates, self._limits.floor
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
        """Those that no guard vetoes, the most promising first, with none that could only come after enough of them."""
        words = plain_wording(asked.question)
        contenders: list[Contender] = []
        for candidate, scope in found:
            stored = candidate.question.text
            same = words != "" and plain_wording(stored) == words
            if not same and sum(one.sure for one in contenders) >= self._limits.verify:
                continue  # a nearer one will be verified in its place, and guards take time of the event loop
            said = self._decisions.examine(asked.question, stored)
            one = inquiry.examined(candidate, scope, said, same=same)
            if one is not None:
                contenders.append(one)
        contenders.sort(key=lambda one: (not one.same, not one.sure, -one.candidate.similarity))
        return contenders

    async def _verify(
        self, inquiry: Inquiry, asked: Asked, contenders: Sequence[Contender], until: float
    ) -> list[tuple[float, Contender]]:
        """Contenders with the probability that they serve, the likeliest first; no more once one surely does."""
        verified: list[tuple[float, Contender]] = []
        for one in contenders:
            try:
                probability = await self._probability(inquiry, asked, one, until)
            except Passed:
                if verified:
                    break  # what is known already will do
                raise
            one.look.probability = probability
            verified.append((probability, one))
            if probability >= self._limits.sure:
                break
        verified.sort(key=lambda pair: -pair[0])
        return verified

    async def _probability(self, inquiry: Inquiry, asked: Asked, one: Contender, until: float) -> float:
        """That the stored answer serves."""
        if one.same:
            return 1.0
        pair = visible(asked.question), visible(one.candidate.question.text)
        similarity = Similarity(one.candidate.similarity, inquiry.embedder)
        with inquiry.stage("verify"):
            verdict = await self.dependencies["verifier"].ask(
                lambda: self._verifier.verify(*pair, similarity), until
            )
        one.look.verified = verdict.alone
        return verdict.probability

    async def _choose(
        self, inquiry: Inquiry, asked: Asked, verified: Sequence[tuple[float, Contender]], terms: Terms
    ) -> Finding:
        """The likeliest that may answer; without one, the reason that the likeliest of all was refused for."""
        reason, witness = "", None
        for probability, one in verified:
            refused = self._refusal(asked, one.candidate.question, probability, terms)
            if refused == "uncorroborated" and witness is None and probability >= self._limits.worth:
                witness = Rival(one.candidate, one.scope, probability, asked, one.same)
            if refused is None:
                found = await self._entry(one.candidate.question, one.scope, terms)
                if isinstance(found, Entry):
                    one.look.verdict = "best"
                    rival = Rival(one.candidate, one.scope, probability, asked, one.same)
                    return inquiry.end(Best(rival, found, one.sure), "")
                refused = found
                if refused in _GONE:
                    self._forget(one.candidate.question)
            one.look.verdict = refused
            reason = reason or refused
        return inquiry.end(None, reason, witness)

    def _refusal(self, asked: Asked, question: Question, probability: float, terms: Terms) -> str | None:
        """Why ``question`` must not answer whatever its entry holds, None when it may."""
        if probability < terms.min_confidence:
            return "low_confidence"
        known = {question.principal, *question.witnesses}
        if asked.principal not in known and len(known) <= self._limits.corroboration:
            return "uncorroborated"
        return None

    async def rival_entry(self, rival: Rival, terms: Terms) -> Entry | None:
        """What a rival would have answered, None when it may not answer any more."""
        found = await self._entry(rival.candidate.question, rival.scope, terms)
        return found if isinstance(found, Entry) else None

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

    def _hit(self, best: Best) -> Hit:
        candidate, entry = best.rival.candidate, best.entry
        age = age_of(entry, self._clock.now())
        digest, similarity = candidate.question.digest, candidate.similarity
        return Hit(entry, "semantic", "semantic", age, digest, similarity, best.rival.probability)

    def _forget(self, question: Question) -> None:
        """Drop ``question`` from the index, with nobody waiting: its entry went by expiry, eviction or invalidation."""
        self._bound.forget(question.digest)
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
