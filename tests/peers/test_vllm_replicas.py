"""Two replicas of real vLLM behind the gateway: affinity against taking turns, tenants, metrics, reset, kill -9.

``make test-vllm`` runs it; ``STRATACACHE_RESULTS`` names the file that the figures go to.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import statistics
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.upstream import FakeUpstream
from tests.harness import Gateway, running_gateway
from tests.peers.vllm_kit import BLOCK_TOKENS, MODEL, Server, servers

from stratacache.upstream.replicas import ReplicaSet

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1800)]

CONVERSATIONS, TURNS = 7, 3  # an odd number: taking turns moves each of them every time
SYSTEM = "You answer travellers' questions about trains, tickets, luggage and delays. " * 8
TOPIC = (
    "I am going to {} next week with two friends, a bicycle and a dog, and I have not booked anything yet. "
    * 6
)
PLACES = ("Lisbon", "Vienna", "Oslo", "Prague", "Turin", "Basel", "Gdansk")

FIGURES: dict[str, Any] = {}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    core = int(os.environ["STRATACACHE_CORE"]) if "STRATACACHE_CORE" in os.environ else None
    with servers(2, tmp_path_factory.mktemp("vllm"), core=core) as started:
        yield started
    if "STRATACACHE_RESULTS" in os.environ:
        Path(os.environ["STRATACACHE_RESULTS"]).write_text(
            json.dumps(FIGURES, indent=1) + "\n", encoding="utf-8"
        )


@asynccontextmanager
async def gateway_on(pair: list[Server], *, affinity: bool = True) -> AsyncIterator[Gateway]:
    keys = [
        {
            "key_hash": f"sha256:{hashlib.sha256(name.encode()).hexdigest()}",
            "tenant": name,
            "rights": ["chat", "admin"],
        }
        for name in ("acme", "globex", "turns", "reset", "kill")
    ]
    upstream = {
        "name": "pool",
        "kind": "openai",
        "replicas": [server.base_url for server in pair],
        "engine": "vllm",
        "models": [MODEL],
        "reset_on": ["handbook"],
    }
    config = {"auth": {"keys": keys}, "upstreams": [upstream], "tiers": {"kv": {"affinity": affinity}}}
    async with FakeUpstream() as unused, running_gateway(unused, config) as gateway:
        gateway.clock.advance(60)
        await fleet(gateway).health.probe()
        yield gateway


def fleet(gateway: Gateway) -> ReplicaSet:
    return gateway.system.fleets["pool"]


def opening(place: str) -> list[dict[str, str]]:
    return [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": TOPIC.format(*[place] * 6) + f"What should I know about {place}?"},
    ]


async def say(
    gateway: Gateway, tenant: str, messages: list[dict[str, str]], **fields: Any
) -> tuple[int, dict[str, str], Any]:
    body = {"model": MODEL, "messages": messages, "max_tokens": 12, "temperature": 0, **fields}
    headers = {"authorization": f"Bearer {tenant}", "cache-control": "no-store"}
    status, got, answer = await gateway.ask(body, headers)
    return status, dict(got), answer


def cached(answer: Any) -> int:
    details = answer["usage"]["prompt_tokens_details"]
    return (details or {}).get("cached_tokens") or 0


async def converse(gateway: Gateway, tenant: str) -> list[dict[str, Any]]:
    """All conversations, turn by turn; one row for each answer."""
    histories = [opening(place) for place in PLACES[:CONVERSATIONS]]
    rows = []
    for turn in range(TURNS):
        for number, history in enumerate(histories):
            began = time.perf_counter()
            status, headers, answer = await say(gateway, tenant, history)
            assert status == 200, answer
            rows.append(
                {
                    "turn": turn + 1,
                    "conversation": number,
                    "replica": headers["x-strata-upstream"],
                    "prompt_tokens": answer["usage"]["prompt_tokens"],
                    "cached_tokens": cached(answer),
                    "seconds": round(time.perf_counter() - began, 3),
                }
            )
            history.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
            history.append({"role": "user", "content": f"And what else, thing number {turn + 2}?"})
    return rows


def later(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What turns after the first had cached, and how long they took."""
    after = [row for row in rows if row["turn"] > 1]
    prompt, found = sum(r["prompt_tokens"] for r in after), sum(r["cached_tokens"] for r in after)
    seconds = statistics.median(r["seconds"] for r in after)
    return {"cached_share": round(found / prompt, 3), "median_seconds": seconds, "rows": rows}


async def test_conversations_stay_where_their_prefix_is(pair: list[Server]) -> None:
    async with gateway_on(pair) as gateway:
        by_prefix = later(await converse(gateway, "acme"))
    async with gateway_on(pair, affinity=False) as gateway:
        in_turn = later(await converse(gateway, "turns"))
    FIGURES["affinity"], FIGURES["in_turn"] = by_prefix, in_turn
    print(
        f"\ncached share of later turns: affinity {by_prefix['cached_share']}, in turn {in_turn['cached_share']}"
    )
    print(f"median seconds: affinity {by_prefix['median_seconds']}, in turn {in_turn['median_seconds']}")
    homes: dict[int, set[str]] = {}
    for row in by_prefix["rows"]:
        homes.setdefault(row["conversation"], set()).add(row["replica"])
    assert all(len(home) == 1 for home in homes.values())
    assert len(set().union(*homes.values())) == 2  # all of them on one would be no balance
    # All but what is new and the end that fills no block.
    assert all(
        r["prompt_tokens"] - r["cached_tokens"] < 40 + BLOCK_TOKENS
        for r in by_prefix["rows"]
        if r["turn"] > 1
    )
    assert by_prefix["cached_share"] > 1.2 * in_turn["cached_share"]


async def test_a_tenant_finds_nothing_of_anothers(pair: list[Server]) -> None:
    async with gateway_on(pair) as gateway:
        messages = [
            *opening("Bergen"),
            {"role": "assistant", "content": "Yes."},
            {"role": "user", "content": "Why?"},
        ]
        first = await say(gateway, "acme", messages)
        again = await say(gateway, "acme", messages)
        other = [await say(gateway, "globex", messages) for _ in range(1)]
        guessed = await say(gateway, "globex", messages, cache_salt="acme")
    FIGURES["tenants"] = {
        "first": cached(first[2]),
        "own_again": cached(again[2]),
        "other_tenant": [cached(answer) for _, _, answer in other],
        "other_tenant_with_a_salt": cached(guessed[2]),
    }
    print("\ntenants:", FIGURES["tenants"])
    assert cached(again[2]) >= 8 * BLOCK_TOKENS
    assert all(cached(answer) == 0 for _, _, answer in other)
    assert cached(guessed[2]) == 0


async def test_the_engines_figures_are_in_our_metrics(pair: list[Server]) -> None:
    async with gateway_on(pair) as gateway:
        url = gateway.base_url.removesuffix("/v1") + "/metrics"
        async with gateway.http.get(url, headers={"authorization": "Bearer acme"}) as response:
            text = await response.text()
    lines = [line for line in text.splitlines() if line.startswith("stratacache_engine_")]
    FIGURES["metrics"] = lines
    for name in ("kv_usage", "capacity_tokens", "prefix_queried_tokens", "prefix_hit_tokens", "preemptions"):
        found = [line for line in lines if line.startswith(f"stratacache_engine_{name}{{")]
        assert len(found) == 2, name
    hits = [
        float(line.split()[1]) for line in lines if line.startswith("stratacache_engine_prefix_hit_tokens{")
    ]
    assert sum(hits) > 0


async def test_an_invalidation_empties_the_engines_caches(pair: list[Server]) -> None:
    async with gateway_on(pair) as gateway:
        messages = opening("Ghent")
        await say(gateway, "reset", messages)
        kept = cached((await say(gateway, "reset", messages))[2])
        url = gateway.base_url.removesuffix("/v1") + "/admin/invalidate"
        headers = {"authorization": "Bearer reset"}
        async with gateway.http.post(url, json={"tags": ["handbook"]}, headers=headers) as response:
            assert response.status == 200
        await asyncio.gather(*fleet(gateway).resetting)
        emptied = cached((await say(gateway, "reset", messages))[2])
    FIGURES["reset"] = {"before": kept, "after": emptied}
    print("\nreset:", FIGURES["reset"])
    assert kept > 0
    assert emptied == 0


async def test_a_killed_replica_is_replaced_within_the_request(pair: list[Server]) -> None:
    async with gateway_on(pair) as gateway:
        pool = fleet(gateway)
        messages = opening("Lyon")
        asking = asyncio.ensure_future(say(gateway, "kill", messages, max_tokens=60))
        while not any(one.active for one in pool.replicas):  # noqa: ASYNC110 - production has no use for an event
            await asyncio.sleep(0)
        victim = next(i for i, one in enumerate(pool.replicas) if one.active)
        began = time.perf_counter()
        pair[victim].kill()
        status, headers, answer = await asking
        assert status == 200, answer
        seconds = time.perf_counter() - began
        assert headers["x-strata-upstream"] == pool.replicas[1 - victim].name
        after = [
            (await say(gateway, "kill", [*messages[:1], {"role": "user", "content": f"{n}?"}]))
            for n in range(4)
        ]
        assert {one[0] for one in after} == {200}
        assert {one[1]["x-strata-upstream"] for one in after} == {pool.replicas[1 - victim].name}
        assert await pool.ready()
        placed = gateway.system.metrics.summary()["retries"]
    FIGURES["kill"] = {"seconds_to_the_answer": round(seconds, 2), "retries": placed}
    print("\nkill -9:", FIGURES["kill"])
