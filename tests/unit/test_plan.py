"""The plan of a request: what is looked up, shared and stored, and why not."""

from __future__ import annotations

from typing import Any

import pytest

from stratacache.pipeline.plan import CachePolicy, ScenePolicy, plan_request, storable
from stratacache.types import CacheControl, Request, Scope

POLICY = CachePolicy(
    exact=True,
    scenes={"default": ScenePolicy(3600, 0.1), "news": ScenePolicy(60, 0.0)},
    max_entry=1000,
)
ANSWER = {"choices": [{"index": 0, "message": {"content": "Paris."}, "finish_reason": "stop"}]}


def request(control: CacheControl | None = None, resolved_model: str = "m", **fields: Any) -> Request:
    return Request(
        endpoint="chat.completions",
        model="m",
        resolved_model=resolved_model,
        upstream="u",
        body={"model": "m", "messages": [{"role": "user", "content": "Hi"}], **fields},
        scope=Scope(),
        control=control or CacheControl(),
    )


def test_a_plain_request_is_looked_up_shared_and_stored_for_the_scenes_ttl() -> None:
    plan = plan_request(request(), POLICY)
    assert (plan.lookup, plan.share, plan.store, plan.bypass) == (True, True, True, None)
    assert (plan.ttl, plan.jitter, plan.only_if_cached) == (3600, 0.1, False)
    assert plan_request(request(CacheControl(scene="news")), POLICY).ttl == 60


@pytest.mark.parametrize(
    ("control", "fields", "reason"),
    [
        (CacheControl(no_store=True), {}, "no_store"),
        (CacheControl(no_store=True, no_cache=True), {}, "no_store"),
        (CacheControl(tiers=frozenset()), {}, "tier_not_asked"),
        (CacheControl(tiers=frozenset({"semantic"})), {}, "tier_not_asked"),
        (CacheControl(), {"store": True}, "stored_upstream"),
        (CacheControl(no_cache=True), {"web_search_options": {}}, "live_search"),
    ],
)
def test_a_bypass_touches_no_cache_at_all(control: CacheControl, fields: dict[str, Any], reason: str) -> None:
    plan = plan_request(request(control, **fields), POLICY)
    assert (plan.lookup, plan.share, plan.store, plan.bypass) == (False, False, False, reason)


def test_an_alias_of_a_model_that_searches_the_web_bypasses_like_the_model() -> None:
    plan = plan_request(request(resolved_model="gpt-4o-search-preview"), POLICY)
    assert (plan.bypass, plan.store) == ("live_search", False)


def test_no_cache_asks_the_model_alone_and_renews_the_entry() -> None:
    plan = plan_request(request(CacheControl(no_cache=True)), POLICY)
    assert (plan.lookup, plan.share, plan.store, plan.bypass) == (False, False, True, "no_cache")


def test_a_switched_off_tier_bypasses() -> None:
    plan = plan_request(request(), CachePolicy(exact=False, scenes=POLICY.scenes, max_entry=1))
    assert (plan.bypass, plan.lookup, plan.store) == ("tier_off", False, False)


def test_a_caller_shortens_the_ttl_never_lengthens_it_and_zero_stores_nothing() -> None:
    assert plan_request(request(CacheControl(ttl=5)), POLICY).ttl == 5
    assert plan_request(request(CacheControl(ttl=99999)), POLICY).ttl == 3600
    assert not plan_request(request(CacheControl(ttl=0)), POLICY).store


def test_what_may_be_stored() -> None:
    assert storable(ANSWER, 1000, POLICY) is None
    assert storable(ANSWER, 1001, POLICY) == "too_large"
    assert storable({"choices": []}, 10, POLICY) == "unfinished"
