"""The upstream call of a flight: send, relay chunks, assemble the answer, and write it back when it may be."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from stratacache.dialects import sse, wire
from stratacache.dialects.base import Answers
from stratacache.dialects.table import answers_of
from stratacache.errors import UpstreamError
from stratacache.pipeline.fleet import Fleet
from stratacache.pipeline.flight import Flight, FlightTable, Head, Landing
from stratacache.pipeline.gate import Gate
from stratacache.pipeline.plan import CachePolicy, Plan, Verdict, judge
from stratacache.pipeline.sending import Sender, Sent
from stratacache.pipeline.writeback import WriteBack
from stratacache.policy.ttl import jittered_ttl
from stratacache.ports import Clock, Recorder
from stratacache.types import JSON, Call, Entry, Key, Purpose, Request, Usage, Versions

log = logging.getLogger(__name__)

Learn = Callable[[Request, Key, Plan, Entry, JSON], None]

LINGER = 1.0  # seconds that a landed flight waits for its entry to be stored, and can be joined meanwhile
MAX_STREAM = 64 << 20
"""Bytes of one stream, which is kept until it has landed: an endless one must not take all memory."""


class Caller:
    """Runs flights.

    Args:
        sender: sends the requests.
        flights: where a flight stops to be joinable once its answer is stored or must not be shared.
        fleet: leads or follows together with other instances; None when there are none.
        gate: told of every call, and of every question that got an answer.
        learn: told of every answer that was stored: request, key, plan, entry and the decoded answer.
        draw: uniform draws from [0, 1) for the TTL's jitter.
    """

    def __init__(
        self,
        sender: Sender,
        flights: FlightTable,
        fleet: Fleet | None,
        writeback: WriteBack,
        gate: Gate,
        policy: CachePolicy,
        recorder: Recorder,
        clock: Clock,
        draw: Callable[[], float],
        *,
        learn: Learn | None = None,
    ) -> None:
        self._sender = sender
        self._flights = flights
        self._fleet = fleet
        self._gate = gate
        self._writeback = writeback
        self._policy = policy
        self._recorder = recorder
        self._clock = clock
        self._draw = draw
        self._learn = learn

    async def fly(self, request: Request, plan: Plan, flight: Flight, *, purpose: Purpose = "answer") -> None:
        """Fly ``flight``, together with other instances when its answer may be shared.

        Without a snapshot the store is out of order, and so is what the instances share.
        """
        lead = partial(self._call, request, plan, purpose=purpose)
        if self._fleet is None or flight.versions is None or not plan.share:
            await lead(flight)
            return
        try:
            await self._fleet.fly(flight, plan, lead)
        finally:
            self._flights.close_boarding(flight)

    def explain(self, request: Request) -> dict[str, JSON]:
        """What would be done for the provider's prompt cache, as JSON."""
        return self._sender.explain(request)

    def given(self, request: Request, plan: Plan, key: Key, versions: Versions, answer: JSON) -> str:
        """Keep ``answer``, which somebody gives for ``request`` in place of a model: ``queued``, or why it is not kept.

        It passes the same judgement as a model's, is written back and learned as one, under the snapshot ``versions``.
        """
        flight = Flight(key, versions, request.body, key.digest, lambda _: None)
        flight.depart(Head(status=200, headers=(), streaming=False, seconds=0.0))
        landing = Landing(wire.encode(answer), answer, Usage(), done=True)
        verdict = self._judge(request, flight, landing)
        if verdict.kind != "withheld":
            self._admit(request, plan, flight, landing, 0.0)
            return "queued"
        return verdict.reason

    async def _call(self, request: Request, plan: Plan, flight: Flight, *, purpose: Purpose) -> None:
        """Make the call for ``flight`` and land it, or fail it; never raises but when cancelled."""
        started = self._clock.monotonic()
        try:
            with self._gate.calling(request.upstream):
                sent = await self._sender.send(request, for_others=_is_for_others(plan))
                try:
                    landing = await self._receive(request, plan, flight, sent, started)
                finally:
                    await sent.close()
        except UpstreamError as failure:
            flight.fail(failure)
            return
        except Exception:
            log.exception("an upstream call failed in a way that no upstream announces")
            flight.fail(UpstreamError("the gateway failed while it called the upstream"))
            return
        seconds = self._clock.monotonic() - started
        self._sender.settle(sent, landing.usage)
        self._recorder.called(_made(request, flight, landing, purpose, seconds))
        self._admit(request, plan, flight, landing, seconds)
        flight.land(landing)

    async def _receive(
        self, request: Request, plan: Plan, flight: Flight, sent: Sent, started: float
    ) -> Landing:
        response = sent.response
        kind = response.headers.get("content-type", "")
        head = Head(
            status=response.status,
            headers=tuple((name, _as_sent(value)) for name, value in response.headers.items()),
            streaming=response.status == 200 and kind.startswith("text/event-stream"),
            seconds=self._clock.monotonic() - started,
            divergence=sent.divergence,
        )
        flight.depart(head)
        answers = answers_of(request.endpoint)
        if head.streaming:
            return await _receive_stream(answers, flight, sent, strip_usage=_is_for_others(plan))
        sent.began()
        body = await response.read()
        answer = wire.decode_answer(body) if response.status == 200 or _is_json(kind) else None
        return Landing(body, answer, _usage(answers, answer), done=True)

    def _admit(self, request: Request, plan: Plan, flight: Flight, landing: Landing, seconds: float) -> None:
        """Queue the answer for the store, or close the flight to newcomers when it must not be kept."""
        verdict = self._judge(request, flight, landing) if plan.store else None
        if verdict is None or verdict.kind == "withheld":
            self._flights.close_boarding(flight)
            if verdict is not None:
                self._recorder.withheld(verdict.reason)
            return
        self._gate.handled(flight.key.digest)
        entry = self._entry(request, plan, flight, landing, seconds, negative=verdict.kind == "negative")
        # Newcomers may join until the entry can be read, so that none of them calls the upstream again; but not for
        # as long as a stuck store takes: the answer would outlive its TTL, and be fresh by its headers.
        closing = asyncio.get_running_loop().call_later(LINGER, self._flights.close_boarding, flight)

        def close() -> None:
            closing.cancel()
            self._flights.close_boarding(flight)

        stored = None
        if self._learn is not None:
            stored = partial(self._learn, request, flight.key, plan, entry, landing.answer)
        self._writeback.submit(flight.key.digest, entry, close, stored)

    def _judge(self, request: Request, flight: Flight, landing: Landing) -> Verdict:
        assert flight.head is not None
        if flight.versions is None:
            return Verdict("withheld", "no_snapshot")
        if not landing.done:
            return Verdict("withheld", "cut")
        size = len(flight.key.form) + len(landing.body)
        return judge(request, flight.head.status, landing.answer, size, self._policy)

    def _entry(
        self,
        request: Request,
        plan: Plan,
        flight: Flight,
        landing: Landing,
        seconds: float,
        *,
        negative: bool,
    ) -> Entry:
        assert flight.head is not None
        now = self._clock.now()
        ttl = min(plan.ttl, self._policy.negative.ttl) if negative else plan.ttl
        expires_at = now + jittered_ttl(ttl, plan.jitter, self._draw())
        return Entry(
            form=flight.key.form,
            body=landing.body,
            created_at=now,
            expires_at=expires_at,
            tenant=request.scope.tenant,
            model=request.resolved_model,
            versions=flight.versions or (),
            prompt_tokens=landing.usage.prompt or 0,
            completion_tokens=landing.usage.completion or 0,
            stale_until=0.0 if negative else expires_at + plan.keep_stale,
            seconds=seconds,
            status=flight.head.status,
            negative=negative,
        )


def _made(request: Request, flight: Flight, landing: Landing, purpose: Purpose, seconds: float) -> Call:
    return Call(
        upstream=request.upstream,
        model=request.resolved_model,
        usage=landing.usage,
        tenant=request.scope.tenant,
        purpose=purpose,
        endpoint=request.endpoint,
        status=flight.head.status if flight.head is not None else 0,
        seconds=seconds,
        limit=_limit(request.body),
    )


def _limit(body: Mapping[str, JSON]) -> int | None:
    """The longest answer in tokens that ``body`` asks for."""
    limits = [body.get(name) for name in ("max_completion_tokens", "max_tokens", "max_output_tokens")]
    return next((one for one in limits if type(one) is int and one > 0), None)


def _is_for_others(plan: Plan) -> bool:
    """Whether somebody else may be given the answer, who may want usage where this client does not or does."""
    return plan.store or plan.share


async def _receive_stream(answers: Answers, flight: Flight, sent: Sent, *, strip_usage: bool) -> Landing:
    parser = sse.SSEParser()
    assembler = answers.assembler()

    def relay(events: Iterable[sse.Event]) -> None:
        heard = [assembler.take(event, strip_usage=strip_usage) for event in events]
        batch = [one for one in heard if one is not None]
        if batch:
            flight.relay(batch)

    size = 0
    async for data in sent.response.chunks():
        sent.began()
        size += len(data)
        if size > MAX_STREAM:
            raise UpstreamError(
                f"the upstream's stream has more than {MAX_STREAM} bytes", code="upstream_malformed"
            )
        relay(parser.feed(data))
    relay(parser.finish())
    answer = assembler.result()
    body = b"" if answer is None else wire.encode(answer)
    return Landing(body, answer, _usage(answers, answer), assembler.done)


def _as_sent(value: str) -> str:
    """A header's bytes as one character each, whatever they mean: half of a surrogate pair fits into no frame."""
    return value.encode("utf-8", "surrogateescape").decode("latin-1")


def _is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "application/json"


def _usage(answers: Answers, answer: JSON) -> Usage:
    return answers.usage_of(answer) if isinstance(answer, dict) else Usage()
