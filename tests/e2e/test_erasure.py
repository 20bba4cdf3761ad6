"""Erasing a tenant on real stores: nothing of it answers, and nothing of it is kept; the others keep all."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.upstream import FakeUpstream, Reply
from tests.gateway_process import run
from tests.harness import Gateway, question, running_gateway
from tests.semantic_kit import Verifier, models
from tests.servers.memcached import shared_servers
from tests.servers.redis import RedisServer

from stratacache.errors import StoreError
from stratacache.wiring import SemanticModels

pytest_plugins = ["tests.servers.fixtures"]

STORED, ASKED = "What is the way to bake bread for {}?", "how do you bake bread at home for {}"
TENANTS = ("one", "two")


def parts() -> SemanticModels:
    verifier = Verifier()
    for name in TENANTS:
        verifier.table[ASKED.format(name), STORED.format(name)] = 0.97
    return models(None, verifier)


def config(folder: Path, store: str) -> dict[str, Any]:
    keys = [
        {"key_hash": "sha256:" + hashlib.sha256(name.encode()).hexdigest(), "tenant": name, "rights": rights}
        for name, rights in (("one", ["chat"]), ("two", ["chat"]), ("boss", ["admin"]))
    ]
    tiers = {"exact": {"budget": "20s"}, "semantic": {"enabled": True, "budget": "20s"}}
    return {
        "store": store,
        "auth": {"keys": keys},
        "audit": {"path": f"{folder}/audit.jsonl"},
        "tiers": tiers,
    }


async def traffic(gateway: Gateway) -> None:
    for name in TENANTS:
        for text in (STORED, ASKED):
            await gateway.ask(question(text.format(name)), {"authorization": f"Bearer {name}"})
            await gateway.stored()
    semantic = gateway.system.semantic
    assert semantic is not None
    await gateway.labelled()
    await semantic.kindred.review.settled()


async def erase(gateway: Gateway, folder: Path, tenant: str = "one") -> Any:
    args = ("invalidate", "--tenant", tenant, "--erase", "--json", "--url", gateway.root)
    done = await asyncio.to_thread(run, *args, cwd=folder, env={"STRATACACHE_API_KEY": "boss"})
    assert done.code == 0, done.err
    return json.loads(done.out)


async def admin(gateway: Gateway, path: str) -> Any:
    async with gateway.http.get(f"{gateway.root}{path}", headers={"authorization": "Bearer boss"}) as answer:
        return await answer.json()


async def texts(gateway: Gateway) -> set[str]:
    """Of all questions in the log, expired or not."""
    log = gateway.system.semantic.opened.question_log  # type: ignore[union-attr]
    return {record.question.text for _, record in await log.read(b"", 1000) if record.question.text}


async def vectors(gateway: Gateway, count: int) -> None:
    """Wait until the index has so many."""
    assert gateway.system.semantic is not None
    index = gateway.system.semantic.index
    async with asyncio.timeout(20):
        while (await index.stats()).vectors != count:  # noqa: ASYNC110 - production has no use for an event
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("name", ["memory", "sqlite", "rocksdb", "redis"])
async def test_all_of_a_tenant_goes_and_nothing_of_another(
    name: str, fake: FakeUpstream, redis_server: RedisServer, tmp_path: Path
) -> None:
    store = {
        "memory": "memory://",
        "sqlite": f"sqlite:///{tmp_path}/cache.db",
        "rocksdb": f"rocksdb:///{tmp_path}/rocks",
        "redis": redis_server.url,
    }[name]
    fake.default = Reply(text="Knead, wait, bake.")
    async with running_gateway(fake, config(tmp_path, store), models=parts()) as gateway:
        await traffic(gateway)
        before = await admin(gateway, "/admin/review")
        assert {one["tenant"] for one in before["items"]} == set(TENANTS)
        told = await erase(gateway, tmp_path)
        assert told["entries"] == 1
        assert told["questions"] == 1
        assert told["elsewhere"]["ledger"] >= 1
        assert told["elsewhere"]["review"] >= 1
        left = (await admin(gateway, "/admin/entries"))["entries"]
        assert {one["tenant"] for one in left} == {"two"}
        listing = gateway.system._listing
        assert listing is not None
        assert {entry.tenant for _, entry in (await listing.scan(b"", 100, dead=True)).entries} == {"two"}
        assert await texts(gateway) == {STORED.format("two")}
        await vectors(gateway, 1)
        assert {one["tenant"] for one in (await admin(gateway, "/admin/review"))["items"]} == {"two"}
        _, accounts = await gateway.system.accounts.ledger.read(7)
        assert {account[1] for account, _ in accounts} >= {"two"}
        assert "one" not in {account[1] for account, _ in accounts}
        for tenant, expected in (("one", "miss"), ("two", "hit")):
            _, got, _ = await gateway.ask(
                question(STORED.format(tenant)), {"authorization": f"Bearer {tenant}"}
            )
            assert got["x-strata-cache"] == expected
        records = (await admin(gateway, "/admin/audit"))["records"]
        assert records[0]["selection"] == {"tenant": "one", "erase": True}


async def test_a_store_that_cannot_list_says_so_and_serves_nothing_of_it(
    fake: FakeUpstream, tmp_path: Path
) -> None:
    hosts = ",".join(server.name for server in shared_servers())
    store = f"memcached://{hosts}?prefix={tmp_path.name}"
    async with running_gateway(fake, config(tmp_path, store), models=parts()) as gateway:
        await traffic(gateway)
        assert (await erase(gateway, tmp_path))["entries"] is None
        _, got, _ = await gateway.ask(question(STORED.format("one")), {"authorization": "Bearer one"})
        assert got["x-strata-cache"] == "miss"


async def test_what_fails_halfway_is_said_and_can_be_done_again(
    fake: FakeUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_gateway(fake, config(tmp_path, "memory://"), models=parts()) as gateway:
        await traffic(gateway)

        async def fails(tenant: str) -> int:
            raise StoreError("the ledger failed")

        headers = {"authorization": "Bearer boss"}
        url = f"{gateway.root}/admin/erase"
        with monkeypatch.context() as broken:
            broken.setattr(gateway.system.accounts.ledger._file, "erase", fails)
            async with gateway.http.post(url, json={"tenant": "one"}, headers=headers) as answer:
                assert (answer.status, "not all is erased" in await answer.text()) == (503, True)
        async with gateway.http.post(url, json={"tenant": "one"}, headers=headers) as answer:
            assert answer.status == 200
        for body in ({}, {"tenant": "a b"}, {"tenant": "one", "all": True}):
            async with gateway.http.post(url, json=body, headers=headers) as answer:
                assert answer.status == 400
        async with gateway.http.post(
            url, json={"tenant": "one"}, headers={"authorization": "Bearer one"}
        ) as answer:
            assert answer.status == 403
