"""``POST /v1/messages/count_tokens``: passed through to the upstream that serves the model, never cached."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from stratacache.dialects import anthropic_messages, wire
from stratacache.errors import RequestError, UpstreamError
from stratacache.gateway.auth import Authenticator
from stratacache.gateway.headers import passed_on
from stratacache.gateway.http import (
    JSON_TYPE,
    ASGIScope,
    Receive,
    Send,
    hang_up_cancels,
    read_body,
    send_body,
    send_error,
)
from stratacache.gateway.passthrough import relayed
from stratacache.gateway.prepare import ANSWER_HEADERS, Preparer, join_headers
from stratacache.policy.fields import MESSAGES
from stratacache.ports import Recorder, Upstream
from stratacache.upstream.router import Router

PATH = "/v1/messages/count_tokens"


class CountTokens:
    """Relays requests for the number of tokens; an alias of a model is resolved.

    Args:
        speaks: the upstreams that have such an endpoint.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        preparer: Preparer,
        router: Router,
        upstreams: Mapping[str, Upstream],
        speaks: Collection[str],
        recorder: Recorder,
        *,
        max_body: int,
    ) -> None:
        self._authenticator = authenticator
        self._preparer = preparer
        self._router = router
        self._upstreams = upstreams
        self._speaks = speaks
        self._recorder = recorder
        self._max_body = max_body

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        headers = join_headers(scope["headers"])
        caller = self._authenticator.identify(headers, "chat")
        body = wire.decode_body(await read_body(receive, self._max_body))
        route = self._router.resolve(anthropic_messages.parse(body, counting=True).model)
        if route.upstream not in self._speaks:
            raise RequestError(
                f"the upstream {route.upstream!r}, which serves this model, counts no tokens",
                status=404,
                param="model",
                code="not_found",
            )
        sent = {name: headers[name] for name in ANSWER_HEADERS[MESSAGES] if name in headers}
        credential = self._preparer.forwarded_credential(headers, route.upstream)
        sent |= {"authorization": str(credential)} if credential else {}
        sent["content-type"] = "application/json"
        asked = wire.encode({**body, "model": route.model})
        async with hang_up_cancels(receive):
            reason = await self._relay(send, route.upstream, asked, sent)
            told = relayed("messages.count_tokens", route.model, caller.tenant, route.upstream, reason)
            self._recorder.decided(told)

    async def _relay(self, send: Send, upstream: str, body: bytes, headers: Mapping[str, str]) -> str:
        """The reason word for what happened."""
        try:
            response = await self._upstreams[upstream].forward(
                "POST", "/messages/count_tokens", "", body, headers
            )
            try:
                counted = await response.read()
            finally:
                await response.close()
        except UpstreamError as failure:
            await send_error(send, failure, words=anthropic_messages.error_body)
            return failure.code
        passed = passed_on(response.headers.items())
        await send_body(send, response.status, [JSON_TYPE, *passed], counted)
        return "passthrough"
