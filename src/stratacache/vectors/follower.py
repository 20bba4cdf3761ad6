"""Keeps an index of this instance equal to what the question log says, in the background."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
import numpy as np

from stratacache.errors import LogGap, ModelError, StoreError, VectorIndexError
from stratacache.ports import Clock, Embedder, LogRecord, QuestionLog, Vector, VectorIndex
from stratacache.types import Question
from stratacache.vectors.swapping import is_of

_BATCH = 64  # records per read
_YIELD = 16  # records applied before the event loop gets its turn
_WAIT_SECONDS = 1.0  # for news; a message that was lost costs so much at most
_PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # seconds before the log is asked again; the last repeats
_TRIES = (0.1, 0.5, 2.0, 5.0)  # seconds before a record is tried again; then it is given up
_HOPELESS = frozenset({"nothing_to_embed"})
_MOST_PENDING = 4096  # records that wait for an embedding; more wait in the log

log = logging.getLogger(__name__)


class FollowerStats(msgspec.Struct, frozen=True):
    """``added`` and ``removed`` questions; ``embedded`` of the former anew; ``failed`` were given up; ``gaps``: times
    that records were lost; ``faults``: times that the log did not answer; ``pending`` wait for an embedding; ``lag``:
    seconds since the index held all that the log did, 0 when it does."""

    added: int
    removed: int
    embedded: int
    failed: int
    gaps: int
    faults: int
    pending: int
    lag: float


class _Pending(msgspec.Struct, frozen=True, gc=False):
    """A record that waits for an embedding, and the position of the one before it."""

    record: LogRecord
    before: bytes


class LogFollower:
    """Applies the records of a question log to an index, in order, from ``position`` on.

    A vector of another embedder than ``embedder`` is made anew from the text, some at a time, while later records go
    on; of two records of one question the later one stays. A log or index that fails is tried again.

    Args:
        after: the position that the index has, such as that of its snapshot; b"" begins at the oldest kept record.
        on_gap: called when records were lost, before the log is read from its oldest record: the index may hold
            questions whose removal was missed. It may empty the index, or compare it with the store.
        embeds: texts that are embedded at a time.
    """

    def __init__(
        self,
        question_log: QuestionLog,
        index: VectorIndex,
        embedder: Embedder,
        clock: Clock,
        *,
        after: bytes = b"",
        on_gap: Callable[[], Awaitable[None]] | None = None,
        embeds: int = 2,
    ) -> None:
        self._log = question_log
        self._index = index
        self._embedder = embedder
        self._clock = clock
        self._read_to = after
        self._on_gap = on_gap
        self._embeds = embeds
        self._pending: OrderedDict[bytes, _Pending] = OrderedDict()  # by digest, in the order of the log
        self._taken: set[bytes] = set()  # of these, those that an embedding is under way for
        self._changed = asyncio.Event()  # something was added to or removed from the pending
        self._applying = asyncio.Lock()  # one change of the index at a time
        self._tasks: list[asyncio.Task[None]] = []
        self._at_end = False
        self._current_at = clock.monotonic()
        self._counts = dict.fromkeys(("added", "removed", "embedded", "failed", "gaps", "faults"), 0)

    @property
    def position(self) -> bytes:
        """All records up to here are in the index: what a snapshot of it made now is good for."""
        for pending in self._pending.values():
            return pending.before
        return self._read_to

    @property
    def caught_up(self) -> bool:
        """Whether the index held all that the log did when that was last read."""
        return self._at_end and not self._pending

    def stats(self) -> FollowerStats:
        lag = 0.0 if self.caught_up else self._clock.monotonic() - self._current_at
        return FollowerStats(**self._counts, pending=len(self._pending), lag=lag)

    def start(self) -> None:
        """Begin to follow. Call once, in the event loop."""
        follow = asyncio.create_task(self._follow(), name="follow question log")
        embed = [
            asyncio.create_task(self._embed_pending(), name="embed questions anew")
            for _ in range(self._embeds)
        ]
        self._tasks = [follow, *embed]

    async def close(self) -> None:
        """Stop. Neither log nor index is closed. Idempotent."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def _follow(self) -> None:
        """For ever: read on; after a failure pause, longer each time."""
        failures = 0
        while True:
            try:
                await self._read_on()
                failures = 0
                continue
            except (StoreError, VectorIndexError) as error:
                log.log(logging.DEBUG if failures else logging.WARNING, "no news of questions: %s", error)
            except Exception:  # nobody waits for this task: the index would stand still and nobody would know
                log.exception("the question log cannot be followed, for a reason that nothing announces")
            self._counts["faults"] += 1
            self._at_end = False
            await asyncio.sleep(_PAUSES[min(failures, len(_PAUSES) - 1)])
            failures += 1

    async def _read_on(self) -> None:
        """Apply what there is, or wait for something."""
        try:
            found = await self._log.read(self._read_to, _BATCH)
        except LogGap as gap:
            await self._start_over(gap)
            return
        if len(found) == _BATCH:
            self._at_end = False
        for number, (position, record) in enumerate(found, start=1):
            await self._apply(record)
            self._read_to = position
            if number % _YIELD == 0:
                await asyncio.sleep(0)
        if not found:
            self._at_end = True
            self._note_current()
            with contextlib.suppress(LogGap):  # the next read meets it
                await self._log.wait(self._read_to, _WAIT_SECONDS)

    async def _start_over(self, gap: LogGap) -> None:
        log.warning("the index starts over at the oldest question kept: %s", gap)
        self._counts["gaps"] += 1
        self._at_end = False
        self._pending.clear()
        self._changed.set()
        if self._on_gap is not None:
            await self._on_gap()  # when it fails the position stays, so that the gap is met again
        self._read_to = b""

    async def _apply(self, record: LogRecord) -> None:
        digest = record.question.digest
        if self._pending.pop(digest, None) is not None:
            self._changed.set()
        if not record.vector:
            if await self._persist(lambda: self._index.remove([digest])):
                self._counts["removed"] += 1
        elif record.question.expires_at <= self._clock.now():
            return
        elif not await self._add_as_it_is(record):
            await self._put_off(record)

    async def _add_as_it_is(self, record: LogRecord) -> bool:
        """Add it with the record's own vector; False when that is of no use here."""
        useful = True

        async def add() -> None:
            nonlocal useful
            # Asked under the lock, as the embedder may change while this waits for it.
            vector = self._vector(record)
            useful = vector is not None
            if vector is not None:
                await self._index.add(record.question, vector)
                self._counts["added"] += 1

        await self._persist(add)
        return useful

    def _vector(self, record: LogRecord) -> Vector | None:
        """The record's vector, None when it is of no use here."""
        dimension = self._embedder.dimension
        if record.fingerprint != self._embedder.fingerprint or len(record.vector) != 2 * dimension:
            return None
        vector = np.frombuffer(record.vector, "<f2").astype(np.float32)
        length = float(np.linalg.norm(vector))
        return vector / np.float32(length) if np.isfinite(length) and length > 0 else None

    async def _persist(self, step: Callable[[], Awaitable[None]]) -> bool:
        """Do ``step``, again if need be, with no other change of the index in between. Whether it was done."""
        async with self._applying:
            for pause in (*_TRIES, None):
                try:
                    await step()
                except VectorIndexError as error:
                    if pause is None:
                        log.warning("a question is given up: %s", error)
                        break
                    self._at_end = False
                    await asyncio.sleep(pause)
                else:
                    return True
        self._counts["failed"] += 1
        return False

    async def _put_off(self, record: LogRecord) -> None:
        while len(self._pending) >= _MOST_PENDING:
            self._changed.clear()
            await self._changed.wait()
        self._pending[record.question.digest] = _Pending(record, self._read_to)
        self._changed.set()

    async def _embed_pending(self) -> None:
        """For ever: embed one pending record after the other."""
        while True:
            pending = next((one for key, one in self._pending.items() if key not in self._taken), None)
            if pending is None:
                self._changed.clear()
                await self._changed.wait()
                continue
            digest = pending.record.question.digest
            self._taken.add(digest)
            try:
                await self._add_anew(pending)
            except Exception:  # nobody waits for this task, and the next question may do better
                log.exception("a question cannot be embedded, for a reason that nothing announces")
                self._counts["failed"] += 1
            finally:
                self._taken.discard(digest)
                if self._pending.get(digest) is pending:
                    del self._pending[digest]
                self._changed.set()
                self._note_current()

    async def _add_anew(self, pending: _Pending) -> None:
        question = pending.record.question
        late = True

        async def add(vector: Vector) -> None:
            nonlocal late
            late = not is_of(vector, self._embedder.fingerprint)
            # Asked under the lock: what came later for this question has been applied, or will be after this.
            if not late and self._pending.get(question.digest) is pending:
                await self._index.add(question, vector)
                self._counts["embedded"] += 1
                self._counts["added"] += 1

        while late and (vector := await self._embedded(question)) is not None:
            await self._persist(partial(add, vector))

    async def _embedded(self, question: Question) -> Vector | None:
        for pause in (*_TRIES, None):
            if question.expires_at <= self._clock.now():
                return None
            try:
                return await self._embedder.embed(question.text)
            except ModelError as error:
                if pause is None or error.code in _HOPELESS:
                    log.warning("a question cannot be embedded: %s", error)
                    break
                await asyncio.sleep(pause)
        self._counts["failed"] += 1
        return None

    def _note_current(self) -> None:
        if self.caught_up:
            self._current_at = self._clock.monotonic()
