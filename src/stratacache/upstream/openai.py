"""An OpenAI-compatible server over HTTP: pooled connections, a time limit for each stage, errors without secrets."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Mapping
from types import SimpleNamespace
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import aiohttp
import msgspec
from yarl import URL

from stratacache.errors import RequestError, UpstreamError
from stratacache.policy.fields import CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES
from stratacache.settings import OpenAISettings
from stratacache.types import JSON, Request
from stratacache.upstream.headers import incoming, outgoing

_PATHS = {
    CHAT: "/chat/completions",
    COMPLETIONS: "/completions",
    RESPONSES: "/responses",
    EMBEDDINGS: "/embeddings",
}
_KEEP_ALIVE = 30.0  # seconds that an idle connection is kept
_PROBE_TIMEOUT = 2.0
_MAX_ATTEMPTS = 3
MAX_ANSWER = 64 << 20
"""Bytes of an answer that is read as a whole; a small one that is compressed may unfold to fill all memory."""
# A segment that steps out of the base URL's path, also percent-encoded, once or more often, and with a parameter,
# which Java servers cut off before they look at the dots.
_SLASH = re.compile(r"/|\\|%(?:25)*(?:2f|5c)", re.IGNORECASE)
_DOTS = re.compile(r"(?:\.|%(?:25)*2e){1,2}(?:(?:;|%(?:25)*3b).*)?", re.IGNORECASE | re.DOTALL)
_URL_SAFE = "/%:@!$&'()*+,;=~"


class HttpResponse:
    """A ``ports.UpstreamResponse`` on an aiohttp response."""

    def __init__(
        self, response: aiohttp.ClientResponse, upstream: str, idle_timeout: float, deadline: float
    ) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = incoming(response.headers)
        self._response = response
        self._upstream = upstream
        self._idle = idle_timeout
        self._deadline = deadline

    async def read(self) -> bytes:
        """The whole body; raises UpstreamError when it breaks off, takes too long or exceeds ``MAX_ANSWER``."""
        parts = []
        size = 0
        async for chunk in self.chunks():
            size += len(chunk)
            if size > MAX_ANSWER:
                message = f"the upstream {self._upstream!r} sent an answer of more than {MAX_ANSWER} bytes"
                raise UpstreamError(message, code="upstream_malformed")
            parts.append(chunk)
        return b"".join(parts)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Body bytes as they arrive; raises UpstreamError when the body breaks off or falls silent."""
        while True:
            chunk = await self._next()
            if not chunk:
                return
            yield chunk

    async def close(self) -> None:
        """Free the connection: it is closed unless the body has come to its end. Idempotent."""
        self._response.close()

    async def _next(self) -> bytes:
        now = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout_at(min(now() + self._idle, self._deadline)):
                return await self._response.content.readany()
        except TimeoutError as error:
            what = "took too long to finish" if now() >= self._deadline else "fell silent in"
            message = f"the upstream {self._upstream!r} {what} an answer"
            raise UpstreamError(message, status=504, code="upstream_timeout") from error
        except (aiohttp.ClientError, OSError, RuntimeError) as error:
            # RuntimeError is what aiohttp's reader raises when the connection was closed on our side.
            message = f"the upstream {self._upstream!r} broke off in the middle of an answer"
            raise UpstreamError(message, status=502, code="upstream_cut") from error


class OpenAIUpstream:
    """A ``ports.Upstream`` for any server that speaks the OpenAI API.

    Args:
        settings: base URL and time limits.
        api_key: sent as a bearer token. Without it the base URL's user-info is sent as Basic; without that
            the caller's own credential is passed on.
    """

    def __init__(self, settings: OpenAISettings, api_key: str | None = None) -> None:
        self.name = settings.name
        self._settings = settings
        self._base, basic = _split_user_info(settings.base_url)
        credential = f"Bearer {api_key}" if api_key is not None else basic
        self.forwards_credentials = credential is None
        # Identity: compression would hold back the chunks of a stream.
        self._own = {"accept-encoding": "identity"}
        if credential is not None:
            self._own["authorization"] = credential
        self._first_byte = min(settings.first_byte_timeout or settings.timeout, settings.timeout)
        self._session: aiohttp.ClientSession | None = None
        self._closed = False
        self._reachable = True

    async def start(self) -> None:
        """Open the pool; connects on first use."""
        self._pool()

    async def send(
        self, request: Request, body: Mapping[str, JSON], headers: Mapping[str, str]
    ) -> HttpResponse:
        """POST ``body`` as JSON to the endpoint's path; see ``ports.Upstream.send``."""
        own = {**self._own, "content-type": "application/json"}
        return await self._call("POST", _PATHS[request.endpoint], msgspec.json.encode(body), headers, own)

    async def forward(
        self, method: str, path: str, query: str, body: bytes, headers: Mapping[str, str]
    ) -> HttpResponse:
        """Pass ``path`` (below ``/v1``, percent-encoded as it came) through; see ``ports.Upstream.forward``.

        Raises RequestError 400 for a path with ``.`` or ``..`` segments: it could leave the base URL.
        """
        if any(_DOTS.fullmatch(segment) for segment in _SLASH.split(path)):
            raise RequestError("the path must not contain '.' or '..' segments", code="invalid_path")
        target = quote(path, safe=_URL_SAFE)
        if query:
            target += "?" + quote(query, safe=_URL_SAFE + "?")
        return await self._call(method, target, body, headers, self._own)

    async def ready(self) -> bool:
        """False after a call could not connect, until a call or this probe of ``/models`` can again."""
        if self._closed or self._reachable:
            return not self._closed
        try:
            async with asyncio.timeout(_PROBE_TIMEOUT):
                response = await self.forward("GET", "/models", "", b"", {})
                await response.close()
        except (TimeoutError, UpstreamError):
            return False
        return True

    async def close(self) -> None:
        """Close the pool; calls in flight break off. Idempotent."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _pool(self) -> aiohttp.ClientSession:
        if self._closed:
            raise UpstreamError(f"the upstream {self.name!r} is closed", status=503)
        if self._session is None:
            # No limit of connections: a wait for a free one would count as a slow connect, and the number of
            # calls is already bounded by the number of clients.
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE)
            limits = aiohttp.ClientTimeout(total=None, connect=self._settings.connect_timeout)
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=limits,
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                trace_configs=[_reuse_trace()],
            )
        return self._session

    async def _call(
        self, method: str, target: str, body: bytes, headers: Mapping[str, str], own: Mapping[str, str]
    ) -> HttpResponse:
        sent = outgoing(headers, own=own, credentials=self.forwards_credentials)
        url = URL(self._base + target, encoded=True)
        now = asyncio.get_running_loop().time()
        deadline = now + self._settings.timeout
        try:
            async with asyncio.timeout_at(now + self._first_byte):
                response = await self._connect_and_send(method, url, body, sent)
        except TimeoutError as error:
            raise self._timed_out(error) from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._failed(error) from error
        self._reachable = True
        return HttpResponse(response, self.name, self._settings.idle_timeout, deadline)

    async def _connect_and_send(
        self, method: str, url: URL, body: bytes, headers: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        """One call; again on a fresh connection when a kept one turns out to have been closed meanwhile."""
        for attempt in range(_MAX_ATTEMPTS):
            used = SimpleNamespace(reused=False)
            try:
                return await self._pool().request(
                    method,
                    url,
                    data=body or None,
                    headers=headers,
                    allow_redirects=False,
                    trace_request_ctx=used,
                )
            except (aiohttp.ServerDisconnectedError, ConnectionResetError):
                # On a kept connection: the server closed it for idleness as we used it, and has not seen the
                # request. On a fresh one it may have, and a model call is not repeated unasked.
                if not used.reused or attempt == _MAX_ATTEMPTS - 1:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _timed_out(self, error: TimeoutError) -> UpstreamError:
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            self._reachable = False
            what = f"did not accept a connection within {self._settings.connect_timeout:g} s"
        else:
            what = f"did not begin an answer within {self._first_byte:g} s"
        return UpstreamError(f"the upstream {self.name!r} {what}", status=504, code="upstream_timeout")

    def _failed(self, error: aiohttp.ClientError | OSError) -> UpstreamError:
        if isinstance(error, aiohttp.ClientConnectorError):
            self._reachable = False
            reason = error.strerror or type(error).__name__
            return UpstreamError(f"the upstream {self.name!r} cannot be reached: {reason}")
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            self._reachable = False
            return UpstreamError(f"the upstream {self.name!r} has no valid TLS certificate")
        if isinstance(error, aiohttp.ClientResponseError):
            what = "sent something that is no HTTP response"
        else:
            what = "closed the connection before it answered"
        return UpstreamError(f"the upstream {self.name!r} {what}", status=502, code="upstream_cut")


def _reuse_trace() -> aiohttp.TraceConfig:
    """Notes on a call's ``trace_request_ctx`` whether it got a connection that had been used before."""

    async def reused(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
        context.trace_request_ctx.reused = True

    trace = aiohttp.TraceConfig()
    trace.on_connection_reuseconn.append(reused)
    return trace


def _split_user_info(base_url: str) -> tuple[str, str | None]:
    """The URL without user-info and slash at its end, and the Basic credential that the user-info makes."""
    parts = urlsplit(base_url)
    user_info, at, host = parts.netloc.rpartition("@")
    bare = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
    if not at:
        return bare, None
    user, _, password = user_info.partition(":")
    pair = f"{unquote(user)}:{unquote(password)}".encode()
    return bare, "Basic " + base64.b64encode(pair).decode("ascii")
