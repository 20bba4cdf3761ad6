"""``stratacache export`` and ``import``, and ``GET /admin/entries``, against real gateways and stores."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.upstream import FakeUpstream, Reply
from tests.gateway_process import Ended, run
from tests.harness import Gateway, question, running_gateway
from tests.semantic_kit import Verifier, models
from tests.servers.memcached import shared_servers
from tests.servers.redis import RedisServer

pytest_plugins = ["tests.servers.fixtures"]

STORED, ASKED = "What is the way to bake bread?", "how do you bake bread at home"


async def command(gateway: Gateway, folder: Path, *args: str) -> Ended:
    return await asyncio.to_thread(run, *args, "--url", gateway.root, cwd=folder)


async def browse(gateway: Gateway, query: str = "") -> Any:
    async with gateway.http.get(f"{gateway.root}/admin/entries?{query}") as answer:
        return await answer.json()


async def is_hit(gateway: Gateway, text: str) -> bool:
    _, headers, _ = await gateway.ask(question(text), {"cache-control": "only-if-cached"})
    return headers.get("x-strata-cache") == "hit"


def stores(folder: Path, server: RedisServer) -> dict[str, str]:
    return {
        "memory": "memory://",
        "sqlite": f"sqlite:///{folder}/cache.db",
        "rocksdb": f"rocksdb:///{folder}/rocks",
        "redis": server.url,
    }


@pytest.mark.parametrize("name", ["memory", "sqlite", "rocksdb", "redis"])
async def test_a_backup_comes_back_without_what_was_invalidated_since(
    name: str, fake: FakeUpstream, redis_server: RedisServer, tmp_path: Path
) -> None:
    async with running_gateway(fake, {"store": stores(tmp_path, redis_server)[name]}) as gateway:
        for number in range(3):
            await gateway.ask(question(f"What is {number}?"), {"x-strata-tags": f"kb:{number}"})
        await gateway.stored()
        done = await command(gateway, tmp_path, "export", "backup.jsonl")
        assert (done.code, done.out) == (0, "wrote 3 entries to backup.jsonl\n"), done.err
        await command(gateway, tmp_path, "invalidate", "--tag", "kb:0")
        ids = [one["id"] for one in (await browse(gateway))["entries"]]
        assert len(ids) == 2
        # Lost without an invalidation of their tags: evicted, say.
        await gateway.system.store.invalidate((), [bytes.fromhex(one) for one in ids])
        assert not await is_hit(gateway, "What is 1?")
        done = await command(gateway, tmp_path, "import", "backup.jsonl")
        assert (done.code, done.out.splitlines()[0]) == (
            0,
            "2 stored, 1 outdated, 0 expired, 0 declined by the store",
        )
        assert [await is_hit(gateway, f"What is {number}?") for number in range(3)] == [False, True, True]
        again = await command(gateway, tmp_path, "import", "backup.jsonl", "--json")
        assert json.loads(again.out)["stored"] == 2


async def test_another_store_takes_it_only_with_new_versions_and_finds_paraphrases_too(
    fake: FakeUpstream, tmp_path: Path
) -> None:
    verifier = Verifier()
    verifier.table[ASKED, STORED] = 0.97
    async with running_gateway(fake, models=models(None, verifier)) as gateway:
        await gateway.ask(question(STORED))
        await gateway.stored()
        await command(gateway, tmp_path, "export", "one.jsonl")
    async with running_gateway(fake, models=models(None, verifier)) as gateway:
        refused = await command(gateway, tmp_path, "import", "one.jsonl")
        assert (refused.code, "--new-versions" in refused.out) == (1, True)
        assert not await is_hit(gateway, STORED)
        taken = await command(gateway, tmp_path, "import", "one.jsonl", "--new-versions")
        assert taken.out.startswith("1 stored")
        await gateway.stored()
        calls = len(fake.calls)
        for text in (STORED, ASKED):
            _, headers, _ = await gateway.ask(question(text))
            assert headers["x-strata-cache"] == "hit"
        assert len(fake.calls) == calls


async def test_tenants_secrets_and_damage(fake: FakeUpstream, tmp_path: Path) -> None:
    names = ("one", "two", "boss")
    keys = [
        {
            "key_hash": "sha256:" + hashlib.sha256(name.encode()).hexdigest(),
            "tenant": name,
            "rights": ["admin"] if name == "boss" else ["chat"],
        }
        for name in names
    ]
    async with running_gateway(fake, {"auth": {"keys": keys}}) as gateway:
        for name in ("one", "two"):
            await gateway.ask(question(f"Who is {name}?"), {"authorization": f"Bearer {name}"})
        await gateway.stored()
        for path in ("entries", "export"):
            headers = {"authorization": "Bearer one"}
            async with gateway.http.get(f"{gateway.root}/admin/{path}", headers=headers) as answer:
                assert answer.status == 403
        boss = {"STRATACACHE_API_KEY": "boss"}

        async def as_boss(*args: str) -> Ended:
            return await asyncio.to_thread(run, *args, "--url", gateway.root, cwd=tmp_path, env=boss)

        assert (
            await as_boss("export", "one.jsonl", "--tenant", "one")
        ).out == "wrote 1 entries to one.jsonl\n"
        written = (tmp_path / "one.jsonl").read_bytes()
        assert (tmp_path / "one.jsonl").stat().st_mode & 0o777 == 0o600
        assert b"sk-upstream-secret" not in written
        await as_boss("export", "both.jsonl")
        taken = json.loads((await as_boss("import", "both.jsonl", "--tenant", "two", "--json")).out)
        assert (taken["entries"], taken["stored"]) == (2, 1)
        lines = written.splitlines(keepends=True)
        for spoiled in (
            b"".join(lines[:-1]),  # cut short
            b"".join([lines[0], lines[-1]]),  # an entry is missing
            written.replace(b'"tenant":"one"', b'"tenant":"two"'),
            b"{}\n",
        ):
            (tmp_path / "spoiled.jsonl").write_bytes(spoiled)
            refused = await as_boss("import", "spoiled.jsonl", "--new-versions")
            assert (refused.code, refused.err.startswith("stratacache: spoiled.jsonl")) == (1, True)
        whole = await as_boss("import", "one.jsonl", "--dry-run")
        assert whole.out == "one.jsonl is whole: 1 entries\n"


async def test_browsing_is_bounded_and_goes_on_where_it_stopped(fake: FakeUpstream) -> None:
    fake.default = Reply(text="Paris is the capital.")
    async with running_gateway(fake) as gateway:
        for number in range(5):
            await gateway.ask(question(f"Where is {number}?"), {"x-strata-tags": f"kb:{number % 2}"})
        await gateway.stored()
        shown = await browse(gateway, "query=where+is+3")
        assert [one["question"] for one in shown["entries"]] == ["where is 3"]
        assert shown["entries"][0]["answer"] == "Paris is the capital."
        assert len((await browse(gateway, "tag=kb:0"))["entries"]) == 3
        assert (await browse(gateway, "tenant=other"))["entries"] == []
        assert (await browse(gateway, "query=nobody"))["entries"] == []
        for bad in ("limit=0", "after=xyz"):
            async with gateway.http.get(f"{gateway.root}/admin/entries?{bad}") as answer:
                assert answer.status == 400


async def test_a_store_that_cannot_list_says_so(fake: FakeUpstream, tmp_path: Path) -> None:
    hosts = ",".join(server.name for server in shared_servers())
    async with running_gateway(fake, {"store": f"memcached://{hosts}"}) as gateway:
        refused = await command(gateway, tmp_path, "export", "no.jsonl")
        assert (refused.code, "this store cannot list its entries" in refused.err) == (1, True)
        assert not (tmp_path / "no.jsonl").exists()


async def test_what_is_no_export_is_refused_and_nothing_is_stored(fake: FakeUpstream) -> None:
    async with running_gateway(fake) as gateway:
        for body in (b"{}", b'{"lines": [{"check": "0", "data": {}}]}', b"[", b'{"lines": 1}'):
            async with gateway.http.post(f"{gateway.root}/admin/import", data=body) as answer:
                assert answer.status == 400
        async with gateway.http.post(f"{gateway.root}/admin/versions", json={"tags": ["a b"]}) as answer:
            assert answer.status == 400
