"""Every request is counted somewhere: refusals, what is passed through, tenants, new and returning users."""

from __future__ import annotations

import hashlib
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from tests.fakes.upstream import FakeUpstream, Reply
from tests.harness import Gateway, question, running_gateway

from stratacache.observe.names import COUNTERS

REQUEST_LABELS = ("endpoint", "model", "scene", "outcome", "tier", "reason")
ADMIN = {"authorization": "Bearer admin-key"}


def key(name: str, **fields: Any) -> dict[str, Any]:
    return {"key_hash": "sha256:" + hashlib.sha256(name.encode()).hexdigest(), **fields}


async def counts(
    gateway: Gateway, name: str, headers: dict[str, str] | None = None
) -> dict[tuple[str, ...], float]:
    """Samples of a counter by its label values, in the order of ``names.COUNTERS``."""
    async with gateway.http.get(gateway.root + "/metrics", headers=headers) as response:
        text = await response.text()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    labels = {one.name: one.labels for one in COUNTERS.values()} | {"stratacache_requests": REQUEST_LABELS}
    return {
        tuple([sample.labels[label] for label in labels[name]]): sample.value
        for sample in families[name].samples
        if sample.name.endswith("_total")
    }


async def test_own_refusals_are_counted_by_route_status_and_code(
    fake: FakeUpstream, gateway: Gateway
) -> None:
    await gateway.ask(b"{")
    await gateway.ask({**question(), "model": "nobody-s"})
    for path in ("/secret-path-1", "/secret-path-2", "/v1/models/nobody-s"):
        await gateway.http.get(gateway.root + path)
    await gateway.http.get(gateway.root + "/admin/ledger?days=0")
    await gateway.http.delete(gateway.root + "/healthz")
    refused = await counts(gateway, "stratacache_refusals")
    assert refused == {
        ("/v1/chat/completions", "400", "invalid_json"): 1,
        ("/v1/chat/completions", "404", "model_not_found"): 1,
        ("other", "404", "not_found"): 2,
        ("/v1/models/*", "404", "model_not_found"): 1,
        ("/admin/ledger", "400", "invalid_value"): 1,
        ("/healthz", "405", "method_not_allowed"): 1,
    }


async def test_what_is_passed_through_is_counted_and_paid_for(fake: FakeUpstream, gateway: Gateway) -> None:
    usage = {"input_tokens": 100, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 64}}
    fake.routes["/v1/moderated"] = Reply(body={"object": "response", "usage": usage})
    body = {"model": "fake-model", "input": "a secret prompt"}
    async with gateway.http.post(f"{gateway.base_url}/moderated", json=body) as response:
        assert response.headers["x-strata-reason"] == "passthrough"
        await response.read()
    async with gateway.http.get(f"{gateway.base_url}/files") as response:
        await response.read()
    rows = await counts(gateway, "stratacache_requests")
    assert rows == {
        ("passthrough", "fake-model", "none", "bypass", "none", "passthrough"): 1,
        ("passthrough", "none", "none", "bypass", "none", "passthrough"): 1,
    }
    assert await counts(gateway, "stratacache_prompt_tokens") == {
        ("fresh",): 36,
        ("read",): 64,
        ("write",): 0,
    }
    await fake.stop()
    await gateway.http.post(f"{gateway.base_url}/moderated", json=body)
    failed = ("passthrough", "fake-model", "none", "bypass", "none", "upstream_unreachable")
    assert (await counts(gateway, "stratacache_requests"))[failed] == 1


async def test_tenants_have_labels_and_users_are_new_once(fake: FakeUpstream) -> None:
    keys = [key("admin-key", rights=["admin"]), key("one", tenant="acme"), key("two", tenant="acme")]
    async with running_gateway(fake, {"auth": {"keys": keys}}) as gateway:
        for name in ("one", "one", "two"):
            await gateway.ask(question(), {"authorization": f"Bearer {name}"})
            await gateway.stored()
        await gateway.ask({**question(), "user": "u1"}, {"authorization": "Bearer one"})
        tenants = await counts(gateway, "stratacache_tenant_requests", ADMIN)
        users = await counts(gateway, "stratacache_user_requests", ADMIN)
    assert tenants == {("acme", "miss", "none"): 1, ("acme", "hit", "exact"): 3}
    assert users == {("new", "miss"): 1, ("returning", "hit"): 1, ("new", "hit"): 2}


async def test_many_tenants_share_a_label(fake: FakeUpstream) -> None:
    keys = [key("admin-key", rights=["admin"])]
    keys += [key(f"key-{number}", tenant=f"tenant-{number}") for number in range(60)]
    async with running_gateway(fake, {"auth": {"keys": keys}}) as gateway:
        for number in range(60):
            await gateway.ask(question(), {"authorization": f"Bearer key-{number}"})
        tenants = await counts(gateway, "stratacache_tenant_requests", ADMIN)
    # The administrator's tenant is the first of the fifty.
    assert len(tenants) == 50
    assert tenants["other", "miss", "none"] == 11


async def test_a_stand_in_names_the_upstream_that_failed(fake: FakeUpstream) -> None:
    scene = {"ttl": 100, "jitter": 0, "stale_if_error": 50, "early_refresh": 0}
    async with running_gateway(fake, {"scenes": {"default": scene}}) as gateway:
        await gateway.ask(question())
        await gateway.stored()
        gateway.clock.advance(120)
        fake.default = Reply(status=503)
        _, headers, _ = await gateway.ask(question())
    assert (headers["x-strata-cache"], headers["x-strata-upstream"]) == ("stale", "fake")
