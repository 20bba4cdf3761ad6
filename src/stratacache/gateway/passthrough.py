"""Unknown paths under ``/v1``: relayed to the upstream that serves the named model, unchanged and uncached."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec

from stratacache.dialects.usage import usage_of
from stratacache.dialects.wire import decode_answer
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
from stratacache.ports import ANSWERED_BY, Clock, Recorder, Upstream, UpstreamResponse
from stratacache.types import Call, Decision, Usage
from stratacache.upstream.router import Router

log = logging.getLogger(__name__)

ENDPOINT = "passthrough"
MAX_COUNTED = 1 << 20
"""Bytes of an answer that is looked into for its usage."""


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
        recorder: Recorder,
        clock: Clock,
        *,
        max_body: int,
    ) -> None:
        self._recorder = recorder
        self._clock = clock
        self._authenticator = authenticator
        self._preparer = preparer
        self._router = router
        self._upstreams = upstreams
        self._max_body = max_body

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        headers = join_headers(scope["headers"])
        caller = self._authenticator.identify(headers, "chat")
        body = await read_body(receive, self._max_body)
        name, model = self._upstream_for(body)
        credential = self._preparer.forwarded_credential(headers, name)
        forwarded = {n: v for n, v in headers.items() if n not in ("authorization", "x-api-key")}
        if credential:
            forwarded["authorization"] = str(credential)
        path = _below_v1(scope)
        query = scope["query_string"].decode("latin-1")
        async with hang_up_cancels(receive):
            started = self._clock.monotonic()
            try:
                response = await self._upstreams[name].forward(scope["method"], path, query, body, forwarded)
            except UpstreamError as failure:
                self._recorder.decided(relayed(ENDPOINT, model, caller.tenant, name, failure.code))
                await send_error(send, failure, _headers(name, failure.code))
                return
            answered_by = response.headers.get(ANSWERED_BY, name)
            self._recorder.decided(relayed(ENDPOINT, model, caller.tenant, answered_by))
            try:
                answer = await _relay(send, response, _headers(answered_by))
            finally:
                await response.close()
            if model and answer is not None:
                seconds = self._clock.monotonic() - started
                usage, status = _usage(answer), response.status
                self._recorder.called(
                    Call(name, model, usage, caller.tenant, "answer", ENDPOINT, status, seconds)
                )

    def _upstream_for(self, body: bytes) -> tuple[str, str]:
        """The upstream, and the model as it is called there; "" when the body names none that is served."""
        try:
            named = msgspec.json.decode(body, type=_Named)
            route = self._router.resolve(named.model)
        except (msgspec.DecodeError, RecursionError, RequestError):
            return next(iter(self._upstreams)), ""
        return route.upstream, route.model


def relayed(endpoint: str, model: str, tenant: str, upstream: str, reason: str = "passthrough") -> Decision:
    """A request that was passed on as it came."""
    return Decision(endpoint, model or "none", "none", "bypass", reason, upstream=upstream, tenant=tenant)


def _below_v1(scope: ASGIScope) -> str:
    """The path below ``/v1`` as it came, percent-encoded; it always starts with a slash."""
    path: str = scope["raw_path"].decode("latin-1")
    if not path.startswith("/v1/"):
        # "/v1%2F@host/": without its slash the rest would run into the upstream's address and change its host.
        raise RequestError("the path must start with '/v1/', written plainly", status=404, code="not_found")
    return path.removeprefix("/v1")


async def _relay(send: Send, response: UpstreamResponse, extra: RawHeaders) -> bytes | None:
    """The answer's body, b"" where it is too long to be looked into; None when it broke off."""
    passed = [
        (n.encode("latin-1"), v.encode("latin-1", "replace"))
        for n, v in response.headers.items()
        if n != ANSWERED_BY
    ]
    await send({"type": "http.response.start", "status": response.status, "headers": [*passed, *extra]})
    kept, size = [], 0
    try:
        async for data in response.chunks():
            size += len(data)
            if size <= MAX_COUNTED:
                kept.append(data)
            await send({"type": "http.response.body", "body": data, "more_body": True})
    except UpstreamError as failure:
        # Without a last message the server closes the connection early: the client sees the same break.
        log.warning("a relayed answer broke off: %s", failure)
        return None
    await send({"type": "http.response.body", "body": b""})
    return b"".join(kept) if size <= MAX_COUNTED else b""


def _usage(answer: bytes) -> Usage:
    told = decode_answer(answer)
    return usage_of(told) if isinstance(told, dict) else Usage()
