"""Builds a System from Settings: the only module that names concretes."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping

from stratacache.clock import SystemClock
from stratacache.gateway.admin import EngineStats, Operations
from stratacache.gateway.app import App
from stratacache.gateway.auth import Authenticator
from stratacache.gateway.chat import ChatEndpoint
from stratacache.gateway.models import ModelList
from stratacache.gateway.passthrough import Passthrough
from stratacache.gateway.prepare import Preparer
from stratacache.observe.metrics import Metrics
from stratacache.pipeline.call import Caller
from stratacache.pipeline.flight import FlightTable
from stratacache.pipeline.plan import CachePolicy, ScenePolicy
from stratacache.pipeline.serve import Pipeline
from stratacache.pipeline.writeback import WriteBack
from stratacache.ports import Clock, Store, Upstream
from stratacache.settings import EmbeddedSettings, Settings, api_key
from stratacache.stores import open_store
from stratacache.tiers.exact import ExactTier
from stratacache.upstream.embedded import EmbeddedUpstream
from stratacache.upstream.openai import OpenAIUpstream
from stratacache.upstream.router import Router

log = logging.getLogger(__name__)

WRITEBACK_DRAIN = 10.0  # seconds that answers get to reach the store at shutdown


class System:
    """Everything that runs, with one start and one stop. ``app`` is the ASGI application."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], clock: Clock | None = None) -> None:
        clock = clock or SystemClock()
        self.settings = settings
        self.metrics = Metrics()
        self.store: Store = open_store(settings.store, max_bytes=settings.store_max_bytes, clock=clock)
        self.upstreams = _build_upstreams(settings, environ)
        self.policy = _build_policy(settings)
        self.flights = FlightTable()
        self.writeback = WriteBack(self.store, self.metrics, clock)
        caller = Caller(
            self.upstreams, self.flights, self.writeback, self.policy, self.metrics, clock, random.random
        )
        exact = ExactTier(self.store, clock, budget=settings.tiers.exact.budget)
        self.pipeline = Pipeline(exact, caller, self.flights, self.metrics, clock)
        self.app = self._build_app(clock)

    def _build_app(self, clock: Clock) -> App:
        settings = self.settings
        max_body = settings.server.max_body
        authenticator = Authenticator(settings.auth)
        router = Router(settings.upstreams, settings.aliases)
        self.preparer = preparer = Preparer(authenticator, router, self.upstreams, self.policy)
        chat = ChatEndpoint(preparer, self.pipeline, clock, max_body=max_body)
        passthrough = Passthrough(authenticator, preparer, router, self.upstreams, max_body=max_body)
        engines: dict[str, EngineStats] = {
            name: upstream.stats
            for name, upstream in self.upstreams.items()
            if isinstance(upstream, EmbeddedUpstream)
        }
        operations = Operations(
            authenticator,
            preparer,
            self.pipeline,
            ModelList(preparer, router, self.upstreams),
            self.metrics,
            self.store,
            self.upstreams,
            engines,
            max_body=max_body,
        )
        return App(
            {
                "/v1/chat/completions": {"POST": chat},
                "/v1/models": {"GET": operations.models},
                "/v1/models/*": {"GET": operations.models},
                "/v1/*": {"*": passthrough},
                "/healthz": {"GET": operations.healthz},
                "/readyz": {"GET": operations.readyz},
                "/metrics": {"GET": operations.metrics},
                "/admin/stats": {"GET": operations.stats},
                "/admin/explain": {"POST": operations.explain},
            },
            start=self.start,
            stop=self.stop,
        )

    async def start(self) -> None:
        """Open pools and start supervised engines; returns before a slow engine is ready."""
        self.writeback.start()
        for upstream in self.upstreams.values():
            await upstream.start()

    async def stop(self) -> None:
        """Let finished answers reach the store, then close everything."""
        if not await self.writeback.drain(WRITEBACK_DRAIN):
            log.error("some answers did not reach the store within %.0f s", WRITEBACK_DRAIN)
        await self.writeback.close()
        self.preparer.close()
        for upstream in self.upstreams.values():
            await upstream.close()
        await self.store.close()


def _build_policy(settings: Settings) -> CachePolicy:
    window = settings.tiers.exact.history_window
    return CachePolicy(
        exact=settings.tiers.exact.enabled,
        scenes={name: ScenePolicy(scene.ttl, scene.jitter) for name, scene in settings.scenes.items()},
        max_entry=settings.tiers.exact.max_entry,
        history_window=None if window == "all" else window,
    )


def _build_upstreams(settings: Settings, environ: Mapping[str, str]) -> dict[str, Upstream]:
    upstreams: dict[str, Upstream] = {}
    for upstream in settings.upstreams:
        if isinstance(upstream, EmbeddedSettings):
            upstreams[upstream.name] = EmbeddedUpstream(upstream, prefix_cache=settings.tiers.kv.enabled)
        else:
            upstreams[upstream.name] = OpenAIUpstream(upstream, api_key(upstream, environ))
    return upstreams
