"""The plan of a request: what is looked up, shared and stored, and why not."""

from __future__ import annotations

from typing import Any

import pytest

from stratacache.pipeline.plan import (
    CachePolicy,
    NegativePolicy,
    Plan,
    ScenePolicy,
    judge,
    plan_request,
)
from stratacache.types import CacheControl, Key, Request, Scope

POLICY = CachePolicy(
    exact=True,
    scenes={
        "default": ScenePolicy(3600, 0.1),
        "news": ScenePolicy(60, 0.0, early_refresh=2.0, stale_if_error=30.0),
        "uncached": ScenePolicy(60, 0.0, exact=False),
    },
    max_entry=1000,
    negative=NegativePolicy(120, empty=True, statuses=frozenset({404, 422}), markers=("NO ANSWER",)),
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


def plan_of(request: Request, policy: CachePolicy) -> Plan:
    return plan_request(request, Key(b"\x3f\xa0" * 8, b"form"), policy)


def saying(content: str | None, *more: str) -> dict[str, Any]:
    texts = [content, *more]
    return {
        "choices": [
            {"index": index, "message": {"content": text}, "finish_reason": "stop"}
            for index, text in enumerate(texts)
        ]
    }


def test_a_plain_request_is_looked_up_shared_and_stored_for_the_scenes_ttl() -> None:
    plan = plan_of(request(), POLICY)
    assert (plan.lookup, plan.share, plan.store, plan.bypass) == (True, True, True, None)
    assert (plan.ttl, plan.jitter, plan.only_if_cached) == (3600, 0.1, False)
    assert plan_of(request(CacheControl(scene="news")), POLICY).ttl == 60


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
    plan = plan_of(request(control, **fields), POLICY)
    assert (plan.lookup, plan.share, plan.store, plan.bypass) == (False, False, False, reason)


def test_an_alias_of_a_model_that_searches_the_web_bypasses_like_the_model() -> None:
    plan = plan_of(request(resolved_model="gpt-4o-search-preview"), POLICY)
    assert (plan.bypass, plan.store) == ("live_search", False)


def test_no_cache_asks_the_model_alone_and_renews_the_entry() -> None:
    plan = plan_of(request(CacheControl(no_cache=True)), POLICY)
    assert (plan.lookup, plan.share, plan.store, plan.bypass) == (False, False, True, "no_cache")


def test_a_switched_off_tier_bypasses() -> None:
    plan = plan_of(request(), CachePolicy(exact=False, scenes=POLICY.scenes, max_entry=1))
    assert (plan.bypass, plan.lookup, plan.store) == ("tier_off", False, False)


def test_a_caller_shortens_the_ttl_never_lengthens_it_and_zero_stores_nothing() -> None:
    assert plan_of(request(CacheControl(ttl=5)), POLICY).ttl == 5
    assert plan_of(request(CacheControl(ttl=99999)), POLICY).ttl == 3600
    assert not plan_of(request(CacheControl(ttl=0)), POLICY).store


def test_a_scene_can_switch_the_tier_off() -> None:
    plan = plan_of(request(CacheControl(scene="uncached")), POLICY)
    assert (plan.bypass, plan.store) == ("tier_off", False)


def test_an_answer_depends_on_what_it_can_be_invalidated_by() -> None:
    plan = plan_of(request(CacheControl(tags=("prices", "faq"))), POLICY)
    assert set(plan.tags) == {"*", "bucket:3fa", "model:m", "tenant:default", "prices", "faq"}


def verdict(
    answer: Any, status: int = 200, size: int = 10, policy: CachePolicy = POLICY, **fields: Any
) -> tuple[str, str]:
    got = judge(request(**fields), status, answer, size, policy)
    return got.kind, got.reason


def test_what_may_be_stored() -> None:
    assert verdict(ANSWER, size=1000) == ("answer", "")
    assert verdict(ANSWER, size=1001) == ("withheld", "too_large")
    assert verdict({"choices": []}) == ("withheld", "unfinished")
    assert verdict({"error": {}}, 500) == ("withheld", "upstream_error")


def test_no_answer_is_remembered_as_such() -> None:
    assert verdict(saying("")) == ("negative", "")
    assert verdict(saying("Sorry. NO ANSWER.")) == ("negative", "")
    assert verdict({"error": {}}, 404) == ("negative", "")
    assert verdict(saying("", "Something.")) == ("withheld", "empty"), "the other choice is an answer"
    assert verdict(None, 404) == ("withheld", "upstream_error"), "a page that is not JSON cannot be replayed"
    assert verdict({"error": {}}, 429) == ("withheld", "upstream_error")


@pytest.mark.parametrize(
    "field", [{"metadata": {"a": 1}}, {"user": "u"}, {"stream_options": {}}, {"stream": True}]
)
def test_a_refusal_that_another_request_of_the_same_key_may_not_meet_is_not_remembered(
    field: dict[str, Any],
) -> None:
    assert verdict({"error": {}}, 422, **field) == ("withheld", "upstream_error")
    assert verdict({"error": {}}, 422, stream=False, user=None) == ("negative", "")


def test_without_a_negative_ttl_no_answer_is_not_stored_at_all() -> None:
    policy = CachePolicy(
        exact=True, scenes=POLICY.scenes, max_entry=1000, negative=NegativePolicy(0, markers=("NO ANSWER",))
    )
    assert verdict(saying(""), policy=policy) == ("withheld", "empty")
    assert verdict(saying("NO ANSWER"), policy=policy) == ("withheld", "no_answer")
    assert verdict({"error": {}}, 404, policy=policy) == ("withheld", "upstream_error")
