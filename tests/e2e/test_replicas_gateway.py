"""Replicas behind the whole gateway: which one answered, failover, readiness, metrics, and what is kept."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from tests.fakes.engines import FakeEngine
from tests.fakes.upstream import FakeUpstream, Reply
from tests.harness import Gateway, question, running_gateway


@pytest.fixture
async def fakes() -> AsyncIterator[list[FakeUpstream]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(FakeUpstream()) for _ in range(2)]


@asynccontextmanager
async def gateway_on(fakes: list[FakeUpstream], **fields: Any) -> AsyncIterator[Gateway]:
    urls = [fake.base_url for fake in fakes]
    upstream = {"name": "pool", "kind": "openai", "replicas": urls, "models": ["fake-model"], **fields}
    async with running_gateway(fakes[0], {"upstreams": [upstream]}) as gateway:
        yield gateway
        gateway.system.fleets["pool"].check()


async def get(gateway: Gateway, path: str) -> tuple[int, str]:
    async with gateway.http.get(gateway.root + path) as response:
        return response.status, await response.text()


async def test_the_header_names_the_replica_and_a_hit_names_none(fakes: list[FakeUpstream]) -> None:
    async with gateway_on(fakes) as gateway:
        _, headers, _ = await gateway.ask(question())
        assert headers["x-strata-upstream"] in ("pool/0", "pool/1")
        await gateway.stored()
        _, headers, _ = await gateway.ask(question())
        assert headers["x-strata-cache"] == "hit"
        assert "x-strata-upstream" not in headers
        async with gateway.http.get(f"{gateway.base_url}/files") as response:
            assert response.headers.getall("x-strata-upstream") in (["pool/0"], ["pool/1"])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_survives_the_death_of_its_replica(fakes: list[FakeUpstream], stream: bool) -> None:
    async with gateway_on(fakes) as gateway:
        await fakes[0].stop()
        for number in range(4):
            status, headers, _ = await gateway.ask(question(f"{number}?", stream=stream))
            assert (status, headers["x-strata-upstream"]) == (200, "pool/1")
        assert (await get(gateway, "/readyz"))[0] == 200
        await fakes[1].stop()
        status, headers, _ = await gateway.ask(question("And now?"))
        assert (status, headers["x-strata-reason"]) == (502, "upstream_unreachable")
        assert (await get(gateway, "/readyz"))[0] == 503


async def test_metrics_and_stats_show_each_replica(fakes: list[FakeUpstream]) -> None:
    for fake in fakes:
        FakeEngine(fake, "vllm")
    async with gateway_on(fakes, engine="vllm") as gateway:
        fakes[0].script(Reply(status=503))
        for number in range(4):
            assert (await gateway.ask(question(f"{number}?")))[0] == 200
        gateway.clock.advance(60)
        await gateway.system.fleets["pool"].health.probe()  # type: ignore[attr-defined]
        text = (await get(gateway, "/metrics"))[1]
        for line in (
            'stratacache_replica_up{replica="pool/0"} 1.0',
            'stratacache_replica_calls_total{replica="pool/0",result="busy"} 1.0',
            'stratacache_upstream_retries_total{upstream="pool",why="busy"} 1.0',
            'stratacache_engine_kv_usage{replica="pool/1"} 0.25',
            'stratacache_engine_capacity_tokens{replica="pool/1"} 4096.0',
            'stratacache_breaker_state{dependency="replica pool/1"} 0.0',
        ):
            assert line in text
        stats = json.loads((await get(gateway, "/admin/stats"))[1])
        assert stats["retries"] == {"pool busy": 1}


async def test_an_invalidation_empties_the_engines_where_it_says_so(fakes: list[FakeUpstream]) -> None:
    engines = [FakeEngine(fake, "vllm") for fake in fakes]
    async with gateway_on(fakes, engine="vllm", reset_on=["handbook"]) as gateway:
        for tags in (["prices"], ["handbook"]):
            async with gateway.http.post(gateway.root + "/admin/invalidate", json={"tags": tags}) as response:
                assert response.status == 200
        for task in list(gateway.system.fleets["pool"].resetting):  # type: ignore[attr-defined]
            await task
    assert [engine.resets for engine in engines] == [1, 1]


async def test_another_replica_keeps_the_stored_answers(fakes: list[FakeUpstream]) -> None:
    forms = []
    for urls in (fakes[:1], fakes):
        async with gateway_on(urls) as gateway:
            _, headers, _ = await gateway.ask(question())
            forms.append(headers["x-strata-entry"])
    assert forms[0] == forms[1]
