"""Builds the semantic tier: models, index and what runs beside it."""

from __future__ import annotations

import logging
import random
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from stratacache.errors import ModelError
from stratacache.models.calibration import read_calibration
from stratacache.models.pool import Pool
from stratacache.models.verifier import WEIGHTS, OnnxVerifier
from stratacache.observe.metrics import Metrics
from stratacache.pipeline.flight import FlightTable
from stratacache.pipeline.labels import Judge, Labeller
from stratacache.pipeline.review import ReviewQueue
from stratacache.pipeline.semantic import Kindred
from stratacache.policy.allowance import Allowance
from stratacache.policy.bound.picture import Picture
from stratacache.policy.bound.pooled import Alarm, ObservedError
from stratacache.policy.cacheability import Cacheability, classify, confirm, promising, unclassified
from stratacache.policy.cacheability.head import packaged_head
from stratacache.policy.cacheability.model import packaged
from stratacache.policy.guards import examine
from stratacache.policy.language import language_of
from stratacache.ports import Clock, Embedder, Recorder, Store, Upstream, Vector, VectorIndex, Verifier
from stratacache.settings import SemanticSettings, Settings, path_of
from stratacache.stores import Backend
from stratacache.tiers.semantic import SemanticTier
from stratacache.tiers.semantic_learn import Learner
from stratacache.tiers.semantic_parts import Bound, Decisions, Limits
from stratacache.upstream.judge import LlmJudge
from stratacache.upstream.router import Router
from stratacache.vectors.follower import LogFollower
from stratacache.wiring.embedders import Choice, Opened, at_once, open_embedder
from stratacache.wiring.index import OpenIndex, Place, open_index
from stratacache.wiring.learned import BoundKeeper, open_bound, open_review, slot_without_file
from stratacache.wiring.reindex import Ended, Reindexer
from stratacache.wiring.slots import Slot, take_slot
from stratacache.wiring.warming import Warming

log = logging.getLogger(__name__)


class SemanticModels(msgspec.Struct, frozen=True):
    """What the semantic tier decides by. ``start`` begins to load, ``close`` keeps and frees what they share.

    ``report`` gives the observed error of a scene, ``alarms`` those that were raised, oldest first, ``pictures`` the
    curves of the bound. ``embedder_ready`` and ``verifier_ready`` return when they are loaded or raise ModelError;
    ``open`` opens the embedder of a choice.
    """

    embedder: Embedder
    verifier: Verifier
    bound: Bound
    decisions: Decisions
    report: Callable[[str], ObservedError] | None = None
    alarms: Callable[[], Sequence[Alarm]] | None = None
    pictures: Callable[[], Sequence[Picture]] | None = None
    start: Callable[[], None] = lambda: None
    close: Callable[[], Awaitable[None]] | None = None
    embedder_ready: Callable[[], Awaitable[None]] = at_once
    verifier_ready: Callable[[], Awaitable[None]] = at_once
    open: Callable[[Choice], Opened] | None = None

    async def ready(self) -> None:
        """Return when the models are loaded. Raises ModelError when one cannot be."""
        await self.embedder_ready()
        await self.verifier_ready()


class SemanticParts(msgspec.Struct, frozen=True):
    """The semantic tier and what runs beside it."""

    kindred: Kindred
    models: SemanticModels
    opened: OpenIndex
    slot: Slot | None
    warming: Warming

    @property
    def index(self) -> VectorIndex:
        return self.opened.index

    @property
    def follower(self) -> LogFollower | None:
        """What keeps an index of this process in step with the log."""
        return self.opened.follower

    @property
    def reindexer(self) -> Reindexer | None:
        """What can make an index of this process anew."""
        return self.opened.reindexer

    def start(self, ended: Ended | None = None) -> None:
        """Begin to load the models and to follow the log; needs a running loop.

        ``ended`` is told how it went when all had to be embedded anew.
        """
        self.models.start()
        self.opened.start(ended)
        self.warming.start()

    async def close(self) -> None:
        """After the pipeline, which uses it."""
        await self.warming.close()
        await self.opened.close()
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
    recorder: Recorder
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
    backend = ground.backend
    # The store itself: what runs in the background has the patience that a look-up lacks.
    place = Place(settings, ground.environ, clock, backend.store, backend.question_log, slot)
    found = open_index(
        place, Opened(models.embedder, ready=models.embedder_ready), models.open or _cannot_open
    )
    tier = SemanticTier(
        ground.store.get,
        found.embedder,
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
        found.embedder,
        tier.dependencies["embedder"],
        found.publish,
        models.decisions,
        Allowance(settings.inserts_per_minute),
        clock,
        metrics.learned,
    )
    judge = _build_judge(ground)
    labeller = Labeller(tier, models.bound, found.embedder, learner.corroborate, metrics.judged, judge)
    review = ReviewQueue(open_review(ground.settings, clock), backend.store.get, clock, metrics.reviewed)
    metrics.watch("stratacache_review_queue", lambda: review.lengths)
    kindred = Kindred(tier, learner, labeller, ground.flights, metrics.looked, review, metrics.shadowed)
    follower = found.follower
    if follower is not None:
        metrics.watch("stratacache_index_lag_seconds", lambda: {"": follower.stats().lag})
    if models.report is not None:
        _watch(metrics, models.report, tuple(ground.settings.scenes))
    if models.alarms is not None:
        metrics.watch("stratacache_semantic_alarm", partial(_alarmed, models.alarms))
    return SemanticParts(kindred, models, found, learned, Warming(models.ready, clock))


def _cannot_open(choice: Choice) -> Opened:
    raise ModelError(f"there is no embedder {choice.embedder!r}", code="embedder_missing")


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


def _decisions(*, default_embedder: bool) -> Decisions:
    """The pure parts of the tier. Without the classifier's weights nothing is cacheable; without those for vectors of
    the default embedder, and with another embedder, the words decide alone."""
    try:
        packaged()
    except ModelError as error:
        log.error("the semantic tier leaves every question alone (unclassified): %s", error)
        return Decisions(unclassified, lambda said, vector, embedder: said, language_of, examine)
    head = None
    try:
        head = packaged_head() if default_embedder else None
    except ModelError as error:
        log.error("questions are classed by their words alone: %s", error)

    def confirmed(said: Cacheability, vector: Vector, embedder: str) -> Cacheability:
        known = head is not None and embedder == head.embedder
        return confirm(said, head if known else None, vector)

    return Decisions(classify if head is None else promising, confirmed, language_of, examine)


def _build_models(ground: Ground, slot: Slot | None) -> SemanticModels | None:
    """What the settings name; loading begins with ``start``."""
    settings = ground.settings.tiers.semantic
    pool = Pool(settings.threads, settings.queue)
    opening = partial(
        open_embedder, settings=settings, environ=ground.environ, pool=pool, charge=ground.recorder.called
    )
    opened = opening(Choice.of(settings))
    folder = WEIGHTS if settings.verifier == "default" else Path(settings.verifier)
    calibration = (
        read_calibration(Path(settings.calibration).expanduser())
        if settings.calibration is not None
        else None
    )
    verifier = OnnxVerifier(
        pool, budget=settings.budget, language=language_of, folder=folder, calibration=calibration
    )
    kept = slot.path("bound") if slot is not None else None
    bound = open_bound(ground.settings, kept, verifier.fingerprint_with(opened.embedder.fingerprint))
    keeper = BoundKeeper(bound, kept) if kept is not None else None

    def start() -> None:
        opened.start()
        verifier.start()
        if keeper is not None:
            keeper.start()

    async def close() -> None:
        await pool.close()
        if keeper is not None:
            await keeper.close()

    return SemanticModels(
        embedder=opened.embedder,
        verifier=verifier,
        bound=bound,
        decisions=_decisions(default_embedder=settings.embedder == "default"),
        report=bound.report,
        alarms=bound.alarms,
        pictures=bound.pictures,
        start=start,
        close=close,
        embedder_ready=opened.ready,
        verifier_ready=verifier.ready,
        open=opening,
    )


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
        charge=ground.recorder.called,
    )
    return judge.judge
