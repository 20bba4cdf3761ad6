"""What to try for a request and what may be stored afterwards; pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stratacache.dialects import openai_chat
from stratacache.policy.fields import bypass_reason
from stratacache.policy.ttl import effective_ttl, jittered_ttl
from stratacache.types import JSON, Request


class ScenePolicy(msgspec.Struct, frozen=True):
    """``ttl`` in seconds and its relative spread ``jitter`` in [0, 1)."""

    ttl: float
    jitter: float


class CachePolicy(msgspec.Struct, frozen=True):
    """The operator's side of the plan.

    ``max_entry`` bounds form + body of an entry, in bytes; ``history_window`` is how many of a conversation's
    last turns are in the exact key, None for all.
    """

    exact: bool
    scenes: Mapping[str, ScenePolicy]
    max_entry: int
    history_window: int | None = None


class Plan(msgspec.Struct, frozen=True, gc=False):
    """What to do for one request.

    ``share``: identical concurrent requests may use one upstream call. ``bypass`` is the reason why the cache
    is not asked, None when it is. ``max_age`` is the greatest age in seconds of an entry that may answer, ``ttl``
    seconds before jitter.
    """

    lookup: bool
    share: bool
    store: bool
    bypass: str | None
    only_if_cached: bool
    max_age: float
    ttl: float
    jitter: float


def plan_request(request: Request, policy: CachePolicy) -> Plan:
    """Decide from the request and the configuration alone."""
    control = request.control
    scene = policy.scenes[control.scene]
    ttl = effective_ttl(scene.ttl, control.ttl)
    bypass = _bypass(request, policy)
    open_to_all = bypass is None
    # The scene is not in the key: an entry may have been stored under one that allows a longer life, or before the
    # configuration shortened this one's.
    oldest = jittered_ttl(scene.ttl, scene.jitter, 1.0)
    return Plan(
        lookup=open_to_all and not control.no_cache,
        share=open_to_all and not control.no_cache,
        store=open_to_all and ttl > 0,
        bypass="no_cache" if open_to_all and control.no_cache else bypass,
        only_if_cached=control.only_if_cached,
        max_age=oldest if control.max_age is None else min(oldest, control.max_age),
        ttl=ttl,
        jitter=scene.jitter,
    )


def _bypass(request: Request, policy: CachePolicy) -> str | None:
    if request.control.no_store:
        return "no_store"
    if not policy.exact:
        return "tier_off"
    if request.control.tiers is not None and "exact" not in request.control.tiers:
        return "tier_not_asked"
    return bypass_reason(request.endpoint, request.body, resolved_model=request.resolved_model)


def storable(answer: JSON, size: int, policy: CachePolicy) -> str | None:
    """None when a finished answer may be stored, else the reason word; ``size`` is form + body in bytes."""
    if size > policy.max_entry:
        return "too_large"
    return openai_chat.completeness(answer)
