"""Unknown paths under ``/v1``: relayed to the upstream that serves the named model, unchanged and uncached."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec

from stratacache.errors import RequestError, UpstreamError
from stratacache.gateway.auth import Authenticator
from stratacache.gateway.http import (
    ASGIScope,
    RawHeaders,
    Receive,
    Send,
    hang_up_cancels,
    read_body,
    send_error,
)
from stratacache.gateway.prepare import Preparer, join_headers
from stratacache.ports import ANSWERED_BY, Upstream, UpstreamResponse
from stratacache.upstream.router import Router

log = logging.getLogger(__name__)


def _headers(upstream: str, reason: str = "passthrough") -> RawHeaders:
    return [
        (b"x-strata-cache", b"bypass"),
        (b"x-strata-tier", b"none"),
        (b"x-strata-reason", reason.encode()),
        (b"x-strata-upstream", upstream.encode()),
    ]


class _Named(msgspec.Struct):
    model: str = ""


class Passthrough:
    """Relays requests. Which upstream: the one for the body's ``model``, else the first configured."""

    def __init__(
        self,
        authenticator: Authenticator,
        preparer: Preparer,
        router: Router,
        upstreams: Mapping[str, Upstream],
        *,
        max_body: int,
    ) -> None:
        self._authenticator = authenticator
        self._preparer = preparer
        self._router = router
        self._upstreams = upstreams
        self._max_body = max_body

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        headers = join_headers(scope["headers"])
        self._authenticator.identify(headers, "chat")
        body = await read_body(receive, self._max_body)
        name = self._upstream_for(body)
        credential = self._preparer.forwarded_credential(headers, name)
        forwarded = {n: v for n, v in headers.items() if n not in ("authorization", "x-api-key")}
        if credential:
            forwarded["authorization"] = str(credential)
        path = _below_v1(scope)
        query = scope["query_string"].decode("latin-1")
        async with hang_up_cancels(receive):
            try:
                response = await self._upstreams[name].forward(scope["method"], path, query, body, forwarded)
            except UpstreamError as failure:
                await send_error(send, failure, _headers(name, failure.code))
                return
            try:
                await _relay(send, response, _headers(response.headers.get(ANSWERED_BY, name)))
            finally:
                await response.close()

    def _upstream_for(self, body: bytes) -> str:
        try:
            named = msgspec.json.decode(body, type=_Named)
            return self._router.resolve(named.model).upstream
        except (msgspec.DecodeError, RecursionError, RequestError):
            return next(iter(self._upstreams))


def _below_v1(scope: ASGIScope) -> str:
    """The path below ``/v1`` as it came, percent-encoded; it always starts with a slash."""
    path: str = scope["raw_path"].decode("latin-1")
    if not path.startswith("/v1/"):
        # "/v1%2F@host/": without its slash the rest would run into the upstream's address and change its host.
        raise RequestError("the path must start with '/v1/', written plainly", status=404, code="not_found")
    return path.removeprefix("/v1")


async def _relay(send: Send, response: UpstreamResponse, extra: RawHeaders) -> None:
    passed = [
        (n.encode("latin-1"), v.encode("latin-1", "replace"))
        for n, v in response.headers.items()
        if n != ANSWERED_BY
    ]
    await send({"type": "http.response.start", "status": response.status, "headers": [*passed, *extra]})
    try:
        async for data in response.chunks():
            await send({"type": "http.response.body", "body": data, "more_body": True})
    except UpstreamError as failure:
        # Without a last message the server closes the connection early: the client sees the same break.
        log.warning("a relayed answer broke off: %s", failure)
        return
    await send({"type": "http.response.body", "body": b""})
