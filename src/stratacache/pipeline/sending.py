"""Sends a request to its upstream, with what the gateway adds to it; what a server refuses it for is left out again."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stratacache.dialects.table import answers_of
from stratacache.ports import Upstream, UpstreamResponse
from stratacache.tiers.prompt import Prepared, PromptTier
from stratacache.types import JSON, Request, Usage

_REFUSALS = (400, 422)


class Sent(msgspec.Struct, frozen=True):
    """The ``response``, and what the prompt tier did to the request that it answers; None without that tier."""

    response: UpstreamResponse
    prepared: Prepared | None


class Sender:
    """Sends requests.

    Args:
        upstreams: by name, as ``Request.upstream`` names them.
        prompt: marks prefixes for the provider's prompt cache; None when that tier is off.
    """

    def __init__(self, upstreams: Mapping[str, Upstream], prompt: PromptTier | None) -> None:
        self._upstreams = upstreams
        self._prompt = prompt
        self._refuse_stream_options: set[str] = set()

    async def send(self, request: Request, *, for_others: bool) -> Sent:
        """Send; usage is asked of a stream that others may see, unless this upstream refuses the option.

        Not every server takes what the gateway adds; an error that the client's own request would not have met must not
        reach it, so what may have been refused goes again with less, and at last as the client wrote it.
        """
        answers = answers_of(request.endpoint)
        ask_usage = (
            request.stream
            and answers.USAGE_ON_REQUEST
            and for_others
            and not request.include_usage
            and request.upstream not in self._refuse_stream_options
        )
        body = answers.upstream_body(request.body, request.resolved_model, ask_usage=ask_usage)
        prepared = self._prompt.prepare(request, body) if self._prompt is not None else None
        response = await self._post(request, prepared.body if prepared is not None else body)
        changed = prepared is not None and prepared.changed
        if self._prompt is not None and prepared is not None and changed and response.status in _REFUSALS:
            response = await self._again(request, body, response)
            if response.status == 200:
                self._prompt.refused(request, prepared)
            prepared = None
        if ask_usage and response.status in _REFUSALS:
            plain = answers.upstream_body(request.body, request.resolved_model, ask_usage=False)
            response = await self._again(request, plain, response)
            if response.status == 200:
                self._refuse_stream_options.add(request.upstream)
        return Sent(response, prepared)

    def settle(self, sent: Sent, usage: Usage) -> None:
        """The answer is there, with its ``usage``."""
        if self._prompt is not None and sent.prepared is not None:
            self._prompt.settle(sent.prepared, sent.response.status, usage)

    def explain(self, request: Request) -> dict[str, JSON]:
        """What would be done for the provider's prompt cache, as JSON."""
        if self._prompt is None:
            return {"outcome": "bypass", "reason": "tier_off"}
        answers = answers_of(request.endpoint)
        body = answers.upstream_body(request.body, request.resolved_model, ask_usage=False)
        return self._prompt.explain(request, body)

    async def _again(
        self, request: Request, body: Mapping[str, JSON], refused: UpstreamResponse
    ) -> UpstreamResponse:
        await refused.close()
        return await self._post(request, body)

    async def _post(self, request: Request, body: Mapping[str, JSON]) -> UpstreamResponse:
        headers = dict(request.headers)
        if request.credential:
            headers["authorization"] = str(request.credential)
        return await self._upstreams[request.upstream].send(request, body, headers)
