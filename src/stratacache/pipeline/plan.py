"""What to try for a request and what may be stored afterwards; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from stratacache.dialects.table import answers_of
from stratacache.policy.fields import bypass_reason, irrelevant_fields
from stratacache.policy.key import CONVERSATIONS
from stratacache.policy.tags import dependencies
from stratacache.policy.ttl import effective_ttl, jittered_ttl
from stratacache.types import JSON, Key, Request

Admission = Literal["open", "shed", "closed"]


class ScenePolicy(msgspec.Struct, frozen=True):
    """How one kind of traffic is cached.

    ``ttl`` in seconds and its relative spread ``jitter`` in [0, 1). ``early_refresh``: XFetch's beta, 0 for never.
    ``stale_if_error``: seconds past its TTL that an entry may still answer when the upstream fails.
    """

    ttl: float
    jitter: float
    exact: bool = True
    early_refresh: float = 0.0
    stale_if_error: float = 0.0
    semantic: bool = False


class NegativePolicy(msgspec.Struct, frozen=True):
    """What counts as "no answer", and for how many seconds it is remembered (0: not at all)."""

    ttl: float = 0.0
    empty: bool = False
    statuses: frozenset[int] = frozenset()
    markers: tuple[str, ...] = ()


class CachePolicy(msgspec.Struct, frozen=True):
    """The operator's side of the plan.

    ``max_entry`` bounds form + body of an entry, in bytes; ``history_window`` is how many of a conversation's
    last turns are in the exact key, None for all. ``admission``: who may reach the upstream with a new question.
    ``semantic_first``: the semantic tier is asked before the exact one.
    """

    exact: bool
    scenes: Mapping[str, ScenePolicy]
    max_entry: int
    history_window: int | None = None
    negative: NegativePolicy = NegativePolicy()
    admission: Admission = "open"
    semantic: bool = False
    semantic_first: bool = False


class Plan(msgspec.Struct, frozen=True, gc=False):
    """What to do for one request.

    ``lookup``: the exact tier may answer; ``semantic``: the semantic tier may, ``semantic_first`` before it; ``learn``:
    the answer may serve other questions. ``share``: identical concurrent requests may use one upstream call. ``bypass``
    is the reason why the cache is not asked, None when it is. ``tags`` are those that an answer must carry. In seconds:
    ``max_age`` is the greatest age of an entry that may answer and ``min_fresh`` what must be left of its life; ``ttl``
    is before jitter; when the upstream fails, an entry may answer this caller ``stale_if_error`` beyond its life, and
    is kept ``keep_stale``.
    """

    lookup: bool
    semantic: bool
    semantic_first: bool
    learn: bool
    share: bool
    store: bool
    bypass: str | None
    only_if_cached: bool
    tags: tuple[str, ...]
    max_age: float
    min_fresh: float
    ttl: float
    jitter: float
    early_refresh: float
    stale_if_error: float
    keep_stale: float


def plan_request(request: Request, key: Key, policy: CachePolicy) -> Plan:
    """Decide from the request and the configuration alone."""
    control = request.control
    scene = policy.scenes[control.scene]
    ttl = effective_ttl(scene.ttl, control.ttl)
    exact, semantic = _answering(request, scene, policy)
    bypass = _bypass(request, scene, policy, any_tier=exact or semantic)
    open_to_all = bypass is None
    looks = open_to_all and not control.no_cache
    store = open_to_all and ttl > 0
    # The scene is not in the key: an entry may have been stored under one that allows a longer life, or before the
    # configuration shortened this one's.
    oldest = jittered_ttl(scene.ttl, scene.jitter, 1.0)
    return Plan(
        lookup=looks and exact,
        semantic=looks and semantic,
        semantic_first=policy.semantic_first,
        learn=store and semantic,
        share=looks and exact,
        store=store,
        bypass="no_cache" if open_to_all and control.no_cache else bypass,
        only_if_cached=control.only_if_cached,
        tags=dependencies(request, key),
        max_age=oldest if control.max_age is None else min(oldest, control.max_age),
        min_fresh=control.min_fresh,
        ttl=ttl,
        jitter=scene.jitter,
        early_refresh=scene.early_refresh,
        stale_if_error=effective_ttl(scene.stale_if_error, control.stale_if_error),
        keep_stale=scene.stale_if_error,
    )


def _answering(request: Request, scene: ScenePolicy, policy: CachePolicy) -> tuple[bool, bool]:
    """Whether the exact and the semantic tier may answer, as far as configuration and caller say."""
    asked = request.control.tiers
    exact = policy.exact and scene.exact and (asked is None or "exact" in asked)
    semantic = policy.semantic and scene.semantic and (asked is None or "semantic" in asked)
    semantic = semantic and request.endpoint in CONVERSATIONS
    return exact, semantic


def _bypass(request: Request, scene: ScenePolicy, policy: CachePolicy, *, any_tier: bool) -> str | None:
    if request.control.no_store:
        return "no_store"
    if not any_tier:
        on = (policy.exact and scene.exact) or (policy.semantic and scene.semantic)
        return "tier_not_asked" if on else "tier_off"
    return bypass_reason(request.endpoint, request.body, resolved_model=request.resolved_model)


class Verdict(msgspec.Struct, frozen=True):
    """Whether an answer is stored: as an ``answer``, as a remembered ``negative``, or withheld for ``reason``."""

    kind: Literal["answer", "negative", "withheld"]
    reason: str = ""


_ANSWER, _NEGATIVE = Verdict("answer"), Verdict("negative")


def judge(request: Request, status: int, answer: JSON, size: int, policy: CachePolicy) -> Verdict:
    """What to do with a finished answer; ``size`` is form + body in bytes."""
    negative = policy.negative
    if size > policy.max_entry:
        return Verdict("withheld", "too_large")
    if status != 200:
        remembered = negative.ttl > 0 and status in negative.statuses and type(answer) is dict
        if remembered and _is_all_in_key(request):
            return _NEGATIVE
        return Verdict("withheld", "upstream_error")
    answers = answers_of(request.endpoint)
    reason = answers.completeness(answer)
    # Of several choices one that is empty tells nothing about the others.
    if (
        reason == "empty"
        and negative.ttl > 0
        and negative.empty
        and len(answer.get("choices") or (None,)) == 1
    ):
        return _NEGATIVE
    if reason is not None:
        return Verdict("withheld", reason)
    if negative.markers and _is_marked(answers.texts_of(answer), negative.markers):
        return _NEGATIVE if negative.ttl > 0 else Verdict("withheld", "no_answer")
    return _ANSWER


def _is_all_in_key(request: Request) -> bool:
    """Whether a refusal is the fault of what is in the key: a field outside of it may have been what was refused."""
    outside = irrelevant_fields(request.endpoint)
    return not any(value not in (None, False) for field, value in request.body.items() if field in outside)


def _is_marked(texts: Sequence[str], markers: tuple[str, ...]) -> bool:
    return any(marker in text for text in texts for marker in markers)
