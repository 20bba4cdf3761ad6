"""The endpoints of models: prepare, serve, and say the answer in the client's dialect, as JSON or as a stream."""

from __future__ import annotations

import msgspec

from stratacache.dialects.base import Voice
from stratacache.dialects.clients import CLIENTS, error_words
from stratacache.errors import StrataError, UpstreamError
from stratacache.gateway.headers import decision_headers, passed_on
from stratacache.gateway.http import (
    JSON_TYPE,
    SSE_HEADERS,
    ASGIScope,
    RawHeaders,
    Receive,
    Send,
    hang_up_cancels,
    read_body,
    send_body,
    send_error,
)
from stratacache.gateway.prepare import Prepared, Preparer
from stratacache.pipeline.flight import Flight
from stratacache.pipeline.serve import Answered, Boarded, NotAdmitted, NotCached, Pipeline, Settled
from stratacache.ports import Clock
from stratacache.types import Request


class AnswerEndpoint:
    """Serves the requests to one endpoint. ``max_body`` bounds the request body in bytes."""

    def __init__(
        self, endpoint: str, preparer: Preparer, pipeline: Pipeline, clock: Clock, *, max_body: int
    ) -> None:
        self._endpoint = endpoint
        self._words = error_words(CLIENTS[endpoint].path)
        self._preparer = preparer
        self._pipeline = pipeline
        self._clock = clock
        self._max_body = max_body

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        body = await read_body(receive, self._max_body)
        started = self._clock.monotonic()
        prepared = await self._preparer.prepare(scope["headers"], body, self._endpoint)
        key_stage = ("key", self._clock.monotonic() - started)
        try:
            served = await self._pipeline.serve(prepared.request, prepared.key, prepared.plan, (key_stage,))
        except (NotCached, NotAdmitted) as refusal:
            await self._refuse(send, refusal, decision_headers(refusal.decision))
            return
        if isinstance(served, Answered):
            await self._send_entry(send, prepared, served)
            return
        async with hang_up_cancels(receive):
            await self._send_call(send, prepared, served)

    async def _refuse(self, send: Send, error: StrataError, headers: RawHeaders) -> None:
        await send_error(send, error, headers, self._words)

    async def _send_call(self, send: Send, prepared: Prepared, boarded: Boarded) -> None:
        request = prepared.request
        settled = await self._pipeline.settle(request, prepared.key, boarded)
        if isinstance(settled, Answered):
            await self._send_entry(send, prepared, settled)
            return
        try:
            headers = decision_headers(settled.decision)
            if settled.failure is not None:
                await self._refuse(send, settled.failure, headers)
            elif request.stream:
                await self._send_stream(send, prepared, settled, headers)
            else:
                await self._send_landing(send, prepared.voice, settled.seat.flight, headers)
        finally:
            self._pipeline.leave(settled)

    async def _send_entry(self, send: Send, prepared: Prepared, answered: Answered) -> None:
        headers = decision_headers(answered.decision)
        entry, request, voice = answered.entry, prepared.request, prepared.voice
        try:
            if request.stream and entry.status == 200:
                answer = msgspec.json.decode(entry.body)
                replayed = voice.stream(answer, entry.created_at, include_usage=request.include_usage)
                await send_body(send, 200, [*SSE_HEADERS, *headers], replayed)
            else:
                body = voice.body(entry.body, entry.created_at, status=entry.status)
                await send_body(send, entry.status, [JSON_TYPE, *headers], body)
        except UpstreamError as failure:
            await self._refuse(send, failure, headers)

    async def _send_landing(self, send: Send, voice: Voice, flight: Flight, headers: RawHeaders) -> None:
        """The whole body; the flight has landed, whatever form the upstream chose."""
        head, landing = flight.head, flight.landing
        assert head is not None
        assert landing is not None
        if head.streaming and landing.answer is None:
            unfinished = UpstreamError(
                "the upstream's stream ended before the answer did", code="upstream_cut"
            )
            await self._refuse(send, unfinished, headers)
            return
        kind = JSON_TYPE if head.streaming else (b"content-type", _content_type(flight))
        try:
            # What is not even JSON is passed on as it is: a proxy's page, say.
            body = landing.body
            if landing.answer is not None:
                body = voice.body(body, self._clock.now(), status=head.status)
        except UpstreamError as failure:
            await self._refuse(send, failure, headers)
            return
        await send_body(send, head.status, [kind, *passed_on(head.headers), *headers], body)

    async def _send_stream(
        self, send: Send, prepared: Prepared, settled: Settled, headers: RawHeaders
    ) -> None:
        """For a client that streams; live when the upstream streams, replayed when it answered in one body."""
        flight, request = settled.seat.flight, prepared.request
        assert flight.head is not None
        if flight.head.streaming:
            await self._send_live(send, request, prepared.voice, flight, headers)
            return
        landing, head, voice = flight.landing, flight.head, prepared.voice
        assert landing is not None
        if head.status != 200 or not voice.can_stream(landing.answer):
            await self._send_landing(send, voice, flight, headers)
            return
        try:
            now = self._clock.now()
            replayed = voice.stream(landing.answer, now, include_usage=request.include_usage)
        except UpstreamError as failure:
            await self._refuse(send, failure, headers)
            return
        await send_body(send, 200, [*SSE_HEADERS, *passed_on(head.headers), *headers], replayed)

    async def _send_live(
        self, send: Send, request: Request, voice: Voice, flight: Flight, headers: RawHeaders
    ) -> None:
        assert flight.head is not None
        start = [*SSE_HEADERS, *passed_on(flight.head.headers), *headers]
        await send({"type": "http.response.start", "status": 200, "headers": start})
        live = voice.live(self._clock.now(), include_usage=request.include_usage)
        last = b""
        try:
            async for batch in flight.listen():
                data = live.take(batch)
                if data:
                    await send({"type": "http.response.body", "body": data, "more_body": True})
            if flight.landing is not None and flight.landing.done:
                last = live.end()
        except UpstreamError as failure:
            last = voice.failure(failure)
        await send({"type": "http.response.body", "body": last})


def _content_type(flight: Flight) -> bytes:
    assert flight.head is not None
    return dict(flight.head.headers).get("content-type", "application/json").encode("latin-1", "replace")
