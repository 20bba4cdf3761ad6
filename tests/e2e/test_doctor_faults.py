"""``stratacache doctor`` against gateways, stores and files that are really out of order."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.contract.redis_kit import eventually
from tests.e2e.test_reindex import ASKED, STORED, config, parts
from tests.fakes.upstream import FakeUpstream, Reply
from tests.gateway_process import run, serving, upstream_of
from tests.harness import Gateway, question, running_gateway
from tests.semantic_kit import Embedder
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer

from stratacache.errors import ModelError, StoreError
from stratacache.types import Entry, PutResult

pytest_plugins = ["tests.servers.fixtures"]


async def doctor(
    folder: Path, *args: str, gateway: Gateway | None = None, store: str | None = None
) -> dict[str, Any]:
    """The findings by name, of the command in a process of its own, with its exit code under ``code``."""
    file = folder / "doctor.yaml"
    file.write_text(json.dumps({"store": store} if store else {}))
    where = ("--url", gateway.root) if gateway is not None else ()
    ended = await asyncio.to_thread(run, "doctor", "--json", "--config", str(file), *where, *args, cwd=folder)
    told = json.loads(ended.out)
    found = {row["check"]: row for row in told["checks"] if row["state"] == "found"}
    assert ended.code == (1 if found else 0), ended.err
    return {**found, "states": {row["check"]: row["state"] for row in told["checks"]}}


async def test_a_gateway_that_is_well(fake: FakeUpstream, tmp_path: Path) -> None:
    async with running_gateway(fake) as gateway:
        await gateway.ask(question())
        told = await doctor(tmp_path, gateway=gateway)
        assert set(told) == {"states", "clocks"}  # the test's clock is of 2023
        unseen = {name for name, state in told["states"].items() if state == "unknown"}
        assert unseen == {
            "embedder changed", "index and store", "threshold drift", "block leak", "redis slow", "redis memory",
            "store unreachable", "damaged files",
        }  # fmt: skip


async def test_clocks_are_compared_with_this_machine_and_with_each_other(
    fake: FakeUpstream, tmp_path: Path
) -> None:
    upstreams = {"upstreams": [upstream_of(fake)]}
    (tmp_path / "right").mkdir()
    with serving(tmp_path / "right", upstreams) as right:
        assert "clocks" not in await doctor(tmp_path, "--url", right.root)
        async with running_gateway(fake) as wrong:
            told = await doctor(tmp_path, "--url", right.root, "--beside", wrong.root)
            assert f"{wrong.root} -" in told["clocks"]["evidence"]


async def test_an_upstream_that_is_gone_and_scenes_without_jitter(fake: FakeUpstream, tmp_path: Path) -> None:
    scenes = {"scenes": {"default": {"jitter": 0}}}
    async with running_gateway(fake, scenes) as gateway:
        for number in range(25):
            await gateway.ask(question(f"What is {number}?"))
        await gateway.stored()
        told = await doctor(tmp_path, gateway=gateway)
        assert "no jitter in default; 100% of the entries" in told["lives in lockstep"]["evidence"]
    replicas = ["http://127.0.0.1:9/v1", "http://127.0.0.1:10/v1"]
    gone = {"name": "gone", "kind": "openai", "models": ["gone"], "retries": 0, "replicas": replicas}
    async with running_gateway(fake, {"upstreams": [gone]}) as gateway:
        for _ in range(6):
            await gateway.ask(question(model="gone"))
        assert "down: " in (await doctor(tmp_path, gateway=gateway))["upstream"]["evidence"]


async def test_clients_that_ask_for_far_more_than_they_use_and_never_repeat(
    fake: FakeUpstream, tmp_path: Path
) -> None:
    async with running_gateway(fake) as gateway:
        for number in range(25):
            await gateway.ask(question(f"What is {number}?", max_tokens=4000))
        told = await doctor(tmp_path, gateway=gateway)
        assert "100,000 tokens allowed" in told["max_tokens"]["evidence"]
        assert "not_found 25" in told["cold cache"]["evidence"]


async def test_an_embedder_that_changed_and_cannot_embed_anew(fake: FakeUpstream, tmp_path: Path) -> None:
    first = config(tmp_path, embedder="sentence-transformers:one")
    async with running_gateway(fake, first, models=parts(named("sentence-transformers:one/1"))) as gateway:
        await gateway.ask(question(STORED))
        await gateway.stored()
    broken = named("sentence-transformers:two/1")
    broken.fault = ModelError("no weights", code="embedder_failed")
    second = config(tmp_path, embedder="sentence-transformers:two")
    async with running_gateway(fake, second, models=parts(broken)) as gateway:
        told = await doctor(tmp_path, gateway=gateway)
        assert "'sentence-transformers:one/1'" in told["embedder changed"]["evidence"]
        assert "'sentence-transformers:two/1'" in told["embedder changed"]["evidence"]


def named(fingerprint: str) -> Embedder:
    embedder = Embedder()
    embedder.fingerprint = fingerprint
    return embedder


async def test_an_index_whose_store_lost_its_entries(fake: FakeUpstream, tmp_path: Path) -> None:
    async with running_gateway(fake, config(tmp_path), models=parts()) as gateway:
        for number in range(30):
            await gateway.ask(question(f"{STORED} {number}"))
        await gateway.stored()
        await gateway.system.store.invalidate(("*",), dry_run=False)  # and the index hears nothing of it
        digests = [
            one.digest
            async for page in gateway.system.semantic.index.questions()  # type: ignore[union-attr]
            for one in page
        ]
        await gateway.system.store.invalidate((), digests)
        told = await doctor(tmp_path, gateway=gateway)
        assert "30 questions beside 0 entries" in told["index and store"]["evidence"]
        await gateway.ask(question(ASKED))  # what finds a question without its answer is counted
        assert gateway.system.metrics.summary()["semantic"]["lookups"]["entry_gone"] == 1


async def test_redis_that_is_slow(fake: FakeUpstream, redis_server: RedisServer, tmp_path: Path) -> None:
    async with Proxy(redis_server.port) as proxy:
        store = f"redis://127.0.0.1:{proxy.port}"
        assert "redis slow" not in await doctor(tmp_path, store=store)
        proxy.delay = 0.02
        told = await doctor(tmp_path, store=store)
        assert f"127.0.0.1:{proxy.port}" in told["redis slow"]["evidence"]
        proxy.mode = "refuse"
        told = await doctor(tmp_path, store=store)
        assert "redis" in told["store unreachable"]["evidence"]


async def test_a_slow_store_is_named_as_the_bottleneck(
    fake: FakeUpstream, redis_server: RedisServer, tmp_path: Path
) -> None:
    async with Proxy(redis_server.port) as proxy, aiohttp.ClientSession() as http:
        store = f"redis://127.0.0.1:{proxy.port}"
        exact = {"budget": "10s", "near_cache_bytes": 0}
        # A process of its own: times are real there.
        slow = {"store": store, "tiers": {"exact": exact}, "upstreams": [upstream_of(fake)]}
        with serving(tmp_path, slow) as gateway:
            proxy.delay = 0.03
            for number in range(20):
                body = question(f"What is {number}?")
                async with http.post(f"{gateway.url}/chat/completions", json=body) as answer:
                    assert answer.status == 200
            told = await doctor(tmp_path, "--url", gateway.root, store=store)
            assert "slowest: exact" in told["bottleneck"]["evidence"]


async def test_a_store_that_is_left_alone(
    fake: FakeUpstream, redis_server: RedisServer, tmp_path: Path
) -> None:
    async with Proxy(redis_server.port) as proxy:
        store = f"redis://127.0.0.1:{proxy.port}"
        async with running_gateway(fake, {"store": store}) as gateway:
            proxy.mode = "refuse"
            for number in range(6):
                await gateway.ask(question(f"Who is {number}?"))
            told = await doctor(tmp_path, gateway=gateway, store=store)
            assert "store is left alone" in told["dependency"]["evidence"]
            proxy.mode = "pass"
            await eventually(gateway.system.store.check)  # its connection is not tried again at once


async def test_redis_that_is_full(fake: FakeUpstream, tmp_path: Path) -> None:
    with RedisServer() as server:
        used = int(server.command("INFO", "memory").partition(b"used_memory:")[2].split()[0])
        server.command("CONFIG", "SET", "maxmemory", str(used + (4 << 20)))
        server.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
        async with running_gateway(fake, {"store": server.url}) as gateway:
            fake.default = Reply(text="x" * 400_000)
            for number in range(20):
                await gateway.ask(question(f"What is {number}?"))
            assert await gateway.system.writeback.drain(30)
            told = await doctor(tmp_path, gateway=gateway, store=server.url)
            assert "policy noeviction" in told["redis memory"]["evidence"]
            assert " 0 refused" not in told["redis memory"]["evidence"]
        server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        with server.connect() as connection:
            for number in range(80):
                connection.command("SET", f"other:{number}", "x" * 100_000)
        told = await doctor(tmp_path, store=server.url)
        assert "policy allkeys-lru" in told["redis memory"]["evidence"]
        assert " 0 evicted" not in told["redis memory"]["evidence"]


async def test_answers_that_do_not_reach_the_store(
    fake: FakeUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuses(digest: bytes, entry: Entry) -> PutResult:
        raise StoreError("the disk is full")

    async with running_gateway(fake) as gateway:
        monkeypatch.setattr(gateway.system.store, "put", refuses)
        await gateway.ask(question())
        assert await gateway.system.writeback.drain(30)
        told = await doctor(tmp_path, gateway=gateway)
        assert told["write-back"]["evidence"] == "0 of 1 reached the store"


async def test_a_file_that_was_damaged(fake: FakeUpstream, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/cache.db"
    (tmp_path / "cache.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 8192)
    async with running_gateway(fake, {"store": store}) as gateway:
        await gateway.ask(question())
    told = await doctor(tmp_path, store=store)
    assert "cache.db.corrupt-" in told["damaged files"]["evidence"]


async def test_answers_that_turn_out_wrong(fake: FakeUpstream, tmp_path: Path) -> None:
    async with running_gateway(fake, {"tiers": {"semantic": {"enabled": True}}}) as gateway:
        semantic = gateway.system.semantic
        assert semantic is not None
        bound = semantic.models.bound
        for number in range(1000):
            bound.looked("default")
            bound.observe("default", bytes([number % 200]) * 16, 0.97, True)
        assert "threshold drift" not in await doctor(tmp_path, gateway=gateway)
        for _ in range(1000):
            if semantic.models.alarms is not None and not semantic.models.alarms():
                bound.looked("default")
                bound.observe("default", b"other", 0.97, False)
        assert "alarm in default" in (await doctor(tmp_path, gateway=gateway))["threshold drift"]["evidence"]


async def test_usage(tmp_path: Path, unused_tcp_port: int) -> None:
    refused = run("doctor", "--url", f"http://127.0.0.1:{unused_tcp_port}", cwd=tmp_path)
    assert (refused.code, "no gateway answers" in refused.err) == (1, True)
    (tmp_path / "open.yaml").write_text("server: {host: 0.0.0.0}\n")
    refused = run("--config", "open.yaml", "doctor", cwd=tmp_path)
    assert (refused.code, "without auth.keys" in refused.err) == (2, True)
    shown = run("doctor", "--all", cwd=tmp_path)
    assert (shown.code, "no gateway answers" in shown.out, "every scene has jitter" in shown.out) == (
        0,
        True,
        True,
    )


async def test_only_administrators_see_the_configuration_and_no_secret_is_in_it(fake: FakeUpstream) -> None:
    with RedisServer() as server:
        server.command("CONFIG", "SET", "requirepass", "sesame")
        async with running_gateway(fake, {"store": f"redis://:sesame@{server.address}/0"}) as gateway:
            async with gateway.http.get(f"{gateway.root}/admin/config") as answer:
                told = await answer.text()
            assert (answer.status, "sesame" in told, '"store":"redis://****@' in told) == (200, False, True)
    key = "sha256:" + hashlib.sha256(b"chat-key").hexdigest()
    async with running_gateway(fake, {"auth": {"keys": [{"key_hash": key}]}}) as gateway:
        headers = {"authorization": "Bearer chat-key"}
        async with gateway.http.get(f"{gateway.root}/admin/config", headers=headers) as answer:
            assert answer.status == 403
