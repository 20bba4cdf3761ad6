"""Health, metrics, statistics and explain: what they say, to whom, and what they keep to themselves."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.fakes.upstream import FakeUpstream, Gate, Reply
from tests.harness import Gateway, question, running_gateway

# Of the interface's list, what this version can count.
NAMES = {
    "stratacache_requests",
    "stratacache_stage_seconds",
    "stratacache_upstream_seconds",
    "stratacache_writeback",
    "stratacache_saved_tokens",
    "stratacache_singleflight_followers",
    "stratacache_store_entries",
    "stratacache_store_bytes",
    "stratacache_kv_blocks",
    "stratacache_prompt_tokens",
}


async def get(
    gateway: Gateway, path: str, headers: Mapping[str, str] | None = None
) -> tuple[int, Mapping[str, str], str]:
    async with gateway.http.get(gateway.root + path, headers=headers) as response:
        return response.status, response.headers, await response.text()


async def explain(gateway: Gateway, body: Any, headers: Mapping[str, str] | None = None) -> Any:
    async with gateway.http.post(f"{gateway.root}/admin/explain", json=body, headers=headers) as response:
        return response.status, await response.json()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages", {"max_tokens": 9, "messages": [{"role": "user", "content": "Hi!"}]}),
        ("/v1/responses", {"input": "Hi!", "store": False}),
        ("/v1/completions", {"prompt": "Hi!"}),
    ],
)
async def test_requests_of_every_dialect_are_explained(
    gateway: Gateway, path: str, body: dict[str, Any]
) -> None:
    url = f"{gateway.root}/admin/explain"
    asked = {"model": "fake-model", **body}
    async with gateway.http.post(url, params={"path": path}, json=asked) as response:
        told = await response.json()
    assert (response.status, told["would_store"], told["tiers"]["exact"]["outcome"]) == (200, True, "miss")


async def test_a_path_that_cannot_be_explained_is_refused_with_those_that_can(gateway: Gateway) -> None:
    url = f"{gateway.root}/admin/explain"
    async with gateway.http.post(url, params={"path": "/v1/nothing"}, json={}) as response:
        told = await response.json()
    assert response.status == 400
    assert "/v1/messages" in told["error"]["message"]


async def scrape(gateway: Gateway) -> dict[str, list[Any]]:
    status, headers, text = await get(gateway, "/metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    return {family.name: family.samples for family in text_string_to_metric_families(text)}


async def test_health_is_200_also_without_any_upstream(fake: FakeUpstream, gateway: Gateway) -> None:
    await fake.stop()
    status, _, text = await get(gateway, "/healthz")
    assert (status, json.loads(text)["status"]) == (200, "ok")
    async with gateway.http.head(gateway.root + "/healthz") as response:
        assert response.status == 200


async def test_readiness_follows_the_upstream(fake: FakeUpstream, gateway: Gateway) -> None:
    assert (await get(gateway, "/readyz"))[0] == 200
    port = int(fake.base_url.rpartition(":")[2].partition("/")[0])
    await fake.stop()
    assert (await gateway.ask(question()))[0] == 502
    status, _, text = await get(gateway, "/readyz")
    assert (status, json.loads(text)) == (503, {"ready": False, "upstreams": {"fake": False}})
    assert 'stratacache_upstream_ready{upstream="fake"} 0.0' in (await get(gateway, "/metrics"))[2]
    await fake.start(port)
    assert (await get(gateway, "/readyz"))[0] == 200


async def test_metrics_name_everything_that_the_interface_promises(
    fake: FakeUpstream, gateway: Gateway
) -> None:
    gate = Gate()
    fake.script(Reply(header_gate=gate, usage=(12, 5, 8)))
    asking = [asyncio.ensure_future(gateway.ask(question())) for _ in range(3)]
    await gateway.listening(3)
    gate.open()
    await asyncio.gather(*asking)
    await gateway.stored()
    await gateway.ask(question())
    await gateway.ask(question(), {"cache-control": "no-store"})
    fake.default = Reply(finish_reason="length")
    await gateway.ask(question("Tell me everything."))
    metrics = await scrape(gateway)
    assert set(metrics) >= NAMES
    rows = {
        (s.labels["outcome"], s.labels["tier"], s.labels["reason"]): s.value
        for s in metrics["stratacache_requests"]
    }
    assert rows == {
        ("miss", "none", "not_found"): 2,
        ("hit", "exact", "coalesced"): 2,
        ("hit", "exact", "exact"): 1,
        ("bypass", "none", "no_store"): 1,
    }
    value = {
        (name, *s.labels.values()): s.value
        for name, found in metrics.items()
        for s in found
        if "bucket" not in s.name
    }
    assert value["stratacache_singleflight_followers",] == 2
    assert value["stratacache_saved_tokens", "exact"] == 3 * 17
    assert value["stratacache_prompt_tokens", "read"] == 8
    assert value["stratacache_prompt_tokens", "fresh"] == 4 + 12 + 12
    assert value["stratacache_writeback", "stored"] == 1
    assert value["stratacache_withheld", "truncated"] == 1
    assert value["stratacache_store_entries",] == 1
    assert value["stratacache_store_bytes",] > 0
    stages = {s.labels["stage"] for s in metrics["stratacache_stage_seconds"]}
    assert stages == {"key", "exact", "upstream"}


async def test_labels_are_bounded_and_tell_no_secrets(fake: FakeUpstream) -> None:
    upstream = {"name": "fake", "kind": "openai", "base_url": fake.base_url, "models": ["*"]}
    async with running_gateway(fake, {"upstreams": [upstream]}) as gateway:
        for number in range(300):
            body = {**question("a secret prompt"), "model": f"model-{number}", "user": "alice"}
            await gateway.ask(body, {"authorization": "Bearer sk-caller", "x-strata-namespace": "my-space"})
        await gateway.ask(question(), {"x-strata-tags": "tagged", "x-strata-conversation": "conv"})
        _, _, text = await get(gateway, "/metrics")
        metrics = await scrape(gateway)
        _, _, stats = await get(gateway, "/admin/stats")
    models = {s.labels["model"] for s in metrics["stratacache_requests"]}
    assert len(models) <= 101
    assert len(text) < 60_000
    for secret in ("secret prompt", "alice", "sk-caller", "my-space", "tagged", "conv", "Hello from"):
        assert secret not in text
        assert secret not in stats


async def test_stats_are_the_same_figures_as_json(fake: FakeUpstream, gateway: Gateway) -> None:
    await gateway.ask(question())
    await gateway.stored()
    await gateway.ask(question())
    status, _, text = await get(gateway, "/admin/stats")
    stats = json.loads(text)
    assert status == 200
    assert (stats["requests"], stats["outcomes"], stats["hits_by_tier"]) == (
        2,
        {"miss": 1, "hit": 1},
        {"exact": 1},
    )
    assert stats["store"]["entries"] == 1
    assert stats["upstream_calls"] == {"fake": 1}
    assert stats["saved_tokens"] == {"exact": 17}
    assert stats["upstreams_ready"] == {"fake": True}
    assert "Infinity" not in text


async def test_explain_says_what_would_happen_and_does_none_of_it(
    fake: FakeUpstream, gateway: Gateway
) -> None:
    status, told = await explain(gateway, question())
    assert (status, told["tiers"]["exact"]) == (200, {"outcome": "miss", "reason": "not_found"})
    assert (told["would_call_upstream"], told["would_store"], told["ttl_seconds"]) == (True, True, 3600)
    assert (told["model"], told["resolved_model"], told["upstream"]) == ("fake-model", "fake-model", "fake")
    assert fake.calls == []
    assert (await gateway.system.store.stats()).entries == 0

    _, headers, _ = await gateway.ask(question())
    await gateway.stored()
    gateway.clock.advance(5)
    _, told = await explain(gateway, question())
    assert told["tiers"]["exact"] == {"outcome": "hit", "reason": "exact", "age": 5}
    assert told["entry"] == headers["x-strata-entry"]
    assert not told["would_call_upstream"]

    _, told = await explain(gateway, question(), {"cache-control": "no-store"})
    assert told["tiers"]["exact"] == {"outcome": "bypass", "reason": "no_store"}
    assert not told["would_store"]
    _, told = await explain(gateway, question("New?"), {"cache-control": "only-if-cached"})
    assert not told["would_call_upstream"]
    _, told = await explain(gateway, question(store=True))
    assert told["tiers"]["exact"] == {"outcome": "bypass", "reason": "stored_upstream"}
    assert fake.chat_calls == 1
    stats = json.loads((await get(gateway, "/admin/stats"))[2])
    assert stats["requests"] == 1  # explaining is not serving


async def test_explain_refuses_as_serving_would(gateway: Gateway) -> None:
    status, told = await explain(gateway, question(messages=[]))
    assert (status, told["error"]["code"]) == (400, "empty_array")
    status, told = await explain(gateway, {**question(), "model": "other"})
    assert (status, told["error"]["code"]) == (404, "model_not_found")


async def test_rights(fake: FakeUpstream) -> None:
    def key(name: str, *rights: str) -> dict[str, Any]:
        return {"key_hash": "sha256:" + hashlib.sha256(name.encode()).hexdigest(), "rights": list(rights)}

    auth = {"keys": [key("chat", "chat"), key("admin", "admin"), key("both", "chat", "admin")]}
    async with running_gateway(fake, {"auth": auth}) as gateway:
        statuses = {}
        for who in ("", "wrong", "chat", "admin", "both"):
            headers = {"authorization": f"Bearer {who}"} if who else {}
            statuses[who] = [
                (await get(gateway, path, headers))[0]
                for path in ("/healthz", "/readyz", "/v1/models", "/v1/batches", "/metrics", "/admin/stats")
            ] + [
                (await explain(gateway, question(), headers))[0],
                (await gateway.ask(question(), headers))[0],
            ]
    assert statuses == {
        "": [200, 200, 401, 401, 401, 401, 401, 401],
        "wrong": [200, 200, 401, 401, 401, 401, 401, 401],
        "chat": [200, 200, 200, 200, 403, 403, 403, 200],
        "admin": [200, 200, 403, 403, 200, 200, 200, 403],
        "both": [200, 200, 200, 200, 200, 200, 200, 200],
    }
    assert len(fake.calls) == 3  # batches twice, one answer for both chat keys
