"""Makes a stored answer findable for other questions: behind the client's back, bounded, counted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from stratacache.errors import StoreError, VectorIndexError
from stratacache.policy.allowance import Allowance
from stratacache.policy.partition import Unfit
from stratacache.ports import Clock, Embedder, Vector
from stratacache.tiers.semantic_parts import Decisions, Dependency, Passed
from stratacache.tiers.semantic_question import read_question
from stratacache.types import Entry, Key, Question, Request

log = logging.getLogger(__name__)

MAX_UNDER_WAY = 256
TIMEOUT = 5.0  # seconds, for embedding and publishing each

Publish = Callable[[Question, Vector], Awaitable[None]]


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

    def learn(self, request: Request, key: Key, entry: Entry, witnesses: tuple[str, ...] = ()) -> None:
        """Publish the question of ``entry``, which is stored under ``key``. Nobody waits for it.

        Once it is stored and no earlier: a question that is found before its answer would be taken for a dead one.
        """
        if len(self._under_way) >= MAX_UNDER_WAY:
            self._tally("dropped")
            return
        task = asyncio.create_task(self._learn(request, key, entry, witnesses), name="learn question")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def settled(self) -> None:
        """Return when all that was to be learned is."""
        while self._under_way:
            await asyncio.gather(*self._under_way, return_exceptions=True)

    async def close(self) -> None:
        """Give up what is under way. Idempotent."""
        for task in self._under_way:
            task.cancel()
        await self.settled()

    async def _learn(self, request: Request, key: Key, entry: Entry, witnesses: tuple[str, ...]) -> None:
        try:
            self._tally(await self._published(request, key, entry, witnesses))
        except (Passed, StoreError, VectorIndexError, TimeoutError) as error:
            log.warning("a question was not kept for the semantic tier: %s", error or "it took too long")
            self._tally("failed")
        except Exception:  # a task that nobody waits for: what it raises would be seen by nobody
            log.exception("a question was not kept, for a reason that nothing announces")
            self._tally("failed")

    async def _published(self, request: Request, key: Key, entry: Entry, witnesses: tuple[str, ...]) -> str:
        asked = read_question(request, key, self._decisions)
        if isinstance(asked, Unfit):
            return "unfit"
        if not self._allowance.take(asked.principal, self._clock.monotonic()):
            return "limited"
        until = asyncio.get_running_loop().time() + TIMEOUT
        vector = await self._dependency.ask(lambda: self._embedder.embed(asked.question), until)
        question = Question(
            digest=key.digest,
            partition=asked.whole.partition(asked.language),
            text=asked.question,
            created_at=entry.created_at,
            expires_at=entry.expires_at,
            principal=asked.principal,
            witnesses=witnesses,
        )
        async with asyncio.timeout(TIMEOUT):
            await self._publish(question, vector)
        return "learned"
