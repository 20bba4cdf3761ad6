"""The way of one request, top to bottom: plan, look up, join or lead an upstream call, say what happened."""

from __future__ import annotations

from functools import partial

import msgspec

from stratacache.errors import RequestError, UpstreamError
from stratacache.pipeline.call import Caller
from stratacache.pipeline.flight import Flight, FlightTable, Seat
from stratacache.pipeline.plan import Plan
from stratacache.ports import Clock, Recorder
from stratacache.tiers.exact import ExactTier
from stratacache.types import JSON, Decision, Hit, Key, Outcome, Request

_REQUEST_FAULTS = frozenset({400, 413, 415, 422})

Stages = tuple[tuple[str, float], ...]


class Answered(msgspec.Struct, frozen=True):
    """A tier had the answer."""

    hit: Hit
    decision: Decision


class Boarded(msgspec.Struct, frozen=True):
    """An upstream call is under way; ``reason`` says why no tier answered."""

    seat: Seat
    plan: Plan
    reason: str
    stages: Stages


class Settled(msgspec.Struct, frozen=True):
    """The upstream call has begun (a stream) or ended; ``failure`` when it gave nothing to pass on."""

    seat: Seat
    decision: Decision
    failure: UpstreamError | None


class NotCached(RequestError):
    """The caller wants only a cached answer and there is none: status 504, with what happened as ``decision``."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(
            "there is no cached answer, and the request allows no other (only-if-cached)",
            status=504,
            param="cache-control",
            code="not_cached",
        )
        self.decision = decision


class Pipeline:
    """Serves requests: :meth:`serve`, then :meth:`settle` and :meth:`leave` for what no tier answered.

    The two steps are apart so that a caller pays for watching its client only when there is something to wait for.
    """

    def __init__(
        self,
        exact: ExactTier,
        caller: Caller,
        flights: FlightTable,
        recorder: Recorder,
        clock: Clock,
    ) -> None:
        self._exact = exact
        self._caller = caller
        self._flights = flights
        self._recorder = recorder
        self._clock = clock

    async def serve(self, request: Request, key: Key, plan: Plan, stages: Stages = ()) -> Answered | Boarded:
        """Answer from a tier, or take a seat on the upstream call for ``key``.

        Raises:
            NotCached: the caller wants only a cached answer and there is none.
        """
        reason = plan.bypass or ""
        if plan.lookup:
            started = self._clock.monotonic()
            found = await self._exact.lookup(key, max_age=plan.max_age)
            stages = (*stages, ("exact", self._clock.monotonic() - started))
            if isinstance(found, Hit):
                return self._answered(request, key, found, stages)
            reason = found.reason
        if plan.only_if_cached:
            decision = _not_cached(request, stages)
            self._recorder.decided(decision)
            raise NotCached(decision)
        run = partial(self._caller.fly, request, plan)
        seat = self._flights.board(key, request.body, run, share=plan.share)
        return Boarded(seat, plan, reason, stages)

    async def settle(self, request: Request, key: Key, boarded: Boarded) -> Settled:
        """Wait until the upstream began (for a stream) or ended, and say what happened."""
        seat = boarded.seat
        started = self._clock.monotonic()
        try:
            failure = await _hear(seat.flight, request)
            if not seat.led and _may_fare_better(request, seat.flight):
                seat.leave()
                run = partial(self._caller.fly, request, boarded.plan)
                # Those who were refused side by side ask again together: an upstream in trouble gets no stampede.
                seat = self._flights.board(key, request.body, run, share=True, alike=True)
                failure = await _hear(seat.flight, request)
        except BaseException:
            seat.leave()
            raise
        stages = (*boarded.stages, ("upstream", self._clock.monotonic() - started))
        decision = _describe(request, key, boarded, seat, failure, stages)
        self._recorder.decided(decision)
        return Settled(seat, decision, failure)

    def leave(self, settled: Settled) -> None:
        """The client has its answer, or is gone. A call that nobody waits for any more is aborted."""
        seat = settled.seat
        seat.leave()
        if not seat.led:
            self._recorder.followed()
            landing = seat.flight.landing
            if landing is not None:
                self._recorder.saved("exact", landing.usage.total)

    async def explain(self, request: Request, key: Key, plan: Plan) -> dict[str, JSON]:
        """What :meth:`serve` would do and why, as JSON. Calls no upstream and stores nothing."""
        found = await self._exact.lookup(key, max_age=plan.max_age) if plan.lookup else None
        if isinstance(found, Hit):
            exact = {"outcome": "hit", "reason": found.reason, "age": found.age}
        else:
            exact = {
                "outcome": "miss" if found else "bypass",
                "reason": found.reason if found else plan.bypass,
            }
        return {
            "endpoint": request.endpoint,
            "model": request.model,
            "resolved_model": request.resolved_model,
            "upstream": request.upstream,
            "tenant": request.scope.tenant,
            "scene": request.control.scene,
            "entry": key.entry_id,
            "key": msgspec.json.decode(key.form),
            "tiers": {"exact": exact},
            "would_call_upstream": exact["outcome"] != "hit" and not plan.only_if_cached,
            "would_store": plan.store,
            "ttl_seconds": plan.ttl,
        }

    def _answered(self, request: Request, key: Key, hit: Hit, stages: Stages) -> Answered:
        tokens = hit.entry.prompt_tokens + hit.entry.completion_tokens
        decision = Decision(
            endpoint=request.endpoint,
            model=request.resolved_model,
            scene=request.control.scene,
            outcome="hit",
            reason=hit.reason,
            tier=hit.tier,
            entry_id=key.entry_id,
            age=hit.age,
            saved_tokens=tokens,
            stages=stages,
        )
        self._recorder.decided(decision)
        self._recorder.saved(hit.tier, tokens)
        return Answered(hit, decision)


async def _hear(flight: Flight, request: Request) -> UpstreamError | None:
    """Wait for what ``request`` needs before its own answer can begin; the failure if there is one."""
    try:
        head = await flight.wait_head()
        if not (head.streaming and request.stream):
            await flight.wait_landing()
    except UpstreamError as failure:
        return failure
    return None


def _not_cached(request: Request, stages: Stages) -> Decision:
    return Decision(
        endpoint=request.endpoint,
        model=request.resolved_model,
        scene=request.control.scene,
        outcome="miss",
        reason="not_cached",
        stages=stages,
    )


def _refused(flight: Flight) -> bool:
    return flight.head is None or flight.head.status != 200 or flight.failure is not None


def _may_fare_better(request: Request, flight: Flight) -> bool:
    """Whether the upstream, which refused what the leader sent, may take what this follower would send.

    It may refuse a stream but not the plain form, or the reverse, or a field that is not in the key: labels that are
    malformed, a stream option that it does not know. What is no fault of the request is shared by all.
    """
    if not _refused(flight):
        return False
    if bool(flight.asked.get("stream")) != request.stream:
        return True
    return flight.head is not None and flight.head.status in _REQUEST_FAULTS and flight.asked != request.body


def _describe(
    request: Request,
    key: Key,
    boarded: Boarded,
    seat: Seat,
    failure: UpstreamError | None,
    stages: Stages,
) -> Decision:
    flight = seat.flight
    outcome: Outcome = "miss" if boarded.plan.bypass is None else "bypass"
    reason = boarded.reason
    followed = False
    if failure is not None:
        reason = failure.code
    elif _refused(flight):
        reason = "upstream_error"
    elif not seat.led:
        outcome, reason, followed = "hit", "coalesced", True
    usage = flight.landing.usage if flight.landing is not None else None
    return Decision(
        endpoint=request.endpoint,
        model=request.resolved_model,
        scene=request.control.scene,
        outcome=outcome,
        reason=reason,
        tier="exact" if followed else None,
        entry_id=key.entry_id if boarded.plan.store and failure is None else None,
        age=0.0 if followed else None,
        saved_tokens=usage.total if followed and usage is not None else 0,
        prompt_tokens_cached=usage.cached_prompt if usage is not None and not followed else None,
        upstream=request.upstream,
        stages=stages,
    )
