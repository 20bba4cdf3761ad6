"""Who may reach the upstream with a question that no tier answers: everybody, or those with a known one first."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Iterator
from typing import Literal

from stratacache.errors import StoreError
from stratacache.pipeline.plan import Admission
from stratacache.ports import QuestionFilter, Recorder
from stratacache.types import Key, Request

log = logging.getLogger(__name__)

_NOTES = 256  # questions that wait to be noted; more are forgotten, as nothing may wait for them
_NOTE_TIMEOUT = 5.0


class Gate:
    """Penetration defence (B8) by a filter of the questions handled before.

    ``open`` lets everything pass. ``shed`` turns new questions away while ``shed_above`` calls or more to their
    upstream are under way. ``closed`` turns all new questions away: a closed set of questions, taught by
    administrators. When the filter fails, ``shed`` lets pass and ``closed`` does not: there the operator has said that
    the model is not for every question.

    Args:
        shed_above: calls under way to one upstream.
        budget: seconds that the filter may take.
    """

    def __init__(
        self,
        questions: QuestionFilter,
        mode: Admission,
        recorder: Recorder,
        *,
        shed_above: int,
        budget: float,
    ) -> None:
        self._questions = questions
        self._mode = mode
        self._under_way: Counter[str] = Counter()
        self._recorder = recorder
        self._shed_above = shed_above
        self._budget = budget
        self._notes: set[asyncio.Task[None]] = set()

    async def admits(self, request: Request, key: Key) -> Literal["shed", "closed"] | None:
        """None when the upstream may be asked, else why not."""
        if self._mode == "open":
            return None
        if self._mode == "shed":
            if self._under_way[request.upstream] < self._shed_above:
                return None
            return None if await self._seen(key, otherwise=True) else "shed"
        if request.control.admit and "admin" in request.scope.rights:
            return None
        return None if await self._seen(key, otherwise=False) else "closed"

    @contextlib.contextmanager
    def calling(self, upstream: str) -> Iterator[None]:
        """Around a call to ``upstream``: it is under way."""
        self._under_way[upstream] += 1
        try:
            yield
        finally:
            self._under_way[upstream] -= 1

    def handled(self, digest: bytes) -> None:
        """A question got an answer: note it, with nobody waiting."""
        if len(self._notes) >= _NOTES:
            return
        task = asyncio.create_task(self._note(digest), name="note question")
        self._notes.add(task)
        task.add_done_callback(self._notes.discard)

    async def close(self) -> None:
        """Wait until what was handled is noted."""
        await asyncio.gather(*self._notes)
        await self._questions.close()

    async def _note(self, digest: bytes) -> None:
        try:
            async with asyncio.timeout(_NOTE_TIMEOUT):
                seen = await self._questions.note(digest)
        except (StoreError, TimeoutError) as error:
            log.warning("a question was not noted: %s", error)
            return
        self._recorder.counted("question_seen" if seen else "question_new")

    async def _seen(self, key: Key, *, otherwise: bool) -> bool:
        try:
            async with asyncio.timeout(self._budget):
                return await self._questions.seen(key.digest)
        except (StoreError, TimeoutError) as error:
            log.warning("the filter of questions did not answer: %s", error)
            return otherwise
