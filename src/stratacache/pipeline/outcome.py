"""What became of a request: pure questions about its flight, and the Decision that headers and metrics show."""

from __future__ import annotations

from stratacache.errors import UpstreamError
from stratacache.pipeline.flight import ASK_AGAIN, Flight, Seat
from stratacache.pipeline.plan import Plan
from stratacache.ports import ANSWERED_BY
from stratacache.types import Decision, Entry, Hit, Key, Outcome, Request, Saving

_REQUEST_FAULTS = frozenset({400, 413, 415, 422})
_DOWN = frozenset({429, 500, 502, 503, 504})

Stages = tuple[tuple[str, float], ...]
"""(name, seconds) in the order that they ran."""


def describe(request: Request, outcome: Outcome, reason: str, stages: Stages) -> Decision:
    """A request that no entry and no upstream answered."""
    return Decision(
        endpoint=request.endpoint,
        model=request.resolved_model,
        scene=request.control.scene,
        outcome=outcome,
        reason=reason,
        stages=stages,
        tenant=request.scope.tenant,
        user=user_of(request),
    )


def describe_hit(
    request: Request, key: Key, hit: Hit, stages: Stages, outcome: Outcome, upstream: str | None = None
) -> Decision:
    """A request that an entry answered; ``upstream`` is who failed to, when it stands in for its answer."""
    return Decision(
        endpoint=request.endpoint,
        model=request.resolved_model,
        scene=request.control.scene,
        outcome=outcome,
        reason=hit.reason,
        tier=hit.tier,
        entry_id=key.entry_id if hit.digest is None else hit.digest.hex(),
        age=hit.age,
        saved_tokens=hit.entry.prompt_tokens + hit.entry.completion_tokens,
        upstream=upstream,
        stages=stages,
        similarity=hit.similarity,
        confidence=hit.confidence,
        tenant=request.scope.tenant,
        user=user_of(request),
    )


def user_of(request: Request) -> str:
    """Who asks: what the body says of its user, else the API key; "" when nobody says."""
    body = request.body
    user = body.get("user") or body.get("safety_identifier")
    if user is None and type(metadata := body.get("metadata")) is dict:
        user = metadata.get("user_id")
    return user if type(user) is str and user else request.scope.principal


def saving(request: Request, hit: Hit) -> Saving:
    """What an entry spared."""
    entry = hit.entry
    return Saving(
        hit.tier, request.scope.tenant, request.resolved_model, entry.prompt_tokens, entry.completion_tokens
    )


def speaks_to(entry: Entry, *, stream: bool) -> bool:
    """A remembered refusal was one of the plain form: the upstream may take a stream."""
    return entry.status == 200 or not stream


def is_followed(seat: Seat) -> bool:
    """Whether somebody else made the call, here or on another instance."""
    return not seat.led or seat.flight.borrowed


def is_down(flight: Flight, failure: UpstreamError | None) -> bool:
    """Whether the upstream failed, in the sense of RFC 5861 section 4."""
    return failure is not None or (flight.head is not None and flight.head.status in _DOWN)


def _refused(flight: Flight) -> bool:
    return flight.head is None or flight.head.status != 200 or flight.failure is not None


def may_fare_better(request: Request, seat: Seat) -> bool:
    """Whether the upstream, which refused what the leader sent, may take what this follower would send.

    It may refuse a stream but not the plain form, or the reverse, or a field that is not in the key: labels that are
    malformed, a stream option that it does not know. What is no fault of the request is shared by all, but for the loss
    of the instance that led: that is no word of the upstream.
    """
    flight = seat.flight
    if not is_followed(seat) or not _refused(flight):
        return False
    if flight.failure is not None and flight.failure.code in ASK_AGAIN:
        return False
    if flight.lost or flight.streamed != request.stream:
        return True
    at_fault = flight.head is not None and flight.head.status in _REQUEST_FAULTS
    # What else another instance sent is not known here.
    return at_fault and (flight.borrowed or flight.asked != request.body)


def answered_by(flight: Flight) -> str | None:
    """Which of several servers answered, where the upstream says so."""
    headers = flight.head.headers if flight.head is not None else ()
    return next((value for name, value in headers if name == ANSWERED_BY), None)


def describe_call(
    request: Request,
    key: Key,
    plan: Plan,
    why_no_tier: str,
    seat: Seat,
    failure: UpstreamError | None,
    stages: Stages,
) -> Decision:
    """A request that an upstream call answered, its own or another's; ``why_no_tier`` is the reason of the miss."""
    flight = seat.flight
    outcome: Outcome = "miss" if plan.bypass is None else "bypass"
    reason = why_no_tier
    followed = False
    if failure is not None:
        reason = failure.code
    elif _refused(flight):
        reason = "upstream_error"
    elif is_followed(seat):
        outcome, reason, followed = "hit", "coalesced", True
    usage = flight.landing.usage if flight.landing is not None else None
    return Decision(
        endpoint=request.endpoint,
        model=request.resolved_model,
        scene=request.control.scene,
        outcome=outcome,
        reason=reason,
        tier="exact" if followed else None,
        entry_id=key.entry_id if plan.store and failure is None else None,
        age=0.0 if followed else None,
        saved_tokens=usage.total if followed and usage is not None else 0,
        prompt_tokens_cached=usage.cached_prompt if usage is not None and not followed else None,
        upstream=answered_by(flight) or request.upstream,
        prompt_divergence=flight.head.divergence if flight.head is not None and not followed else "",
        stages=stages,
        tenant=request.scope.tenant,
        user=user_of(request),
    )
