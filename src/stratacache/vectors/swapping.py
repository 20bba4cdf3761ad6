"""Changes the embedder under a running index: texts are embedded anew aside, then both are swapped at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Literal

import msgspec
import numpy as np

from stratacache.errors import ModelError, StrataError, VectorIndexError
from stratacache.ports import Embedder, Vector
from stratacache.types import Candidate, IndexStats, Question
from stratacache.vectors.local import LocalIndex

_TOGETHER = 4  # texts that are embedded at a time: requests need the embedder's threads too
_PAUSES = (0.1, 0.5, 2.0, 5.0)  # seconds before a text is tried again; then it is given up
_HOPELESS = frozenset({"nothing_to_embed"})
_MOST_GIVEN_UP = 32  # texts in a row: then it is the embedder that does not work
_MOST_CHANGED = 200_000

log = logging.getLogger(__name__)


class ReindexProgress(msgspec.Struct, frozen=True):
    """``done`` of about ``total`` questions are in the new index, ``failed`` could not be embedded and are left out.

    ``fingerprint`` is that of the new embedder; ``reason`` says why the state is ``failed``.
    """

    state: Literal["idle", "running", "done", "failed"] = "idle"
    fingerprint: str = ""
    total: int = 0
    done: int = 0
    failed: int = 0
    reason: str = ""


class _Served(msgspec.Struct, frozen=True):
    embedder: Embedder
    index: LocalIndex


class StampedVector(np.ndarray):
    """A vector with the ``fingerprint`` of the embedder that made it; what is computed from it has none."""

    fingerprint: str


def is_of(vector: Vector, fingerprint: str) -> bool:
    """False when ``vector`` says that another embedder made it."""
    return getattr(vector, "fingerprint", fingerprint) == fingerprint


class CurrentEmbedder:
    """A ``ports.Embedder``: the one that the vectors of a ``SwappingIndex`` are of at present."""

    def __init__(self, owner: SwappingIndex) -> None:
        self._owner = owner

    @property
    def fingerprint(self) -> str:
        return self._owner.serving.embedder.fingerprint

    @property
    def dimension(self) -> int:
        return self._owner.serving.embedder.dimension

    async def embed(self, text: str) -> Vector:
        """As ``ports.Embedder``; the index refuses the vector once another embedder has taken over."""
        embedder = self._owner.serving.embedder
        stamped = np.asarray(await embedder.embed(text), np.float32).view(StampedVector)
        stamped.fingerprint = embedder.fingerprint
        return stamped

    async def close(self) -> None:
        """The owner closes what it serves with."""


class SwappingIndex:
    """A ``ports.VectorIndex`` and its embedder, which can be changed while both serve.

    ``reindex`` embeds every stored text anew into another index; what is added and removed meanwhile is noted and done
    there too. Then both are swapped between two steps of the event loop. It fails without a trace for those who search.
    """

    def __init__(self, embedder: Embedder, index: LocalIndex) -> None:
        self.serving = _Served(embedder, index)
        self.embedder = CurrentEmbedder(self)
        self.progress = ReindexProgress()
        self._changed: dict[bytes, Question | None] | None = None  # None: nothing is under way
        self._task: asyncio.Task[None] | None = None

    async def search(self, partition: bytes, vector: Vector, count: int) -> Sequence[Candidate]:
        self._require_current(vector)
        return await self.serving.index.search(partition, vector, count)

    async def add(self, question: Question, vector: Vector) -> None:
        self._require_current(vector)
        await self.serving.index.add(question, vector)
        self._note(question.digest, question)

    async def remove(self, digests: Sequence[bytes]) -> None:
        await self.serving.index.remove(digests)
        for digest in digests:
            self._note(digest, None)

    async def stats(self) -> IndexStats:
        return await self.serving.index.stats()

    async def check(self) -> None:
        await self.serving.index.check()

    def questions(self) -> AsyncIterator[Sequence[Question]]:
        """As ``LocalIndex.questions``."""
        return self.serving.index.questions()

    def find(self, digest: bytes) -> Question | None:
        """As ``LocalIndex.find``."""
        return self.serving.index.find(digest)

    async def close(self) -> None:
        """Give up what is under way, then close index and embedder. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.serving.index.close()
        await self.serving.embedder.close()

    def reindex(
        self, embedder: Embedder, index: LocalIndex, lacking: Sequence[Question] = ()
    ) -> asyncio.Task[None]:
        """Begin to fill ``index``, empty and with a folder of its own, by ``embedder``; see ``progress``.

        ``embedder`` may be the one that serves. Both belong to this object from now on: it closes them on failure, and
        the old ones after the swap. ``lacking``: questions that this index should have had. The task that is returned
        never raises, but it can be cancelled: then the old ones go on.

        Raises:
            VectorIndexError: one is under way already, or index and embedder do not fit.
        """
        if self._changed is not None:
            raise VectorIndexError("questions are being embedded anew already")
        if (index.fingerprint, index.dimension) != (embedder.fingerprint, embedder.dimension):
            raise VectorIndexError("the new index is not for the new embedder")
        self._changed = {}
        self.progress = ReindexProgress("running", embedder.fingerprint)
        self._task = asyncio.create_task(self._reindex(_Served(embedder, index), lacking), name="reindex")
        return self._task

    async def _reindex(self, new: _Served, lacking: Sequence[Question]) -> None:
        unused = new
        try:
            await _Reindexing(self, new).run(lacking)
            unused = self._swap(new)
        except asyncio.CancelledError:
            self.progress = msgspec.structs.replace(self.progress, state="failed", reason="given up")
            raise
        except StrataError as error:
            log.warning("questions could not be embedded anew: %s", error)
            self.progress = msgspec.structs.replace(self.progress, state="failed", reason=str(error))
        except Exception as error:  # nobody waits for this task: its state must say what happened
            log.exception("questions could not be embedded anew, for a reason that nothing announces")
            self.progress = msgspec.structs.replace(self.progress, state="failed", reason=repr(error))
        finally:
            self._changed = None
            await unused.index.close()
            if unused.embedder is not self.serving.embedder:
                await unused.embedder.close()

    def _swap(self, new: _Served) -> _Served:
        """Serve with ``new``; returns the old. What was added since the last text was embedded must be none."""
        assert not self._changed
        old = self.serving
        new.index.position, old.index.position = old.index.position, None
        self.serving = new
        self.progress = msgspec.structs.replace(self.progress, state="done")
        return old

    def take_changes(self) -> dict[bytes, Question | None]:
        """What was added (or, None, removed) since the last call."""
        assert self._changed is not None
        taken, self._changed = self._changed, {}
        return taken

    def is_changed(self, digest: bytes) -> bool:
        return self._changed is not None and digest in self._changed

    def _note(self, digest: bytes, question: Question | None) -> None:
        if self._changed is not None:
            self._changed[digest] = question

    def _require_current(self, vector: Vector) -> None:
        if not is_of(vector, self.serving.embedder.fingerprint):
            raise VectorIndexError("the vector was made before the embedder changed")


class _Reindexing:
    """One pass over the stored questions, then over what changed, until nothing has."""

    def __init__(self, owner: SwappingIndex, new: _Served) -> None:
        self._owner = owner
        self._new = new
        self._given_up = 0

    async def run(self, lacking: Sequence[Question]) -> None:
        total = (await self._owner.stats()).vectors + len(lacking)
        self._count(total=total)
        async for questions in self._owner.questions():
            await self._embed([one for one in questions if not self._owner.is_changed(one.digest)])
        await self._embed([one for one in lacking if not self._owner.is_changed(one.digest)])
        while changes := self._owner.take_changes():
            if len(changes) > _MOST_CHANGED:
                raise VectorIndexError("questions change faster than they are embedded anew")
            await self._new.index.remove([digest for digest, one in changes.items() if one is None])
            await self._embed([one for one in changes.values() if one is not None])

    async def _embed(self, questions: Sequence[Question]) -> None:
        for start in range(0, len(questions), _TOGETHER):
            await asyncio.gather(*map(self._embed_one, questions[start : start + _TOGETHER]))

    async def _embed_one(self, question: Question) -> None:
        vector = await self._vector(question.text)
        if vector is None:
            # What an older text of this digest left there is wrong now.
            await self._new.index.remove([question.digest])
            self._count(failed=self._owner.progress.failed + 1)
            return
        await self._new.index.add(question, vector)
        self._count(done=self._owner.progress.done + 1)

    async def _vector(self, text: str) -> Vector | None:
        for pause in (*_PAUSES, None):
            try:
                vector = await self._new.embedder.embed(text)
            except ModelError as error:
                if error.code in _HOPELESS:
                    return None
                if pause is None:
                    break
                await asyncio.sleep(pause)
            else:
                self._given_up = 0
                return vector
        self._given_up += 1
        if self._given_up >= _MOST_GIVEN_UP:
            raise VectorIndexError("the new embedder does not answer")
        return None

    def _count(self, **counts: int) -> None:
        self._owner.progress = msgspec.structs.replace(self._owner.progress, **counts)
