"""Builds a System from Settings: the only module that names concretes."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from stratacache.clock import SystemClock
from stratacache.consistency.audit import AuditLog
from stratacache.consistency.invalidation import Invalidator
from stratacache.errors import StoreError
from stratacache.gateway.admin import EngineStats, Operations
from stratacache.gateway.app import App
from stratacache.gateway.auth import Authenticator
from stratacache.gateway.divergences import Divergences
from stratacache.gateway.feedback import Feedback
from stratacache.gateway.invalidation import Invalidation
from stratacache.gateway.models import ModelList
from stratacache.gateway.passthrough import Passthrough
from stratacache.gateway.prepare import Preparer
from stratacache.gateway.reindex import Reindexing
from stratacache.gateway.review import Reviewing
from stratacache.gateway.teaching import Teaching
from stratacache.observe.census import census_of_one
from stratacache.observe.names import REPLICA_GAUGES
from stratacache.pipeline.call import Caller
from stratacache.pipeline.fleet import Fleet
from stratacache.pipeline.flight import FlightTable
from stratacache.pipeline.gate import Gate
from stratacache.pipeline.sending import Sender
from stratacache.pipeline.serve import Pipeline
from stratacache.pipeline.siblings import Siblings
from stratacache.pipeline.writeback import WriteBack
from stratacache.policy.breaker import BreakerState
from stratacache.ports import Clock, Store, Upstream
from stratacache.settings import OpenAISettings, Settings, mask_url
from stratacache.stores import Backend, open_backend
from stratacache.stores.guarded import GuardedStore
from stratacache.stores.near import NearCache
from stratacache.tiers.exact import ExactTier
from stratacache.types import Invalidated
from stratacache.upstream.batches import Batches
from stratacache.upstream.embedded import EmbeddedUpstream
from stratacache.upstream.replicas import ReplicaSet
from stratacache.upstream.router import Router
from stratacache.wiring.accounts import Accounts
from stratacache.wiring.endpoints import answer_limits, answering
from stratacache.wiring.operating import operating
from stratacache.wiring.policies import build_policy
from stratacache.wiring.prompt import build_prefixes, build_prompt
from stratacache.wiring.secret import secret_of
from stratacache.wiring.semantic import Ground, SemanticModels, build_semantic
from stratacache.wiring.upstreams import build_upstreams
from stratacache.wiring.watching import watching
from stratacache.workers.link import Link

__all__ = ["SemanticModels", "System"]

log = logging.getLogger(__name__)

BREAKER_LEVELS: Mapping[BreakerState, float] = {"closed": 0.0, "half_open": 1.0, "open": 2.0}
PROBE_TIMEOUT = 5.0  # seconds
WRITEBACK_DRAIN = 10.0  # seconds that answers get to reach the store at shutdown


class System:
    """Everything that runs, with one start and one stop. ``app`` is the ASGI application."""

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        clock: Clock | None = None,
        *,
        link: Link | None = None,
        models: SemanticModels | None = None,
        guest: tuple[OpenAISettings, Upstream] | None = None,
    ) -> None:
        """``link`` joins this process to the other workers of the gateway; without it this one is alone.

        ``models`` stand in for those that the settings name. ``guest`` is an upstream that whoever makes this brings
        along, with the name and models that it has; its models go before those of the settings.
        """
        clock = clock or SystemClock()
        self.settings = settings
        self.link = link
        self.accounts = Accounts(settings, clock)
        self.metrics, self.recorder = self.accounts.metrics, self.accounts.recorder
        self._breakers: dict[str, Callable[[], BreakerState]] = {}
        self.metrics.watch(
            "stratacache_breaker_state",
            lambda: {name: BREAKER_LEVELS[state()] for name, state in self._breakers.items()},
        )
        exact_settings = settings.tiers.exact
        backend = open_backend(settings.store, max_bytes=settings.store_max_bytes, clock=clock)
        self._backend_store = backend.store
        self._probe: asyncio.Task[None] | None = None
        self.bulletin, self.relay = backend.bulletin, backend.relay
        self._question_log, self._listing = backend.question_log, backend.listing
        self.store, self.near = self._build_store(backend, clock)
        self.audit = AuditLog(Path(settings.audit.path)) if settings.audit.path is not None else None
        upstreams = build_upstreams(
            settings,
            environ,
            self.metrics,
            clock,
            lambda: secret_of(settings, environ),
            together=link is not None,
        )
        self.fleets = {n: one for n, one in upstreams.items() if isinstance(one, ReplicaSet)}
        self.engines = {n: one for n, one in upstreams.items() if isinstance(one, EmbeddedUpstream)}
        self.upstreams: dict[str, Upstream] = {name: Batches(one) for name, one in upstreams.items()}
        self._served = settings.upstreams
        if guest is not None:
            self.upstreams[guest[0].name] = guest[1]
            self._served = (guest[0], *settings.upstreams)
        self._watch_fleets()
        self.policy = build_policy(settings)
        self.flights = FlightTable()
        self.writeback = WriteBack(self.store, self.recorder, clock)
        exact = ExactTier(self.store.get, clock)
        # Who takes the lead wants what another instance stored meanwhile, not the copy here.
        renewed = ExactTier(self.near.fetch, clock) if self.near is not None else exact
        fleet = (
            Fleet(self.relay, renewed, self.recorder, budget=exact_settings.budget) if self.relay else None
        )
        self.questions = backend.questions(exact_settings.filter_capacity, exact_settings.filter_error)
        self.gate = Gate(
            self.questions,
            exact_settings.admission,
            self.recorder,
            shed_above=exact_settings.shed_above,
            budget=exact_settings.budget,
        )
        ground = Ground(
            settings,
            backend,
            self.store,
            self.upstreams,
            self.flights,
            self.metrics,
            self.recorder,
            clock,
            environ,
        )
        self.semantic = build_semantic(ground, models)
        kindred = self.semantic.kindred if self.semantic is not None else None
        for name, dependency in kindred.tier.dependencies.items() if kindred is not None else ():
            self._breakers[name] = dependency.current
        self.prompt = build_prompt(settings, lambda: secret_of(settings, environ), clock, self.metrics)
        self.prefixes = build_prefixes(settings, clock, self.metrics)
        self.siblings = Siblings(settings.tiers.prompt.sibling_wait, clock, self.metrics)
        self.caller = caller = Caller(
            Sender(self.upstreams, self.prompt, self.prefixes, self.siblings),
            self.flights,
            fleet,
            self.writeback,
            self.gate,
            self.policy,
            self.recorder,
            clock,
            random.random,
            learn=kindred.learn if kindred is not None else None,
        )
        self.pipeline = Pipeline(
            exact,
            caller,
            self.flights,
            self.gate,
            self.recorder,
            clock,
            random.random,
            kindred=kindred,
            default_answer=exact_settings.default_answer,
        )
        self.app = self._build_app(clock)

    def _build_store(self, backend: Backend, clock: Clock) -> tuple[Store, NearCache | None]:
        """The store as the tiers see it: with its limits, and with copies of it where they can be kept right."""
        exact = self.settings.tiers.exact
        if not backend.store.waits:
            return backend.store, None
        guarded = GuardedStore(backend.store, clock, budget=exact.budget)
        self._breakers["store"] = lambda: guarded.breaker_state
        if backend.bulletin is None or exact.near_cache_bytes == 0:
            return guarded, None
        near = NearCache(guarded, backend.bulletin, self.recorder, clock, max_bytes=exact.near_cache_bytes)
        return near, near

    def hear(self, what: Invalidated | None, digests: Sequence[bytes]) -> None:
        """An invalidation was made, here or on another instance; None when some went unheard."""
        if self.near is not None:
            self.near.hear(what, digests)
        self.flights.hear(what.versions if what is not None else (), self.settings.versions.grace)
        for fleet in self.fleets.values():
            fleet.invalidated([tag for tag, _ in what.versions] if what is not None else ())

    def _watch_fleets(self) -> None:
        """Metrics of replicas, their engines and breakers."""

        def levels(figure: str) -> Callable[[], Mapping[str, float]]:
            return lambda: {
                name: n for fleet in self.fleets.values() for name, n in fleet.levels(figure).items()
            }

        for gauge, figure in REPLICA_GAUGES.items():
            self.metrics.watch(gauge, levels(figure))
        for fleet in self.fleets.values():
            self._breakers |= {f"replica {name}": state for name, state in fleet.breakers().items()}

    def _build_app(self, clock: Clock) -> App:
        settings = self.settings
        max_body = settings.server.max_body
        self.authenticator = authenticator = Authenticator(settings.auth)
        self.router = router = Router(self._served, settings.aliases)
        self.preparer = preparer = Preparer(
            authenticator,
            router,
            self.upstreams,
            self.policy,
            settings.scenes,
            limits=answer_limits(settings),
        )
        passthrough = Passthrough(
            authenticator, preparer, router, self.upstreams, self.recorder, clock, max_body=max_body
        )
        engines: dict[str, EngineStats] = {name: one.stats for name, one in self.engines.items()}
        census = self.link.census if self.link is not None else census_of_one(self.metrics)
        operations = Operations(
            authenticator,
            preparer,
            self.pipeline,
            ModelList(preparer, router, self.upstreams),
            census,
            self.store,
            self.questions,
            self.semantic.index if self.semantic is not None else None,
            self.semantic.warming if self.semantic is not None else None,
            self.upstreams,
            engines,
            max_body=max_body,
        )
        invalidator = Invalidator(self.store, self.audit, clock, self.hear)
        invalidation = Invalidation(authenticator, invalidator, self.audit)
        kindred = self.semantic.kindred if self.semantic is not None else None
        feedback = Feedback(authenticator, self.store, invalidator, kindred, clock)
        review = Reviewing(authenticator, kindred, invalidator, self.audit, clock)
        self._reindexing = self._build_reindexing(authenticator, clock)
        return App(
            {
                **answering(
                    authenticator,
                    preparer,
                    router,
                    self.upstreams,
                    self.pipeline,
                    self.recorder,
                    clock,
                    settings,
                ),
                "/v1/models": {"GET": operations.models},
                "/v1/models/*": {"GET": operations.models},
                "/v1/feedback": {"POST": feedback},
                "/v1/*": {"*": passthrough},
                "/healthz": {"GET": operations.healthz},
                "/readyz": {"GET": operations.readyz},
                "/metrics": {"GET": operations.metrics},
                "/admin/divergences": {"GET": Divergences(authenticator, self.prefixes)},
                "/admin/stats": {"GET": operations.stats},
                "/admin/explain": {"POST": operations.explain},
                "/admin/invalidate": {"POST": invalidation.invalidate},
                "/admin/audit": {"GET": invalidation.audit},
                "/admin/reindex": {"POST": self._reindexing.begin, "GET": self._reindexing.progress},
                "/admin/review": {"GET": review.waiting, "POST": review.settle},
                **watching(
                    authenticator,
                    census,
                    operations.standing,
                    self.semantic,
                    self.accounts.ledger,
                    self.accounts.prices,
                    clock,
                    alone=self.link is None,
                ),
                **operating(
                    authenticator,
                    self.store,
                    self._backend_store,
                    self._listing,
                    self.semantic,
                    self.audit,
                    clock,
                    census,
                    lambda: self.settings,
                    invalidator,
                    self.accounts.ledger,
                    Teaching(authenticator, preparer, self.caller, self.store, clock, max_body=max_body),
                ),
            },
            start=self.start,
            stop=self.stop,
            refused=self.metrics.refused,
            trace=self.accounts.tracing,
        )

    def _build_reindexing(self, authenticator: Authenticator, clock: Clock) -> Reindexing:
        semantic = self.semantic
        reindexing = Reindexing(
            authenticator,
            semantic.reindexer if semantic is not None else None,
            self.audit,
            clock,
            why_not="the semantic tier is not configured"
            if semantic is None
            else "a vector server holds the index, and keeps the vectors of each embedder apart",
            alone=self.link is None,
        )
        if semantic is not None and semantic.reindexer is not None:
            self.metrics.watch("stratacache_reindex_state", reindexing.levels)
            self.metrics.watch("stratacache_reindex_questions", reindexing.counts)
        return reindexing

    async def start(self) -> None:
        """Open pools and start supervised engines; returns before a slow engine is ready."""
        if self.link is not None:
            await self.link.start(
                self.metrics,
                {name: one.learn for name, one in self.engines.items()},
            )
        self.writeback.start()
        self.accounts.start()
        if self.semantic is not None:
            self.semantic.start(self._reindexing.noted("gateway"))
        if self.bulletin is not None:
            await self.bulletin.start(self.hear)
        if self._backend_store.waits:
            self._probe = asyncio.create_task(self._probe_store(), name="probe store")
        for upstream in self.upstreams.values():
            await upstream.start()

    async def _probe_store(self) -> None:
        """Say once, at the start, that the store cannot be used: requests pass it over and would say nothing."""
        try:
            async with asyncio.timeout(PROBE_TIMEOUT):
                await self._backend_store.get(bytes(16))
        except (StoreError, TimeoutError) as error:
            log.warning(
                "the store %s does not answer (%s): until it does every request goes to the model",
                mask_url(self.settings.store),
                error or f"nothing is heard for {PROBE_TIMEOUT:g} s",
            )

    async def stop(self) -> None:
        """Let finished answers reach the store, then close everything."""
        if self._probe is not None:
            self._probe.cancel()
            await asyncio.gather(self._probe, return_exceptions=True)
        if not await self.writeback.drain(WRITEBACK_DRAIN):
            log.error("some answers did not reach the store within %.0f s", WRITEBACK_DRAIN)
        await self.pipeline.close()
        await self.writeback.close()
        if self.semantic is not None:
            await self.semantic.close()
        await self.gate.close()
        self.preparer.close()
        for upstream in self.upstreams.values():
            await upstream.close()
        for shared in (self.bulletin, self.relay, self._question_log):
            if shared is not None:
                await shared.close()
        await self.store.close()
        await self.accounts.close()
        if self.audit is not None:
            self.audit.close()
        if self.link is not None:
            await self.link.close()
