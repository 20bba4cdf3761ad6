"""``POST /v1/chat/completions``: prepare, serve, and say the answer as the client wants it, JSON or stream."""

from __future__ import annotations

import msgspec

from stratacache.dialects import openai_chat, sse
from stratacache.errors import UpstreamError
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
from stratacache.pipeline.flight import Flight, Landing
from stratacache.pipeline.serve import Answered, Boarded, NotAdmitted, NotCached, Pipeline, Settled
from stratacache.ports import Clock
from stratacache.types import JSON, Request


class ChatEndpoint:
    """Serves chat requests. ``max_body`` bounds the request body in bytes."""

    def __init__(self, preparer: Preparer, pipeline: Pipeline, clock: Clock, *, max_body: int) -> None:
        self._preparer = preparer
        self._pipeline = pipeline
        self._clock = clock
        self._max_body = max_body

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        body = await read_body(receive, self._max_body)
        started = self._clock.monotonic()
        prepared = await self._preparer.prepare(scope["headers"], body)
        key_stage = ("key", self._clock.monotonic() - started)
        try:
            served = await self._pipeline.serve(prepared.request, prepared.key, prepared.plan, (key_stage,))
        except (NotCached, NotAdmitted) as refusal:
            await send_error(send, refusal, decision_headers(refusal.decision))
            return
        if isinstance(served, Answered):
            await _send_entry(send, prepared.request, served)
            return
        async with hang_up_cancels(receive):
            await self._send_call(send, prepared, served)

    async def _send_call(self, send: Send, prepared: Prepared, boarded: Boarded) -> None:
        request = prepared.request
        settled = await self._pipeline.settle(request, prepared.key, boarded)
        if isinstance(settled, Answered):
            await _send_entry(send, request, settled)
            return
        try:
            headers = decision_headers(settled.decision)
            if settled.failure is not None:
                await send_error(send, settled.failure, headers)
            elif request.stream:
                await _send_stream(send, request, settled, headers)
            else:
                await _send_json(send, settled.seat.flight, headers)
        finally:
            self._pipeline.leave(settled)


async def _send_entry(send: Send, request: Request, answered: Answered) -> None:
    headers = decision_headers(answered.decision)
    entry = answered.entry
    if request.stream and entry.status == 200:
        replayed = replay_stream(msgspec.json.decode(entry.body), include_usage=request.include_usage)
        await send_body(send, 200, [*SSE_HEADERS, *headers], replayed)
    else:
        await send_body(send, entry.status, [JSON_TYPE, *headers], entry.body)


def replay_stream(answer: JSON, *, include_usage: bool) -> bytes:
    """A stored answer as the bytes of a whole stream."""
    return sse.encode_stream(openai_chat.replay(answer, include_usage=include_usage))


async def _send_json(send: Send, flight: Flight, headers: RawHeaders) -> None:
    """For a client that does not stream; the flight has landed, whatever form the upstream chose."""
    head, landing = flight.head, flight.landing
    assert head is not None
    assert landing is not None
    if head.streaming and landing.answer is None:
        unfinished = UpstreamError("the upstream's stream ended before the answer did", code="upstream_cut")
        await send_error(send, unfinished, headers)
        return
    kind = JSON_TYPE if head.streaming else (b"content-type", _content_type(flight))
    await send_body(send, head.status, [kind, *passed_on(head.headers), *headers], landing.body)


async def _send_stream(send: Send, request: Request, settled: Settled, headers: RawHeaders) -> None:
    """For a client that streams; live when the upstream streams, replayed when it answered in one body."""
    flight = settled.seat.flight
    assert flight.head is not None
    if not flight.head.streaming:
        await _send_landing_as_stream(send, request, flight, flight.landing, headers)
        return
    start = [*SSE_HEADERS, *passed_on(flight.head.headers), *headers]
    await send({"type": "http.response.start", "status": 200, "headers": start})
    last = b""
    try:
        async for batch in flight.listen():
            payloads = [chunk.payload if request.include_usage else chunk.bare for chunk in batch]
            data = b"".join([sse.encode(payload) for payload in payloads if payload is not None])
            if data:
                await send({"type": "http.response.body", "body": data, "more_body": True})
        if flight.landing is not None and flight.landing.done:
            last = sse.encode(sse.DONE)
    except UpstreamError as failure:
        # The status is sent already; SDKs raise on an error event, and the missing [DONE] tells the rest.
        last = sse.encode(openai_chat.error_body(failure))
    await send({"type": "http.response.body", "body": last})


async def _send_landing_as_stream(
    send: Send, request: Request, flight: Flight, landing: Landing | None, headers: RawHeaders
) -> None:
    head = flight.head
    assert head is not None
    assert landing is not None
    if head.status != 200 or not _has_chunks(landing.answer):
        kind = (b"content-type", _content_type(flight))
        await send_body(send, head.status, [kind, *passed_on(head.headers), *headers], landing.body)
        return
    replayed = replay_stream(landing.answer, include_usage=request.include_usage)
    await send_body(send, 200, [*SSE_HEADERS, *passed_on(head.headers), *headers], replayed)


def _has_chunks(answer: JSON) -> bool:
    """Whether ``answer`` can be cut into chunks, though it need not be fit for the store: cut short, say."""
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        return False
    ended = {**answer, "choices": [{**choice, "finish_reason": "stop"} for choice in choices]}
    return openai_chat.completeness(ended) in (None, "refused", "empty")


def _content_type(flight: Flight) -> bytes:
    assert flight.head is not None
    return dict(flight.head.headers).get("content-type", "application/json").encode("latin-1", "replace")
