"""Makes a stored answer findable for other questions: behind the client's back, bounded, counted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from stratacache.errors import StoreError, VectorIndexError
from stratacache.policy.allowance import Allowance
from stratacache.policy.partition import Unfit
from stratacache.ports import Clock, Embedder, Vector
from stratacache.tiers.semantic_parts import Decisions, Dependency, Passed, embedder_of
from stratacache.tiers.semantic_question import confirmed, read_question
from stratacache.types import Entry, Key, Question, Request

log = logging.getLogger(__name__)

MAX_UNDER_WAY = 256
PAUSES = (0.1, 0.5, 2.0, 5.0, 10.0)  # seconds before a busy model is asked again
MAX_WITNESSES = 10  # as many as tiers.semantic.corroboration can ask for
TIMEOUT = 5.0  # seconds, for embedding and publishing each

Publish = Callable[[Question, Vector | None], Awaitable[None]]
"""Tells every instance of a question and its vector; without a vector, that the question is to be found no more."""


class Learner:
    """Publishes the questions of answers that are stored, for every instance to find.

    Args:
        publish: appends to the question log or adds to a shared index; raises StoreError or VectorIndexError.
        allowance: bounds what one caller may add.
        tally: counts each result: ``learned``, ``unfit``, ``limited``, ``dropped`` or ``failed``.
    """

    def __init__(
        self,
        embedder: Embedder,
        dependency: Dependency,
        publish: Publish,
        decisions: Decisions,
        allowance: Allowance,
        clock: Clock,
        tally: Callable[[str], None],
    ) -> None:
        self._embedder = embedder
        self._dependency = dependency
        self._publish = publish
        self._decisions = decisions
        self._allowance = allowance
        self._clock = clock
        self._tally = tally
        self._under_way: set[asyncio.Task[None]] = set()

    def learn(self, request: Request, key: Key, entry: Entry) -> None:
        """Publish the question of ``entry``, which is stored under ``key``. Nobody waits for it.

        Once it is stored and no earlier: a question that is found before its answer would be taken for a dead one.
        """
        self._begin(partial(self._learned, request, key, entry))

    async def restore(self, question: Question) -> None:
        """``question``, of an entry that was brought from elsewhere, can be found again, unless that failed."""
        await self._run(partial(self._told, question))

    def corroborate(self, question: Question, witness: str) -> None:
        """``witness``, another principal, got an answer that agrees with that of ``question``: say so to all."""
        if witness not in question.witnesses and len(question.witnesses) < MAX_WITNESSES:
            told = msgspec.structs.replace(question, witnesses=(*question.witnesses, witness))
            self._begin(partial(self._told, told))

    async def retract(self, digest: bytes, expires_at: float) -> None:
        """The question under ``digest`` is found no more; no instance needs to know it after ``expires_at``.

        Raises StoreError, VectorIndexError or TimeoutError.
        """
        gone = Question(digest, b"", "", created_at=self._clock.now(), expires_at=expires_at)
        async with asyncio.timeout(TIMEOUT):
            await self._publish(gone, None)

    async def settled(self) -> None:
        """Return when all that was to be learned is."""
        while self._under_way:
            await asyncio.gather(*self._under_way, return_exceptions=True)

    async def close(self) -> None:
        """Give up what is under way. Idempotent."""
        for task in self._under_way:
            task.cancel()
        await self.settled()

    def _begin(self, step: Callable[[], Awaitable[str]]) -> None:
        if len(self._under_way) >= MAX_UNDER_WAY:
            self._tally("dropped")
            return
        task = asyncio.create_task(self._run(step), name="learn question")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _run(self, step: Callable[[], Awaitable[str]]) -> None:
        try:
            self._tally(await step())
        except (Passed, StoreError, VectorIndexError, TimeoutError) as error:
            log.warning("a question was not kept for the semantic tier: %s", str(error) or "it took too long")
            self._tally("failed")
        except Exception:  # a task that nobody waits for: what it raises would be seen by nobody
            log.exception("a question was not kept, for a reason that nothing announces")
            self._tally("failed")

    async def _learned(self, request: Request, key: Key, entry: Entry) -> str:
        asked = read_question(request, key, self._decisions)
        if isinstance(asked, Unfit):
            return "unfit"
        vector = await self._vector(asked.question)
        asked = confirmed(asked, request, self._decisions, vector, embedder_of(vector, self._embedder))
        if isinstance(asked, Unfit):
            return "unfit"
        if not self._allowance.take(asked.principal, self._clock.monotonic()):
            return "limited"
        question = Question(
            digest=key.digest,
            partition=asked.whole.partition(asked.language),
            text=asked.question,
            created_at=entry.created_at,
            expires_at=entry.expires_at,
            principal=asked.principal,
        )
        return await self._published(question, vector)

    async def _told(self, question: Question) -> str:
        return await self._published(question, await self._vector(question.text))

    async def _published(self, question: Question, vector: Vector) -> str:
        async with asyncio.timeout(TIMEOUT):
            await self._publish(question, vector)
        return "learned"

    async def _vector(self, text: str) -> Vector:
        """Embed, with patience for a model that is still loaded or has too much to do."""
        for pause in PAUSES:
            until = asyncio.get_running_loop().time() + TIMEOUT
            try:
                return await self._dependency.ask(lambda: self._embedder.embed(text), until)
            except Passed as passed:
                if passed.reason not in ("model_loading", "overloaded"):
                    raise
            await asyncio.sleep(pause)
        raise Passed("overloaded")
