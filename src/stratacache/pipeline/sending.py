"""Sends a request to its upstream, with what the gateway adds to it; what a server refuses it for is left out again."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stratacache.dialects.table import answers_of
from stratacache.pipeline.siblings import Siblings, Ticket
from stratacache.ports import Upstream, UpstreamResponse
from stratacache.tiers.prefixes import Prefixes, said
from stratacache.tiers.prompt import Prepared, PromptTier
from stratacache.types import JSON, Request, Usage

_REFUSALS = (400, 422)


class Sent(msgspec.Struct, frozen=True):
    """The ``response``, and what the prompt tier did to the request that it answers; None without that tier.

    ``ticket``: who waits for this call, if anybody may. ``divergence``: where its prompt parts from the one before it,
    as a header says it, "" where it does not.
    """

    response: UpstreamResponse
    prepared: Prepared | None
    ticket: Ticket | None = None
    divergence: str = ""

    def began(self) -> None:
        """The first token of the answer is here. Idempotent."""
        if self.ticket is not None and self.response.status == 200:
            self.ticket.began()

    async def close(self) -> None:
        """Give back what the call holds. Idempotent."""
        if self.ticket is not None:
            self.ticket.close()
        await self.response.close()


class Sender:
    """Sends requests.

    Args:
        upstreams: by name, as ``Request.upstream`` names them.
        prompt: marks prefixes for the provider's prompt cache; None when that tier is off.
        prefixes: keeps them stable and follows them; None when that tier is off.
        siblings: waits for calls that write the same prefix.
    """

    def __init__(
        self,
        upstreams: Mapping[str, Upstream],
        prompt: PromptTier | None,
        prefixes: Prefixes | None,
        siblings: Siblings,
    ) -> None:
        self._upstreams = upstreams
        self._prompt = prompt
        self._prefixes = prefixes
        self._siblings = siblings
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
        own = answers.upstream_body(request.body, request.resolved_model, ask_usage=ask_usage)
        body = self._prefixes.steady(request, own) if self._prefixes is not None else own
        prepared = self._prompt.prepare(request, body) if self._prompt is not None else None
        divergence = self._follow(request, body, prepared)
        ticket = await self._board(prepared)
        try:
            response = await self._post(request, prepared.body if prepared is not None else body)
            marked = prepared is not None and prepared.changed
            if (marked or body is not own) and response.status in _REFUSALS:
                response = await self._again(request, own, response)
                if self._prompt is not None and prepared is not None and marked and response.status == 200:
                    self._prompt.refused(request, prepared)
                prepared = None
            if ask_usage and response.status in _REFUSALS:
                plain = answers.upstream_body(request.body, request.resolved_model, ask_usage=False)
                response = await self._again(request, plain, response)
                if response.status == 200:
                    self._refuse_stream_options.add(request.upstream)
        except BaseException:
            if ticket is not None:
                ticket.close()
            raise
        return Sent(response, prepared, ticket, divergence)

    def _follow(self, request: Request, body: dict[str, JSON], prepared: Prepared | None) -> str:
        if self._prefixes is None:
            return ""
        segments = prepared.made.segments if prepared is not None and prepared.made is not None else None
        found = self._prefixes.follow(request, body, segments)
        return said(found) if found is not None else ""

    async def _board(self, prepared: Prepared | None) -> Ticket | None:
        if self._prompt is None or prepared is None or not prepared.plan.marks:
            return None
        return await self._siblings.board(self._prompt.unwritten(prepared))

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
        steady = self._prefixes.steady(request, body) if self._prefixes is not None else body
        return self._prompt.explain(request, steady)

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
