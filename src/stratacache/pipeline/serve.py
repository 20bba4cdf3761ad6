"""The way of one request, top to bottom: plan, look up, join or lead an upstream call, say what happened."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from stratacache.dialects import wire
from stratacache.dialects.table import answers_of
from stratacache.errors import RequestError, UpstreamError
from stratacache.pipeline.call import Caller
from stratacache.pipeline.flight import ASK_AGAIN, OUTDATED, Flight, FlightTable, Seat
from stratacache.pipeline.gate import Gate
from stratacache.pipeline.outcome import (
    Stages,
    answered_by,
    describe,
    describe_call,
    describe_hit,
    is_down,
    is_followed,
    may_fare_better,
    saving,
    speaks_to,
)
from stratacache.pipeline.plan import Plan
from stratacache.pipeline.refresh import Refresher
from stratacache.pipeline.semantic import Kindred
from stratacache.ports import Clock, Recorder
from stratacache.tiers.exact import ExactTier
from stratacache.tiers.semantic import NOTHING_NEAR
from stratacache.tiers.semantic_inquiry import Near
from stratacache.types import (
    JSON,
    Decision,
    Entry,
    Hit,
    Key,
    Miss,
    Outcome,
    Purpose,
    Request,
    Saving,
    Versions,
)

_SAYS_LITTLE = frozenset({"", NOTHING_NEAR})
"""Reasons in whose place another tier's is told."""


class Answered(msgspec.Struct, frozen=True):
    """There is an answer without waiting for the upstream: from a tier, or the configured one for new questions."""

    entry: Entry
    decision: Decision


class Boarded(msgspec.Struct, frozen=True):
    """An upstream call is under way; ``reason`` says why no tier answered.

    ``has_stale``: an old entry may answer should the upstream fail.
    """

    seat: Seat
    plan: Plan
    reason: str
    stages: Stages
    has_stale: bool = False


class Unanswered(msgspec.Struct, frozen=True, gc=False):
    """No tier answered, for ``reason``. ``versions`` is the snapshot that the answer may be stored under."""

    reason: str
    stages: Stages
    versions: Versions | None = None
    has_stale: bool = False
    near: Near | None = None


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


class NotAdmitted(RequestError):
    """The question is new, and new ones are turned away: status 429, with what happened as ``decision``."""

    def __init__(self, decision: Decision) -> None:
        what = (
            "are turned away while the model is busy"
            if decision.reason == "shed"
            else "are not answered here"
        )
        # What is turned away for good is not to be asked again, which the official clients otherwise do on a 429.
        again = ("retry-after", "5") if decision.reason == "shed" else ("x-should-retry", "false")
        super().__init__(f"new questions {what}", status=429, code="not_admitted", headers=(again,))
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
        gate: Gate,
        recorder: Recorder,
        clock: Clock,
        draw: Callable[[], float],
        *,
        kindred: Kindred | None = None,
        default_answer: str | None = None,
    ) -> None:
        self._exact = exact
        self._caller = caller
        self._flights = flights
        self._gate = gate
        self._kindred = kindred
        self._recorder = recorder
        self._clock = clock
        self._refresher = Refresher(partial(caller.fly, purpose="refresh"), flights, recorder, clock, draw)
        self._default_answer = default_answer

    @property
    def refreshing(self) -> int:
        """How many entries are being fetched anew."""
        return len(self._refresher)

    async def close(self) -> None:
        """Abort refreshes and calls. Requests that wait for one are to be answered before."""
        await self._refresher.close()
        if self._kindred is not None:
            await self._kindred.close()
        await self._flights.close()

    async def serve(
        self, request: Request, key: Key, plan: Plan, stages: Stages = (), *, admitted: bool = False
    ) -> Answered | Boarded:
        """Answer from a tier, or take a seat on the upstream call for ``key``.

        Who asks again is ``admitted`` already: its own call may be what the gate counts.

        Raises:
            NotCached: the caller wants only a cached answer and there is none.
            NotAdmitted: the question is new, and new ones are turned away.
        """
        before = await self._ask_kindred(request, key, plan, stages) if plan.semantic_first else None
        if isinstance(before, Answered):
            return before
        if before is not None:
            stages = before.stages
        if plan.lookup or plan.store:  # the latter needs the snapshot
            started = self._clock.monotonic()
            looked = await self._look_up(key, plan)
            stages = (*stages, ("exact", self._clock.monotonic() - started))
            found = self._exact_says(request, key, plan, stages, looked, before)
        else:
            found = before or Unanswered(plan.bypass or "", stages)
        if not isinstance(found, Answered) and not plan.semantic_first:
            found = await self._ask_kindred(request, key, plan, stages, found)
        if isinstance(found, Answered):
            return found
        if plan.only_if_cached:
            decision = describe(request, "miss", "not_cached", found.stages)
            self._recorder.decided(decision)
            raise NotCached(decision)
        refusal = None if admitted else await self._gate.admits(request, key)
        if refusal is not None:
            return self._turned_away(request, refusal, found.stages)
        run = self._run(request, plan)
        seat = self._flights.board(key, found.versions, request.body, run, share=plan.share)
        if self._kindred is not None:
            self._kindred.watch(request, key, plan, found.near, seat)
        return Boarded(seat, plan, found.reason or "tier_off", found.stages, found.has_stale)

    def _exact_says(
        self,
        request: Request,
        key: Key,
        plan: Plan,
        stages: Stages,
        found: Hit | Miss,
        before: Unanswered | None,
    ) -> Answered | Unanswered:
        """What the exact tier ``found``, after what came ``before``; also the snapshot that an answer is stored under.

        No coroutine of its own: one more costs an exact hit 2 % of its time.
        """
        versions: Versions | None
        if isinstance(found, Hit):
            if plan.lookup and speaks_to(found.entry, stream=request.stream):
                self._refresher.consider(request, key, plan, found)
                return self._answered(request, key, found, stages)
            versions, has_stale = found.entry.versions, False
        else:
            versions, has_stale = found.versions, self._may_go_stale(plan, found.stale)
        reason = plan.bypass or "" if before is None else before.reason
        if plan.lookup and reason in _SAYS_LITTLE:
            reason = "other_form" if isinstance(found, Hit) else found.reason
        return Unanswered(reason, stages, versions, has_stale, before.near if before is not None else None)

    async def _ask_kindred(
        self, request: Request, key: Key, plan: Plan, stages: Stages, before: Unanswered | None = None
    ) -> Answered | Unanswered:
        """The semantic tier, after what came ``before``."""
        before = before or Unanswered(plan.bypass or "", stages)
        if self._kindred is None or (before.versions is None and plan.lookup and not plan.semantic_first):
            return before  # where the store failed, what would be found could not be read
        near = await self._kindred.ask(request, key, plan)
        if near is None:
            return before
        stages = (*before.stages, *near.stages)
        if near.hit is not None:
            run = self._run(request, plan, "check")
            self._kindred.check(request, key, plan, near, before.versions, run)
            return self._answered(request, key, near.hit, stages)
        # That nothing is near says no more than that nothing is equal.
        reason = before.reason if before.reason and near.reason == NOTHING_NEAR else near.reason
        return Unanswered(reason, stages, before.versions, before.has_stale, near)

    def _look_up(self, key: Key, plan: Plan) -> Awaitable[Hit | Miss]:
        return self._exact.lookup(key, plan.tags, max_age=plan.max_age, min_fresh=plan.min_fresh)

    def _run(
        self, request: Request, plan: Plan, purpose: Purpose = "answer"
    ) -> Callable[[Flight], Awaitable[None]]:
        return partial(self._caller.fly, request, plan, purpose=purpose)

    async def settle(self, request: Request, key: Key, boarded: Boarded) -> Settled | Answered:
        """Wait until the upstream began (for a stream) or ended, and say what happened."""
        started = self._clock.monotonic()
        seat, failure = await self._hear(request, key, boarded)
        stages = (*boarded.stages, ("upstream", self._clock.monotonic() - started))
        if failure is not None and failure.code in ASK_AGAIN:
            if failure.code == OUTDATED:
                self._recorder.counted("restart")
            seat.leave()
            served = await self.serve(request, key, boarded.plan, stages, admitted=True)
            return served if isinstance(served, Answered) else await self.settle(request, key, served)
        if boarded.has_stale and is_down(seat.flight, failure):
            seat.leave()  # the call is over; the look-up may be cancelled
            upstream = answered_by(seat.flight) or request.upstream
            stale = await self._stale(request, key, boarded.plan, stages, upstream)
            if stale is not None:
                return stale
        decision = describe_call(request, key, boarded.plan, boarded.reason, seat, failure, stages)
        self._recorder.decided(decision)
        return Settled(seat, decision, failure)

    async def _hear(self, request: Request, key: Key, boarded: Boarded) -> tuple[Seat, UpstreamError | None]:
        """The seat that has word of the upstream, and the failure if that is the word."""
        seat = boarded.seat
        try:
            failure = await _hear(seat.flight, request)
            if may_fare_better(request, seat):
                seat.leave()
                run = self._run(request, boarded.plan)
                versions = seat.flight.versions
                # Those who were refused side by side ask again together: an upstream in trouble gets no stampede.
                alike = not seat.flight.lost
                seat = self._flights.board(key, versions, request.body, run, share=True, alike=alike)
                failure = await _hear(seat.flight, request)
        except BaseException:
            seat.leave()
            raise
        return seat, failure

    async def _stale(
        self, request: Request, key: Key, plan: Plan, stages: Stages, upstream: str
    ) -> Answered | None:
        """The expired entry, unless it was invalidated or is too old by now; ``upstream`` is who failed."""
        found = await self._exact.lookup(key, plan.tags)
        entry = found.entry if isinstance(found, Hit) else found.stale
        if entry is None or not self._may_go_stale(plan, entry):
            return None
        if not speaks_to(entry, stream=request.stream):
            return None
        age = max(0.0, self._clock.now() - entry.created_at)
        hit = Hit(entry, "exact", "upstream_failed", age)
        return self._answered(request, key, hit, stages, "stale", upstream)

    def _may_go_stale(self, plan: Plan, entry: Entry | None) -> bool:
        """Whether ``entry`` may stand in for an upstream that fails: by its own life, and by this request's scene."""
        if entry is None or not plan.lookup or not plan.stale_if_error:
            return False
        now = self._clock.now()
        end = max(entry.expires_at, min(entry.stale_until, entry.expires_at + plan.stale_if_error))
        return now < end and now - entry.created_at <= plan.max_age + plan.stale_if_error

    def _turned_away(self, request: Request, reason: str, stages: Stages) -> Answered:
        decision = describe(request, "bypass", reason, stages)
        self._recorder.decided(decision)
        now, text, dialect = self._clock.now(), self._default_answer, answers_of(request.endpoint)
        answer = None if text is None else dialect.fixed_answer(text, request.model, now)
        if answer is None:
            raise NotAdmitted(decision)
        return Answered(Entry(b"", wire.encode(answer), created_at=now, expires_at=now), decision)

    def leave(self, settled: Settled) -> None:
        """The client has its answer, or is gone. A call that nobody waits for any more is aborted."""
        seat = settled.seat
        seat.leave()
        if is_followed(seat):
            self._recorder.counted("follower")
            landing = seat.flight.landing
            if landing is not None:
                usage, told = landing.usage, settled.decision
                self._recorder.saved(
                    Saving("exact", told.tenant, told.model, usage.prompt or 0, usage.completion or 0)
                )

    async def explain(self, request: Request, key: Key, plan: Plan) -> dict[str, JSON]:
        """What :meth:`serve` would do and why, as JSON. Calls no upstream and stores nothing."""
        found = await self._look_up(key, plan) if plan.lookup else None
        if isinstance(found, Hit) and speaks_to(found.entry, stream=request.stream):
            exact = {"outcome": "hit", "reason": found.reason, "age": found.age}
        elif found is None:
            exact = {"outcome": "bypass", "reason": plan.bypass}
        else:
            exact = {"outcome": "miss", "reason": "other_form" if isinstance(found, Hit) else found.reason}
        near = await self._kindred.explain(request, key, plan) if self._kindred is not None else None
        semantic = _explained(near, "" if self._kindred is None else self._kindred.tier.mode)
        hit = "hit" in (exact["outcome"], semantic["outcome"] if semantic.get("mode") == "serve" else "")
        refusal = await self._gate.admits(request, key)
        return {
            "endpoint": request.endpoint,
            "model": request.model,
            "resolved_model": request.resolved_model,
            "upstream": request.upstream,
            "tenant": request.scope.tenant,
            "scene": request.control.scene,
            "entry": key.entry_id,
            "key": msgspec.json.decode(key.form),
            "tags": list(plan.tags),
            "tiers": {"exact": exact, "semantic": semantic, "prompt": self._caller.explain(request)},
            "turned_away": refusal,
            "would_call_upstream": not hit and not plan.only_if_cached and refusal is None,
            "would_store": plan.store,
            "ttl_seconds": plan.ttl,
        }

    def _answered(
        self,
        request: Request,
        key: Key,
        hit: Hit,
        stages: Stages,
        outcome: Outcome = "hit",
        upstream: str | None = None,
    ) -> Answered:
        decision = describe_hit(request, key, hit, stages, outcome, upstream)
        self._recorder.decided(decision)
        self._recorder.saved(saving(request, hit))
        return Answered(hit.entry, decision)


def _explained(near: Near | None, mode: str) -> dict[str, JSON]:
    """What the semantic tier would do, with all that it saw."""
    if near is None:
        return {"outcome": "bypass", "reason": "tier_off", "mode": mode or "off"}
    told: dict[str, JSON] = {"outcome": "miss", "reason": near.reason, "mode": mode}
    if near.hit is not None:
        told = {"outcome": "hit", "reason": near.hit.reason, "mode": mode, "age": near.hit.age}
    return {**told, **msgspec.to_builtins(near.trace), "bound": dict(near.bound)}


async def _hear(flight: Flight, request: Request) -> UpstreamError | None:
    """Wait for what ``request`` needs before its own answer can begin; the failure if there is one."""
    try:
        head = await flight.wait_head()
        if not (head.streaming and request.stream):
            await flight.wait_landing()
    except UpstreamError as failure:
        return failure
    return None
