"""Embeds all stored questions anew beside the running index: when the embedder has changed, and on demand."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import msgspec

from stratacache.errors import StrataError, VectorIndexError
from stratacache.ports import Clock, Embedder, QuestionLog, Store
from stratacache.types import Absent, Question
from stratacache.vectors.local import LocalIndex
from stratacache.vectors.reconcile import prune
from stratacache.vectors.swapping import ReindexProgress, SwappingIndex
from stratacache.wiring.embedders import Opened

log = logging.getLogger(__name__)

_BATCH = 256  # records of the log read at a time
_TOGETHER = 16  # questions asked of the store at a time

Ended = Callable[[ReindexProgress], Awaitable[None]]


class Reindexer:
    """Makes the index anew: without questions whose answer is gone, with those that it lacks, all embedded again.

    The index that serves goes on until the swap. What the new one could not be told is as it was before.

    Args:
        target: the embedder that the configuration names: the one that serves, or one that is opened.
        make: an empty index for an embedder, with a folder of its own.
        swapped: called after the swap, to keep the new index and forget the old.
    """

    def __init__(
        self,
        index: SwappingIndex,
        question_log: QuestionLog,
        store: Store,
        clock: Clock,
        target: Callable[[Embedder], Opened],
        make: Callable[[Embedder], LocalIndex],
        swapped: Callable[[SwappingIndex], Awaitable[None]],
    ) -> None:
        self._index = index
        self._log = question_log
        self._store = store
        self._clock = clock
        self._target = target
        self._make = make
        self._swapped = swapped
        self._task: asyncio.Task[None] | None = None
        self._embedding = False  # what the index tells is of this time
        self._failure = ""
        self._state: Literal["idle", "running", "done", "failed"] = "idle"

    @property
    def progress(self) -> ReindexProgress:
        """How far it is, or how the last one ended."""
        known = self._index.progress if self._embedding else ReindexProgress()
        return msgspec.structs.replace(known, state=self._state, reason=self._failure)

    def begin(self, ended: Ended | None = None) -> ReindexProgress:
        """Start in the background; ``ended`` is called with how it went.

        Raises:
            VectorIndexError: one is running already.
        """
        if self._state == "running":
            raise VectorIndexError("the questions are being embedded anew already")
        self._state, self._failure, self._embedding = "running", "", False
        self._task = asyncio.create_task(self._run(ended), name="reindex")
        return self.progress

    async def close(self) -> None:
        """Give up what is under way. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, ended: Ended | None) -> None:
        try:
            await self._reindex()
            self._state = "done"
        except asyncio.CancelledError:
            self._state, self._failure = "failed", "given up"
            raise
        except StrataError as error:
            self._state, self._failure = "failed", str(error)
        except Exception as error:  # nobody waits for this task: its state must say what happened
            log.exception("the questions could not be embedded anew, for a reason that nothing announces")
            self._state, self._failure = "failed", repr(error)
        progress = self.progress
        if progress.state == "failed":
            log.warning("the questions could not be embedded anew: %s", progress.reason)
        else:
            log.info("%d questions were embedded anew, %d could not be", progress.done, progress.failed)
        if ended is not None:
            await ended(progress)

    async def _reindex(self) -> None:
        opened = self._target(self._index.serving.embedder)
        try:
            opened.start()
            await opened.ready()
            compared = await prune(self._index, self._store)
            lacking = await self._lacking()
            log.info(
                "embedding anew: %d had no answer any more, %d were lacking", compared.dead, len(lacking)
            )
            made = self._make(opened.embedder)
        except BaseException:
            if opened.embedder is not self._index.serving.embedder:
                await opened.embedder.close()
            raise
        task = self._index.reindex(opened.embedder, made, lacking)
        self._embedding = True
        await task
        if self._index.progress.state == "failed":
            raise VectorIndexError(self._index.progress.reason)
        await self._swapped(self._index)

    async def _lacking(self) -> Sequence[Question]:
        """Questions of the log that have an answer and are not in the index: given up, or lost with a snapshot."""
        last: dict[bytes, Question | None] = {}
        position = b""
        while batch := await self._log.read(position, _BATCH):
            for _, record in batch:
                last[record.question.digest] = record.question if record.vector else None
            position = batch[-1][0]
            await asyncio.sleep(0)
        async for held in self._index.questions():
            for question in held:
                last.pop(question.digest, None)
        now = self._clock.now()
        asked = [one for one in last.values() if one is not None and one.expires_at > now]
        alive: list[Question] = []
        for start in range(0, len(asked), _TOGETHER):
            some = asked[start : start + _TOGETHER]
            found = await asyncio.gather(*[self._store.get(one.digest) for one in some])
            alive += [one for one, entry in zip(some, found, strict=True) if not isinstance(entry, Absent)]
            await asyncio.sleep(0)  # a store in memory does not suspend
        return alive
