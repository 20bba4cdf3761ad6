"""Opens the semantic tier's index: in this process, following the question log, or on a vector server."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from stratacache.errors import ModelError, SettingsError, VectorIndexError
from stratacache.ports import Clock, Embedder, LogRecord, QuestionLog, Store, Vector, VectorIndex
from stratacache.settings import SemanticSettings
from stratacache.stores.memory_log import MemoryQuestionLog
from stratacache.tiers.semantic_learn import Publish
from stratacache.types import Question
from stratacache.vectors.follower import LogFollower
from stratacache.vectors.limits import IndexLimits
from stratacache.vectors.local import LocalIndex
from stratacache.vectors.reconcile import prune
from stratacache.vectors.rows import ROW_BYTES
from stratacache.vectors.servers import open_vector_server
from stratacache.vectors.swapping import SwappingIndex
from stratacache.wiring.embedders import Choice, MadeWith, Opened, note_made_with, read_made_with
from stratacache.wiring.reindex import Ended, Reindexer
from stratacache.wiring.slots import Slot

log = logging.getLogger(__name__)

_RECORD = 320  # bytes of a question's text and its place in the graph, about
_FOLDERS = ("index", "index2")  # one is in use; the other is for the index that is to take its place

Open = Callable[[Choice], Opened]


class OpenIndex(msgspec.Struct, frozen=True):
    """The index, its embedder, how all instances are told of a question, and what an index of this process follows.

    ``find`` gives the question of an entry, where the index can tell.
    ``outdated``: the vectors are of an embedder that the configuration does not name any more.
    """

    index: VectorIndex
    embedder: Embedder
    publish: Publish
    question_log: QuestionLog | None = None
    follower: LogFollower | None = None
    reindexer: Reindexer | None = None
    outdated: bool = False
    load: Callable[[], None] = lambda: None
    find: Callable[[bytes], Question | None] | None = None

    def start(self, ended: Ended | None = None) -> None:
        """Begin to follow the log, and to embed anew what needs it: then ``ended`` is told how that went.

        Call once, in the event loop.
        """
        self.load()
        if self.follower is not None:
            self.follower.start()
        if self.outdated and self.reindexer is not None:
            log.warning(
                "the embedder has changed: all questions are embedded anew while the old vectors serve"
            )
            self.reindexer.begin(ended)

    async def close(self) -> None:
        """Save what is to be kept. Idempotent."""
        if self.reindexer is not None:
            await self.reindexer.close()
        if self.follower is not None:
            await self.follower.close()
        if self.question_log is not None:
            await self.question_log.close()
        try:
            await self.index.close()
        except VectorIndexError as error:
            log.warning("the semantic index was not saved; it will follow the log anew: %s", error)


class Place(msgspec.Struct, frozen=True):
    """What an index is opened in. ``slot``: where it is kept, None for nowhere."""

    settings: SemanticSettings
    environ: Mapping[str, str]
    clock: Clock
    store: Store
    question_log: QuestionLog | None
    slot: Slot | None


def open_index(place: Place, configured: Opened, open_embedder: Open) -> OpenIndex:
    """The index for the ``configured`` embedder; ``open_embedder`` opens others, or that one again."""
    named, embedder = place.settings.index, configured.embedder
    if "://" in named:
        served = open_vector_server(named, embedder.dimension, embedder.fingerprint, place.clock)
        return OpenIndex(served, embedder, partial(_publish_to_server, served))
    question_log = place.question_log or MemoryQuestionLog(place.clock)
    local = _Local(place, configured, open_embedder)
    index, after = local.open()

    async def on_gap() -> None:
        compared = await prune(index, place.store)
        log.warning("of %d questions in the index %d had no answer any more", compared.looked, compared.dead)

    follower = LogFollower(question_log, index, index.embedder, place.clock, after=after, on_gap=on_gap)
    index.serving.index.position = lambda: follower.position
    reindexer = Reindexer(
        index, question_log, place.store, place.clock, local.target, local.make, local.swapped
    )
    publish = partial(_publish_to_log, question_log, index.embedder)
    outdated = index.embedder.fingerprint != embedder.fingerprint
    return OpenIndex(
        index, index.embedder, publish, question_log, follower, reindexer, outdated, local.load, index.find
    )


class _Local:
    """The index of this process; beside a store in a file it is saved, with a note of its embedder."""

    def __init__(self, place: Place, configured: Opened, open_embedder: Open) -> None:
        self._place = place
        self._choice = Choice.of(place.settings)
        self._configured = configured
        self._given = False  # to somebody who closes it when it is of no use
        self._open_embedder = open_embedder
        self._folder = _FOLDERS[0]
        self.load: Callable[[], None] = lambda: None

    def open(self) -> tuple[SwappingIndex, bytes]:
        """The index and the position of the log that it has: of the configured embedder, or else of the last one."""
        embedder = self._configured.embedder
        found = self._saved(embedder)
        if found is None:
            before = self._before()
            if before is not None:
                return before
            found = self._empty(embedder, _FOLDERS[0]), b""
        self._note(embedder)
        return SwappingIndex(embedder, found[0]), found[1]

    def target(self, serving: Embedder) -> Opened:
        """The embedder that the configuration names, for a new index. One on a server is asked and no memo of it."""
        if serving.fingerprint != self._configured.embedder.fingerprint:
            if not self._given:
                self._given = True
                return self._configured
        elif not self._choice.is_served:
            return Opened(serving)
        return self._open_embedder(self._choice)

    def make(self, embedder: Embedder) -> LocalIndex:
        """An empty index in the folder that is not in use."""
        folder = _FOLDERS[1] if self._folder == _FOLDERS[0] else _FOLDERS[0]
        self._remove(folder)
        return self._empty(embedder, folder)

    async def swapped(self, index: SwappingIndex) -> None:
        """Keep the new index, and then forget the old one's folder."""
        old, self._folder = self._folder, next(name for name in _FOLDERS if name != self._folder)
        if self._place.slot is None:
            return
        new = index.serving.index
        try:
            await new.save(new.position() if new.position is not None else b"")
        except VectorIndexError as error:
            log.warning("the new index is not saved yet: %s", error)
        self._note(index.serving.embedder)
        self._remove(old)

    def _saved(self, embedder: Embedder) -> tuple[LocalIndex, bytes] | None:
        """The index that was saved with vectors of ``embedder``."""
        slot = self._place.slot
        for name in _FOLDERS if slot is not None else ():
            assert slot is not None
            folder = slot.path(name)
            try:
                found = LocalIndex.load(
                    folder,
                    embedder.dimension,
                    embedder.fingerprint,
                    self._place.clock,
                    self._limits(embedder),
                )
            except VectorIndexError as error:
                log.info("%s is not used: %s", folder.name, error)
                continue
            self._folder = name
            return found
        return None

    def _before(self) -> tuple[SwappingIndex, bytes] | None:
        """The index of an embedder that was configured before, which serves until its texts are embedded anew."""
        slot = self._place.slot
        made_with = read_made_with(slot.path("embedder")) if slot is not None else None
        if made_with is None or made_with.fingerprint == self._configured.embedder.fingerprint:
            return None
        try:
            opened = self._open_embedder(made_with.choice)
        except (ModelError, SettingsError) as error:
            log.warning("the embedder before this one cannot be opened: %s", error)
            return None
        found = self._saved(opened.embedder) if opened.embedder.fingerprint == made_with.fingerprint else None
        if found is None:
            return None
        self.load = opened.start
        return SwappingIndex(opened.embedder, found[0]), found[1]

    def _empty(self, embedder: Embedder, name: str) -> LocalIndex:
        slot = self._place.slot
        folder = slot.path(name) if slot is not None else None
        if folder is not None:
            with contextlib.suppress(OSError):  # the first snapshot says what is wrong
                folder.mkdir(mode=0o700, exist_ok=True)  # it is to hold questions in clear text
        return LocalIndex(
            embedder.dimension, embedder.fingerprint, self._place.clock, self._limits(embedder), folder=folder
        )

    def _limits(self, embedder: Embedder) -> IndexLimits:
        return index_limits(self._place.settings, embedder.dimension)

    def _note(self, embedder: Embedder) -> None:
        if self._place.slot is not None:
            made_with = MadeWith(self._choice, embedder.fingerprint, embedder.dimension)
            note_made_with(self._place.slot.path("embedder"), made_with)

    def _remove(self, name: str) -> None:
        if self._place.slot is not None:
            shutil.rmtree(self._place.slot.path(name), ignore_errors=True)


async def _publish_to_log(
    question_log: QuestionLog, embedder: Embedder, question: Question, vector: Vector | None
) -> None:
    if vector is None:
        await question_log.append([LogRecord(question)])
        return
    made_by = getattr(vector, "fingerprint", embedder.fingerprint)  # another, when that changed meanwhile
    await question_log.append([LogRecord(question, vector.astype("<f2").tobytes(), made_by)])


async def _publish_to_server(index: VectorIndex, question: Question, vector: Vector | None) -> None:
    if vector is None:
        await index.remove([question.digest])
    else:
        await index.add(question, vector)


def index_limits(semantic: SemanticSettings, dimension: int) -> IndexLimits:
    """As many vectors as there is memory for: product codes leave the vectors in a file."""
    memory = semantic.index_max_bytes
    if semantic.index == "ivfpq":
        return IndexLimits(
            kind="ivfpq", max_vectors=memory // (ROW_BYTES + _RECORD + dimension // 8), max_bytes=memory
        )
    return IndexLimits(
        kind="hnsw", max_vectors=memory // (ROW_BYTES + _RECORD + 2 * dimension), max_bytes=memory
    )
