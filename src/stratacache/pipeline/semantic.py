"""The pipeline's side of the semantic tier: when it is asked, what is learned, and how its answers are checked."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec

from stratacache.pipeline.flight import Flight, FlightTable, Seat
from stratacache.pipeline.labels import Labelled, Labeller, answer_text
from stratacache.pipeline.plan import Plan
from stratacache.pipeline.review import ReviewQueue
from stratacache.policy.review import Item
from stratacache.policy.tags import bucket_tag
from stratacache.tiers.semantic import SemanticTier
from stratacache.tiers.semantic_inquiry import Near, Rival, Terms
from stratacache.tiers.semantic_learn import Learner
from stratacache.tiers.semantic_parts import Source
from stratacache.types import JSON, Entry, Key, Request, Versions

log = logging.getLogger(__name__)

MAX_UNDER_WAY = 256  # comparisons; more are left out
DRAIN = 5.0  # seconds that questions get to be published at the end
MAX_SERVED = 1000  # entries whose last hit is remembered, for feedback

Run = Callable[[Flight], Awaitable[None]]


class Served(msgspec.Struct, frozen=True):
    """The last semantic hit on an entry: what was asked, and what the entry had been the answer to."""

    scene: str
    asked: str
    stored: str
    confidence: float


class Kindred:
    """Answers questions with those of their kind, as far as the mode allows.

    Args:
        tally: counts what every look-up came to: ``hit``, ``shadow_hit`` or the reason why not.
        shadowed: counts by scene how answers that would have been given compared with those that were.
    """

    def __init__(
        self,
        tier: SemanticTier,
        learner: Learner,
        labeller: Labeller,
        flights: FlightTable,
        tally: Callable[[str], None],
        review: ReviewQueue,
        shadowed: Callable[[str, str], None],
    ) -> None:
        self.tier = tier
        self.review = review
        self.learner = learner
        self._served: OrderedDict[bytes, Served] = OrderedDict()
        self._labeller = labeller
        self._flights = flights
        self._tally = tally
        self._shadowed = shadowed
        self._under_way: set[asyncio.Task[object]] = set()

    async def ask(self, request: Request, key: Key, plan: Plan) -> Near | None:
        """What the tier has to say to ``request``; None when it is not to answer."""
        if not plan.semantic or self.tier.mode != "serve":
            return None
        near = await self.tier.lookup(request, key, terms_of(request, key, plan))
        self._tally("hit" if near.hit is not None else near.reason)
        self._note(request, near)
        self.review.offer(request, near)
        return near

    async def labels(self) -> list[Labelled]:
        """The last labels, oldest first, after those that people gave. Raises StoreError."""
        people = [
            label_of(item, verdict == "right")
            for item, verdict in await self.review.verdicts()
            if verdict != "skip"
        ]
        return [one for one in people if one is not None] + list(self._labeller.labels)

    async def told(self, digest: bytes, expires_at: float, *, right: bool) -> None:
        """Somebody says whether the answer under ``digest`` was right. A wrong one is found no more, anywhere.

        Raises:
            StoreError: other instances may still find it; its entry is another matter.
        """
        served = self._served.get(digest)
        if served is not None:
            known = served.asked, served.stored, right, served.scene
            self._labeller.told(Labelled(*known, "feedback", served.confidence), digest)
        if not right:
            self._served.pop(digest, None)
            await self.learner.retract(digest, expires_at)

    async def erase(self, tenant: str) -> int:
        """Forget the pairs of ``tenant`` in review, and all labels of this process: they do not say whose they are.

        Returns how many pairs. Raises StoreError.
        """
        self._labeller.labels.clear()
        self._served.clear()
        return await self.review.erase(tenant)

    async def reviewed(self, item: Item, *, right: bool) -> None:
        """Somebody says whether the stored answer serves ``item``'s question, which is settled already.

        Raises:
            StoreError: as :meth:`told`, when it was served and is wrong.
        """
        digest = bytes.fromhex(item.entry)
        label = label_of(item, right)
        if label is not None:
            self._labeller.told(label, digest, risk=item.risk, language=item.language)
        if not right and item.kind == "hit":
            self._served.pop(digest, None)
            await self.learner.retract(digest, item.expires_at)

    def check(
        self, request: Request, key: Key, plan: Plan, near: Near, versions: Versions | None, run: Run
    ) -> None:
        """A hit was served: when it is drawn for that, fetch a fresh answer, with nobody waiting, and compare."""
        if near.rival is None or not near.checked or plan.only_if_cached or not plan.store:
            return
        if len(self._under_way) < MAX_UNDER_WAY:
            terms = terms_of(request, key, plan)
            seat = self._flights.board(key, versions, request.body, run, share=plan.share)
            self._begin(self._checked(seat, near.rival, terms, near.checked))

    def watch(self, request: Request, key: Key, plan: Plan, near: Near | None, seat: Seat) -> None:
        """A call is under way, whose answer shows whether a stored one would have done."""
        if not plan.semantic or not seat.led or len(self._under_way) >= MAX_UNDER_WAY:
            return
        if near is not None and near.rival is not None:
            self._begin(self._labeller.beside(seat.flight, near.rival, terms_of(request, key, plan)))
        elif self.tier.mode == "shadow":
            self._begin(self._shadow(request, key, plan, seat.flight))

    def learn(self, request: Request, key: Key, plan: Plan, entry: Entry, answer: JSON) -> None:
        """An answer is stored. One that is no single text, such as a tool call, is for its own question only."""
        if plan.learn and self.tier.mode != "off" and not entry.negative and answer_text(answer) is not None:
            self.learner.learn(request, key, entry)

    async def explain(self, request: Request, key: Key, plan: Plan) -> Near | None:
        """What :meth:`ask` would find, in every mode but ``off``; nothing is counted."""
        if not plan.semantic or self.tier.mode == "off":
            return None
        return await self.tier.explain(request, key, terms_of(request, key, plan))

    async def settled(self) -> None:
        """Return when every comparison under way is done."""
        while self._under_way:
            await asyncio.gather(*self._under_way, return_exceptions=True)

    async def close(self) -> None:
        """Give up what is under way, but for the questions of stored answers. Idempotent."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN):
                await self.learner.settled()
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        await self.review.close()
        await self.learner.close()
        await self.tier.close()

    def _note(self, request: Request, near: Near) -> None:
        hit = near.hit
        if hit is None or hit.digest is None or near.rival is None:
            return
        self._served[hit.digest] = Served(
            scene=request.control.scene,
            asked=near.trace.question,
            stored=near.rival.candidate.question.text,
            confidence=hit.confidence or 0.0,
        )
        self._served.move_to_end(hit.digest)
        if len(self._served) > MAX_SERVED:
            self._served.popitem(last=False)

    def _begin(self, step: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(step, name="semantic label")
        self._under_way.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._under_way.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a semantic answer could not be judged", exc_info=error)

    async def _checked(self, seat: Seat, rival: Rival, terms: Terms, weight: float) -> None:
        try:
            await self._labeller.beside(seat.flight, rival, terms, source="checked", weight=weight)
        finally:
            seat.leave()

    async def _shadow(self, request: Request, key: Key, plan: Plan, flight: Flight) -> None:
        terms = terms_of(request, key, plan)
        near = await self.tier.lookup(request, key, terms)
        self._tally("shadow_hit" if near.hit is not None else near.reason)
        self.review.offer(request, near, shadow=True)
        if near.rival is not None:
            # Every answer that would have been given is checked, so each counts for itself alone.
            source: Source = "explored" if near.hit is None else "checked"
            compared = await self._labeller.beside(flight, near.rival, terms, source=source)
            if near.hit is not None:
                self._shadowed(terms.scene, compared or "unanswered")


def label_of(item: Item, right: bool) -> Labelled | None:
    """What a verdict teaches; None where no verifier was asked, as there is nothing to correct."""
    if item.probability is None:
        return None
    return Labelled(item.asked, item.stored, right, item.scene, "review", item.probability)


def terms_of(request: Request, key: Key, plan: Plan) -> Terms:
    """What an entry must satisfy to answer ``request``; no entry of another question is in this one's bucket."""
    own = bucket_tag(key.digest)
    return Terms(
        scene=request.control.scene,
        tags=tuple([tag for tag in plan.tags if tag != own or tag in request.control.tags]),
        max_age=plan.max_age,
        min_fresh=plan.min_fresh,
        min_confidence=request.control.min_confidence,
    )
