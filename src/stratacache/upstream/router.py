"""Which upstream serves a model: aliases first, then exact names, then patterns; the first match wins."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import msgspec

from stratacache.errors import RequestError
from stratacache.settings import (
    AnthropicSettings,
    EmbeddedSettings,
    UpstreamSettings,
    alias_chain,
    is_pattern,
    matches,
)

_MAX_NAME = 256
_SHOWN = 10


class Route(msgspec.Struct, frozen=True):
    """``model`` is what the upstream named ``upstream`` is asked for; ``server`` tells what stands behind the name."""

    upstream: str
    model: str
    server: str


def server_of(settings: UpstreamSettings) -> str:
    """Differs when an upstream of the same name may answer differently: another address, other weights.

    A digest, because an address may hold a secret and this is stored with entries.
    """
    if isinstance(settings, EmbeddedSettings):
        parts = ["embedded", settings.model_dir or "", settings.dtype]
    else:
        if not settings.base_url:
            # Replicas come and go while the model stays: what they answered is kept.
            return hashlib.sha256(b"replicas").hexdigest()[:16]
        url = urlsplit(settings.base_url)
        kind = "anthropic" if isinstance(settings, AnthropicSettings) else "openai"
        parts = [kind, url.scheme, url.netloc.rpartition("@")[2], url.path.rstrip("/")]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


class Router:
    """Resolves model names; built from checked settings. Only its aliases can be exchanged."""

    def __init__(self, upstreams: Sequence[UpstreamSettings], aliases: Mapping[str, str]) -> None:
        self.adopt(aliases)
        self._exact: dict[str, str] = {}
        self._patterns: list[tuple[str, str]] = []
        self._servers = {upstream.name: server_of(upstream) for upstream in upstreams}
        for upstream in upstreams:
            for model in upstream.models:
                if is_pattern(model):
                    self._patterns.append((model, upstream.name))
                else:
                    self._exact.setdefault(model, upstream.name)

    def adopt(self, aliases: Mapping[str, str]) -> None:
        """From now on these are the aliases."""
        self._aliases = {alias: alias_chain(alias, aliases)[-1] for alias in aliases}

    def resolve(self, model: str) -> Route:
        """The route for what a client wrote; raises RequestError 404 that names the nearest models."""
        resolved = self._aliases.get(model, model)
        upstream = self._upstream_of(resolved)
        if upstream is None:
            raise RequestError(self._unknown(model), status=404, param="model", code="model_not_found")
        return Route(upstream, resolved, self._servers[upstream])

    def models(self) -> dict[str, str]:
        """Name → upstream of every model and alias that can be listed; patterns cannot."""
        aliases = {alias: self.resolve(alias).upstream for alias in self._aliases}
        return {**self._exact, **aliases}

    def wildcard_upstreams(self) -> tuple[str, ...]:
        """Upstreams with a pattern, whose models only they can list; in the order of the configuration."""
        return tuple(dict.fromkeys(name for _, name in self._patterns))

    def serves(self, upstream: str, model: str) -> bool:
        """True when a request for ``model`` goes to ``upstream`` under that very name."""
        return model not in self._aliases and self._upstream_of(model) == upstream

    def _upstream_of(self, model: str) -> str | None:
        exact = self._exact.get(model)
        if exact is not None or not 0 < len(model) <= _MAX_NAME:
            return exact
        return next((name for pattern, name in self._patterns if matches(model, pattern)), None)

    def _unknown(self, model: str) -> str:
        if len(model) > _MAX_NAME:
            return f"the model's name is longer than {_MAX_NAME} characters"
        known = sorted(self.models())
        near = difflib.get_close_matches(model, known, n=3)
        if near:
            return f"no upstream serves the model {model!r}; did you mean {' or '.join(map(repr, near))}?"
        listed = ", ".join(known[:_SHOWN]) + (", …" if len(known) > _SHOWN else "")
        return f"no upstream serves the model {model!r}; configured: {listed or 'patterns only'}"
