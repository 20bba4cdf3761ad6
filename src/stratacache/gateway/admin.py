"""Health, metrics and the administrator's endpoints."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import msgspec

from stratacache import __version__
from stratacache.dialects.clients import CLIENTS
from stratacache.errors import RequestError, StoreError, VectorIndexError
from stratacache.gateway.auth import Authenticator
from stratacache.gateway.http import (
    ASGIScope,
    Receive,
    Send,
    read_body,
    read_query,
    send_body,
    send_json,
)
from stratacache.gateway.models import ModelList
from stratacache.gateway.prepare import Preparer, join_headers
from stratacache.observe.census import TakeCensus
from stratacache.pipeline.serve import Pipeline
from stratacache.policy.fields import CHAT, EMBEDDINGS
from stratacache.ports import QuestionFilter, Store, Upstream, VectorIndex
from stratacache.types import JSON

log = logging.getLogger(__name__)

_FIGURES_TIMEOUT = 1.0  # seconds; a store that hangs must not take the metrics with it

_EXPLAINED = {client.path: client.endpoint for client in CLIENTS.values() if client.endpoint != EMBEDDINGS}
"""Paths whose requests can be explained; those for embeddings are cached input by input."""

EngineStats = Callable[[], Awaitable[Mapping[str, JSON] | None]]


class Loads(Protocol):
    """The loading of models: ``wiring.warming.Warming``."""

    @property
    def state(self) -> str: ...
    @property
    def pending(self) -> bool: ...


class Operations:
    """What operators and probes ask.

    Args:
        census: counts what all processes of the gateway have done.
        index: of the semantic tier, None when that is off; ``loads`` follows the loading of its models.
        engines: by upstream name, the figures of each embedded engine (None while it is down).
    """

    def __init__(
        self,
        authenticator: Authenticator,
        preparer: Preparer,
        pipeline: Pipeline,
        models: ModelList,
        census: TakeCensus,
        store: Store,
        questions: QuestionFilter,
        index: VectorIndex | None,
        loads: Loads | None,
        upstreams: Mapping[str, Upstream],
        engines: Mapping[str, EngineStats],
        *,
        max_body: int,
    ) -> None:
        self._authenticator = authenticator
        self._preparer = preparer
        self._pipeline = pipeline
        self._models = models
        self._census = census
        self._store = store
        self._questions = questions
        self._index = index
        self._loads = loads
        self._upstreams = upstreams
        self._engines = engines
        self._max_body = max_body

    async def healthz(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """200 while the process answers."""
        await send_json(send, {"status": "ok", "version": __version__})

    async def readyz(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """200 when some upstream can answer and the models are loaded, or took too long; 503 until then."""
        ready = await self._ready()
        loads = self._loads
        status = 200 if any(ready.values()) and not (loads is not None and loads.pending) else 503
        models = {"semantic": loads.state} if loads is not None else {}
        await send_json(send, {"ready": status == 200, "upstreams": ready, **models}, status)

    async def models(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """``GET /v1/models`` and ``/v1/models/NAME``."""
        headers = join_headers(scope["headers"])
        self._authenticator.identify(headers, "chat")
        name = scope["path"].removeprefix("/v1/models").strip("/")
        if name:
            await send_json(send, self._models.one(name))
        else:
            await send_json(send, await self._models.all(headers))

    async def metrics(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """The Prometheus text format."""
        self._authenticator.identify(join_headers(scope["headers"]), "admin")
        store = await self._store_stats()
        engines = await self._engine_stats()
        blocks: dict[str, float] = {}
        for figures in engines.values():
            for state, count in (figures or {}).get("blocks", {}).items():
                if state in ("free", "cached", "active"):
                    blocks[state] = blocks.get(state, 0) + count
        gauges: dict[str, dict[str, float]] = {
            "stratacache_upstream_ready": {n: float(r) for n, r in (await self._ready()).items()},
            "stratacache_kv_blocks": blocks,
        }
        if store is not None:
            gauges["stratacache_store_entries"] = {"": store["entries"]}
            gauges["stratacache_store_bytes"] = {"": store["bytes"]}
        questions = await self._question_stats()
        if questions is not None:
            rates = {kind: questions[kind] for kind in ("expected", "measured")}
            gauges["stratacache_question_filter_false_positive_rate"] = rates
            gauges["stratacache_question_filter_questions"] = {"": questions["questions"]}
            gauges["stratacache_question_filter_fill"] = {"": questions["fill"]}
        index = await self._index_stats()
        if index is not None:
            gauges["stratacache_index_vectors"] = {"": index["vectors"]}
        body = (await self._census()).metrics.expose(gauges)
        await send_body(send, 200, [(b"content-type", b"text/plain; version=0.0.4; charset=utf-8")], body)

    async def stats(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """``GET /admin/stats``: totals since start as JSON."""
        self._authenticator.identify(join_headers(scope["headers"]), "admin")
        census = await self._census()
        await send_json(
            send,
            {
                "version": __version__,
                **census.metrics.summary(),
                "workers": census.shares,
                "levels": census.metrics.levels(),
                **await self.standing(),
            },
        )

    async def standing(self) -> dict[str, JSON]:
        """What the parts beside this process say of themselves, now; null where one does not answer."""
        return {
            "store": await self._store_stats(),
            "question_filter": await self._question_stats(),
            "index": await self._index_stats(),
            "engines": await self._engine_stats(),
            "upstreams_ready": await self._ready(),
        }

    async def explain(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """``POST /admin/explain?path=``: what would be done with a body that is sent there (to chat, when no path
        is named), with nothing called."""
        headers = join_headers(scope["headers"])
        caller = self._authenticator.identify(headers, "admin")
        endpoint = _explained(read_query(scope, "path"))
        body = await read_body(receive, self._max_body)
        prepared = await self._preparer.build(headers, body, caller, endpoint)
        await send_json(send, await self._pipeline.explain(prepared.request, prepared.key, prepared.plan))

    async def _ready(self) -> dict[str, bool]:
        ready = await asyncio.gather(*(upstream.ready() for upstream in self._upstreams.values()))
        return dict(zip(self._upstreams, ready, strict=True))

    async def _store_stats(self) -> dict[str, int] | None:
        try:
            async with asyncio.timeout(_FIGURES_TIMEOUT):
                return msgspec.structs.asdict(await self._store.stats())
        except (StoreError, TimeoutError) as error:
            log.warning("the store gives no figures: %s", error or "it does not answer")
            return None

    async def _question_stats(self) -> dict[str, float] | None:
        try:
            async with asyncio.timeout(_FIGURES_TIMEOUT):
                return msgspec.structs.asdict(await self._questions.stats())
        except (StoreError, TimeoutError) as error:
            log.warning("the filter of questions gives no figures: %s", error or "it does not answer")
            return None

    async def _index_stats(self) -> dict[str, int] | None:
        if self._index is None:
            return None
        try:
            async with asyncio.timeout(_FIGURES_TIMEOUT):
                return msgspec.structs.asdict(await self._index.stats())
        except (VectorIndexError, TimeoutError) as error:
            log.warning("the semantic index gives no figures: %s", error or "it does not answer")
            return None

    async def _engine_stats(self) -> dict[str, Mapping[str, JSON] | None]:
        figures = await asyncio.gather(*(ask() for ask in self._engines.values()))
        return dict(zip(self._engines, figures, strict=True))


def _explained(path: str | None) -> str:
    """The endpoint at ``path``. Raises RequestError."""
    if path is None:
        return CHAT
    if path not in _EXPLAINED:
        known = ", ".join(_EXPLAINED)
        raise RequestError(f"path must be one of {known}", param="path", code="invalid_value")
    return _EXPLAINED[path]
