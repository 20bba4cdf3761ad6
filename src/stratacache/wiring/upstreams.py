"""Builds the upstreams that the settings name: the embedded engine, and servers, alone or several as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit, urlunsplit

import msgspec

from stratacache.ports import Clock, Upstream
from stratacache.settings import (
    AnthropicSettings,
    EmbeddedSettings,
    OpenAISettings,
    RemoteSettings,
    Settings,
    addresses,
    api_key,
)
from stratacache.upstream.anthropic import AnthropicUpstream
from stratacache.upstream.embedded import EmbeddedUpstream
from stratacache.upstream.engines import ENGINES
from stratacache.upstream.openai import OpenAIUpstream
from stratacache.upstream.replica import Replica
from stratacache.upstream.replicas import Options, ReplicaSet, Tally


def build_upstreams(
    settings: Settings,
    environ: Mapping[str, str],
    tally: Tally,
    clock: Clock,
    secret: Callable[[], bytes],
    *,
    together: bool,
) -> dict[str, Upstream]:
    """By name. ``secret`` gives the server's secret, for those that salt; ``together``: another process runs the
    engines, for all workers."""
    upstreams: dict[str, Upstream] = {}
    for upstream in settings.upstreams:
        if isinstance(upstream, EmbeddedSettings):
            upstreams[upstream.name] = EmbeddedUpstream(
                upstream, secret=secret(), prefix_cache=settings.tiers.kv.enabled, elsewhere=together
            )
        else:
            upstreams[upstream.name] = _replica_set(upstream, settings, environ, tally, clock, secret)
    return upstreams


def _replica_set(
    upstream: RemoteSettings,
    settings: Settings,
    environ: Mapping[str, str],
    tally: Tally,
    clock: Clock,
    secret: Callable[[], bytes],
) -> ReplicaSet:
    """One server is a set of one: it is retried and probed as several are."""
    key = api_key(upstream, environ)
    kv = settings.tiers.kv
    options = Options(retries=upstream.retries, timeout=upstream.timeout, affinity=kv.enabled and kv.affinity)
    if not isinstance(upstream, OpenAISettings):
        assert isinstance(upstream, AnthropicSettings)
        replica = Replica(upstream.name, AnthropicUpstream(upstream, key))
        return ReplicaSet(upstream.name, [replica], None, options, tally, clock, secret=b"")
    engine = ENGINES[upstream.engine] if upstream.engine is not None else None
    options = msgspec.structs.replace(
        options,
        watch=engine is not None or bool(upstream.replicas),
        probe_interval=upstream.probe_interval,
        reset_on=upstream.reset_on,
    )
    replicas = [_replica(upstream, number, key) for number in range(len(addresses(upstream)))]
    own = secret() if engine is not None else b""
    return ReplicaSet(upstream.name, replicas, engine, options, tally, clock, secret=own)


def _replica(upstream: OpenAISettings, number: int, key: str | None) -> Replica:
    name = f"{upstream.name}/{number}" if upstream.replicas else upstream.name
    url = addresses(upstream)[number]
    one = msgspec.structs.replace(upstream, name=name, base_url=url, replicas=())
    control = None
    if upstream.engine is not None:
        control = OpenAIUpstream(msgspec.structs.replace(one, base_url=_root(url)), key)
    return Replica(name, OpenAIUpstream(one, key), control)


def _root(base_url: str) -> str:
    """Where an engine's own paths begin: ``http://host/v1`` → ``http://host``."""
    parts = urlsplit(base_url)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/").removesuffix("/v1")))
