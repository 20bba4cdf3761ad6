"""Builds the semantic tier: models, index and what runs beside it."""

from __future__ import annotations

import logging
import random
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from stratacache.errors import VectorIndexError
from stratacache.models.memo import MemoEmbedder
from stratacache.models.pool import Pool
from stratacache.models.remote import RemoteEmbedder
from stratacache.models.sentence_transformers import SentenceTransformerEmbedder
from stratacache.models.use import UseEmbedder
from stratacache.models.verifier import WEIGHTS, OnnxVerifier
from stratacache.observe.metrics import Metrics
from stratacache.pipeline.flight import FlightTable
from stratacache.pipeline.labels import Judge, Labeller
from stratacache.pipeline.semantic import Kindred
from stratacache.policy.allowance import Allowance
from stratacache.policy.bound.pooled import Alarm, ObservedError
from stratacache.policy.cacheability import classify
from stratacache.policy.guards import examine
from stratacache.policy.language import language_of
from stratacache.ports import (
    Clock,
    Embedder,
    LogRecord,
    QuestionLog,
    Store,
    Upstream,
    Vector,
    VectorIndex,
    Verifier,
)
from stratacache.settings import SemanticSettings, Settings, embedder_key, path_of
from stratacache.stores import Backend
from stratacache.stores.memory_log import MemoryQuestionLog
from stratacache.tiers.semantic import SemanticTier
from stratacache.tiers.semantic_learn import Learner, Publish
from stratacache.tiers.semantic_parts import Bound, Decisions, Limits
from stratacache.types import Question, Secret
from stratacache.upstream.judge import LlmJudge
from stratacache.upstream.router import Router
from stratacache.vectors.follower import LogFollower
from stratacache.vectors.limits import IndexLimits
from stratacache.vectors.local import LocalIndex
from stratacache.vectors.reconcile import prune
from stratacache.vectors.rows import ROW_BYTES
from stratacache.vectors.servers import open_vector_server
from stratacache.wiring.learned import BoundKeeper, open_bound, slot_without_file
from stratacache.wiring.slots import Slot, take_slot

log = logging.getLogger(__name__)

_MEMO_BYTES = 8 << 20  # of recent questions and their vectors
_RECORD = 320  # bytes of a question's text and its place in the graph, about


class SemanticModels(msgspec.Struct, frozen=True):
    """What the semantic tier decides by. ``start`` begins to load, ``close`` keeps and frees what they share.

    ``report`` gives the observed error of a scene, ``alarms`` those that were raised, oldest first.
    """

    embedder: Embedder
    verifier: Verifier
    bound: Bound
    decisions: Decisions
    report: Callable[[str], ObservedError] | None = None
    alarms: Callable[[], Sequence[Alarm]] | None = None
    start: Callable[[], None] = lambda: None
    close: Callable[[], Awaitable[None]] | None = None


class SemanticParts(msgspec.Struct, frozen=True):
    """The semantic tier and what runs beside it: an index of this process with its log, or one on a server."""

    kindred: Kindred
    models: SemanticModels
    index: VectorIndex
    question_log: QuestionLog | None
    follower: LogFollower | None
    slot: Slot | None

    def start(self) -> None:
        """Begin to load the models and to follow the log; needs a running loop."""
        self.models.start()
        if self.follower is not None:
            self.follower.start()

    async def close(self) -> None:
        """After the pipeline, which uses it."""
        if self.follower is not None:
            await self.follower.close()
        if self.question_log is not None:
            await self.question_log.close()
        try:
            await self.index.close()
        except VectorIndexError as error:
            log.warning("the semantic index was not saved; it will follow the log anew: %s", error)
        await self.models.embedder.close()
        await self.models.verifier.close()
        if self.models.close is not None:
            await self.models.close()
        if self.slot is not None:
            self.slot.close()


class Ground(msgspec.Struct, frozen=True):
    """What the semantic tier is built on."""

    settings: Settings
    backend: Backend
    store: Store
    upstreams: Mapping[str, Upstream]
    flights: FlightTable
    metrics: Metrics
    clock: Clock
    environ: Mapping[str, str]


def build_semantic(ground: Ground, models: SemanticModels | None = None) -> SemanticParts | None:
    """The semantic tier, None when it is switched off. ``models`` stand in for those that the settings name."""
    settings, clock, metrics = ground.settings.tiers.semantic, ground.clock, ground.metrics
    if not settings.enabled:
        return None
    file = path_of(ground.settings.store)
    slot = take_slot(file) if file is not None else None
    learned = slot or slot_without_file(ground.settings)
    models = models or _build_models(ground, learned)
    if models is None:
        return None
    found = _open_index(ground, slot, models.embedder)
    tier = SemanticTier(
        ground.store.get,
        models.embedder,
        found.index,
        models.verifier,
        models.bound,
        models.decisions,
        _limits(settings),
        clock,
        random.random,
        mode=settings.mode,
    )
    learner = Learner(
        models.embedder,
        tier.dependencies["embedder"],
        found.publish,
        models.decisions,
        Allowance(settings.inserts_per_minute),
        clock,
        metrics.learned,
    )
    judge = _build_judge(ground)
    labeller = Labeller(tier, models.bound, models.embedder, learner.corroborate, metrics.judged, judge)
    kindred = Kindred(tier, learner, labeller, ground.flights, clock, metrics.looked)
    if models.report is not None:
        _watch(metrics, models.report, tuple(ground.settings.scenes))
    if models.alarms is not None:
        metrics.watch("stratacache_semantic_alarm", partial(_alarmed, models.alarms))
    return SemanticParts(kindred, models, found.index, found.question_log, found.follower, learned)


def _limits(settings: SemanticSettings) -> Limits:
    return Limits(
        candidates=settings.candidates,
        floor=settings.floor,
        verify=settings.verify,
        budget=settings.budget,
        corroboration=settings.corroboration,
    )


def _watch(metrics: Metrics, report: Callable[[str], ObservedError], scenes: tuple[str, ...]) -> None:
    """Show the observed error of each scene, with its interval."""
    reads: dict[str, Callable[[ObservedError], float]] = {
        "": lambda one: one.error,
        "_low": lambda one: one.low,
        "_high": lambda one: one.high,
    }
    for suffix, read in reads.items():

        def levels(read: Callable[[ObservedError], float] = read) -> dict[str, float]:
            return {scene: read(report(scene)) for scene in scenes}

        metrics.watch(f"stratacache_semantic_observed_error{suffix}", levels)


def _alarmed(alarms: Callable[[], Sequence[Alarm]]) -> dict[str, float]:
    """Scenes in which an alarm was raised: 1 while it is active."""
    raised: dict[str, float] = {}
    for alarm in alarms():
        raised[alarm.scene] = max(raised.get(alarm.scene, 0.0), float(alarm.active))
    return raised


def _build_models(ground: Ground, slot: Slot | None) -> SemanticModels | None:
    """What the settings name; loading begins with ``start``."""
    settings = ground.settings.tiers.semantic
    pool = Pool(settings.threads, settings.queue)
    embedder, load_embedder = _open_embedder(ground, pool)
    folder = WEIGHTS if settings.verifier == "default" else Path(settings.verifier)
    verifier = OnnxVerifier(pool, budget=settings.budget, language=language_of, folder=folder)
    kept = slot.path("bound") if slot is not None else None
    bound = open_bound(ground.settings, kept)
    keeper = BoundKeeper(bound, kept) if kept is not None else None

    def start() -> None:
        load_embedder()
        verifier.start()
        if keeper is not None:
            keeper.start()

    async def close() -> None:
        await pool.close()
        if keeper is not None:
            await keeper.close()

    return SemanticModels(
        embedder=MemoEmbedder(embedder, _MEMO_BYTES),
        verifier=verifier,
        bound=bound,
        decisions=Decisions(classify, language_of, examine),
        report=bound.report,
        alarms=bound.alarms,
        start=start,
        close=close,
    )


def _open_embedder(ground: Ground, pool: Pool) -> tuple[Embedder, Callable[[], None]]:
    """The embedder, and what begins to load it."""
    settings = ground.settings.tiers.semantic
    kind, _, folder = settings.embedder.partition(":")
    if kind == "default":
        packaged = UseEmbedder(pool, budget=settings.budget)
        return packaged, packaged.start
    if kind == "sentence-transformers":
        local = SentenceTransformerEmbedder(Path(folder), pool, budget=settings.budget)
        return local, local.start
    key = embedder_key(settings, ground.environ)
    remote = RemoteEmbedder(
        settings.embedder,
        settings.embedder_model or "",
        api_key=Secret(key) if key is not None else None,
        budget=settings.budget,
        dimension=settings.embedder_dimension or 0,
    )
    return remote, lambda: None


def _build_judge(ground: Ground) -> Judge | None:
    settings = ground.settings
    semantic = settings.tiers.semantic
    if semantic.judge is None:
        return None
    route = Router(settings.upstreams, settings.aliases).resolve(semantic.judge)
    judge = LlmJudge(
        ground.upstreams[route.upstream],
        route.model,
        ground.clock,
        lambda: secrets.token_hex(8),
        per_minute=semantic.judge_per_minute,
    )
    return judge.judge


class _OpenIndex(msgspec.Struct, frozen=True):
    index: VectorIndex
    publish: Publish
    question_log: QuestionLog | None = None
    follower: LogFollower | None = None


def _open_index(ground: Ground, slot: Slot | None, embedder: Embedder) -> _OpenIndex:
    """The index, how all instances are told of a question, and for an index of this process what it follows."""
    clock, named = ground.clock, ground.settings.tiers.semantic.index
    if "://" in named:
        served = open_vector_server(named, embedder.dimension, embedder.fingerprint, clock)
        return _OpenIndex(served, partial(_publish_to_server, served))
    question_log = ground.backend.question_log or MemoryQuestionLog(clock)
    index, after = _open_local_index(ground, slot, embedder)

    async def on_gap() -> None:
        compared = await prune(index, ground.store)
        log.warning("of %d questions in the index %d had no answer any more", compared.looked, compared.dead)

    follower = LogFollower(question_log, index, embedder, clock, after=after, on_gap=on_gap)
    index.position = lambda: follower.position
    publish = partial(_publish_to_log, question_log, embedder.fingerprint)
    return _OpenIndex(index, publish, question_log, follower)


async def _publish_to_log(
    question_log: QuestionLog, fingerprint: str, question: Question, vector: Vector | None
) -> None:
    written = b"" if vector is None else vector.astype("<f2").tobytes()
    await question_log.append([LogRecord(question, written, fingerprint)])


async def _publish_to_server(index: VectorIndex, question: Question, vector: Vector | None) -> None:
    if vector is None:
        await index.remove([question.digest])
    else:
        await index.add(question, vector)


def _open_local_index(ground: Ground, slot: Slot | None, embedder: Embedder) -> tuple[LocalIndex, bytes]:
    """The index of this process and the position of the log that it has; beside a store in a file it is saved."""
    clock, dimension, fingerprint = ground.clock, embedder.dimension, embedder.fingerprint
    limits = _index_limits(ground.settings.tiers.semantic, dimension)
    if slot is None:
        return LocalIndex(dimension, fingerprint, clock, limits), b""
    folder = slot.path("index")
    try:
        return LocalIndex.load(folder, dimension, fingerprint, clock, limits)
    except VectorIndexError as error:
        log.info("the semantic index begins empty and follows the log: %s", error)
    return LocalIndex(dimension, fingerprint, clock, limits, folder=folder), b""


def _index_limits(semantic: SemanticSettings, dimension: int) -> IndexLimits:
    """As many vectors as there is memory for: product codes leave the vectors in a file."""
    memory = semantic.index_max_bytes
    if semantic.index == "ivfpq":
        return IndexLimits(
            kind="ivfpq", max_vectors=memory // (ROW_BYTES + _RECORD + dimension // 8), max_bytes=memory
        )
    return IndexLimits(
        kind="hnsw", max_vectors=memory // (ROW_BYTES + _RECORD + 2 * dimension), max_bytes=memory
    )
