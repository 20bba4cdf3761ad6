"""An upstream that speaks Anthropic's Messages API, over the HTTP client of ``upstream.openai``."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stratacache.ports import UpstreamResponse
from stratacache.settings import AnthropicSettings, OpenAISettings
from stratacache.types import JSON, Request
from stratacache.upstream.openai import OpenAIUpstream

API_VERSION = "2026-10-21"
"""What is said of requests that do not say theirs: the newest, as Anthropic's documentation advises."""

API_KEY_SCHEME = "x-api-key "
"""How a caller's own API key stands in ``Request.credential`` (the gateway writes it so), beside ``Bearer …``."""

_CREDENTIALS = ("authorization", "x-api-key", "api-key")


class AnthropicUpstream:
    """A ``ports.Upstream`` for Anthropic and servers of its kind.

    Args:
        settings: base URL (with or without ``/v1``) and time limits.
        api_key: sent as ``x-api-key``; None: the caller's own credential is passed on.
    """

    def __init__(self, settings: AnthropicSettings, api_key: str | None = None) -> None:
        self.name = settings.name
        self._key = api_key
        # It has no key of its own: what is in the headers travels, and that is decided here.
        self._http = OpenAIUpstream(
            OpenAISettings(
                name=settings.name,
                models=settings.models,
                base_url=versioned(settings.base_url),
                timeout=settings.timeout,
                connect_timeout=settings.connect_timeout,
                idle_timeout=settings.idle_timeout,
                first_byte_timeout=settings.first_byte_timeout,
            )
        )
        self.forwards_credentials = api_key is None and self._http.forwards_credentials

    async def start(self) -> None:
        """Open the pool; connects on first use."""
        await self._http.start()

    async def send(
        self, request: Request, body: Mapping[str, JSON], headers: Mapping[str, str]
    ) -> UpstreamResponse:
        """POST ``body`` to ``/messages``; see ``ports.Upstream.send``."""
        sent = {**headers, "content-type": "application/json"}
        return await self.forward("POST", "/messages", "", msgspec.json.encode(body), sent)

    async def forward(
        self, method: str, path: str, query: str, body: bytes, headers: Mapping[str, str]
    ) -> UpstreamResponse:
        """Pass ``path`` (below ``/v1``) through, with the credential as this API wants it."""
        return await self._http.forward(method, path, query, body, self._outgoing(headers))

    async def ready(self) -> bool:
        """See ``ports.Upstream.ready``."""
        return await self._http.ready()

    async def close(self) -> None:
        """Close the pool. Idempotent."""
        await self._http.close()

    def _outgoing(self, headers: Mapping[str, str]) -> dict[str, str]:
        lower = {name.lower(): value for name, value in headers.items()}
        sent = {name: value for name, value in lower.items() if name not in _CREDENTIALS}
        sent.setdefault("anthropic-version", API_VERSION)
        if self._key is not None:
            sent["x-api-key"] = self._key
        elif (own := lower.get("authorization", "")).startswith(API_KEY_SCHEME):
            sent["x-api-key"] = own.removeprefix(API_KEY_SCHEME)
        elif own:
            sent["authorization"] = own
        return sent


def versioned(base_url: str) -> str:
    """``base_url`` up to and including ``/v1``: Anthropic's own clients are given it without."""
    bare = base_url.rstrip("/")
    return bare if bare.endswith("/v1") else f"{bare}/v1"
