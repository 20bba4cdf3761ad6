"""Embedding all stored questions anew over real HTTP: on demand, after a change of the embedder, and when it fails."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.upstream import FakeUpstream
from tests.harness import Gateway, question, running_gateway
from tests.semantic_kit import Embedder, Verifier, models

from stratacache.errors import ModelError
from stratacache.vectors import swapping
from stratacache.wiring import SemanticModels

STORED, ASKED = "What is the way to bake bread?", "how do you bake bread at home"
FOLDER = "sentence-transformers:one"
PATIENT = {"exact": {"budget": "20s"}, "semantic": {"enabled": True, "budget": "20s"}}
"""A machine with much else to do must not look like a store or an index that is slow."""


def config(folder: Path, **semantic: Any) -> dict[str, Any]:
    tiers = {**PATIENT, "semantic": {**PATIENT["semantic"], **semantic}}
    return {
        "store": f"sqlite:///{folder}/cache.db",
        "audit": {"path": f"{folder}/audit.jsonl"},
        "tiers": tiers,
    }


def parts(embedder: Embedder | None = None) -> SemanticModels:
    verifier = Verifier()
    verifier.table[ASKED, STORED] = 0.97
    return models(embedder, verifier)


class Held:
    """Holds an embedder until it is let go."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.reached = asyncio.Event()

    async def was_reached(self) -> None:
        async with asyncio.timeout(20):
            await self.reached.wait()

    async def __call__(self) -> None:
        self.reached.set()
        await self.go.wait()


async def admin(gateway: Gateway, method: str, body: Any = None) -> tuple[int, Any]:
    async with gateway.http.request(method, f"{gateway.root}/admin/reindex", json=body) as answer:
        return answer.status, await answer.json()


async def ended(gateway: Gateway) -> Any:
    """Wait until nothing is embedded anew any more; how it ended."""
    async with asyncio.timeout(20):
        while True:
            _, told = await admin(gateway, "GET")
            if told["state"] != "running":
                return told
            await asyncio.sleep(0.01)


async def is_hit(gateway: Gateway) -> bool:
    _, headers, _ = await gateway.ask(question(ASKED), {"x-strata-ttl": "0"})
    return headers["x-strata-tier"] == "semantic"


async def test_on_demand_everything_is_embedded_anew_and_serves_meanwhile(
    fake: FakeUpstream, tmp_path: Path
) -> None:
    embedder = Embedder()
    async with running_gateway(fake, config(tmp_path), models=parts(embedder)) as gateway:
        await gateway.ask(question(STORED))
        await gateway.stored()
        assert (await admin(gateway, "GET"))[1]["state"] == "idle"
        assert await is_hit(gateway)
        held = Held()
        embedder.before = held
        status, told = await admin(gateway, "POST")
        assert (status, told["state"], told["audited"]) == (202, "running", True)
        await held.was_reached()
        status, told = await admin(gateway, "POST", {})
        assert (status, told["error"]["code"]) == (409, "reindex_running")
        embedder.before = None  # requests go on while the texts wait
        assert await is_hit(gateway)
        async with gateway.http.get(f"{gateway.root}/metrics") as answer:
            shown = await answer.text()
        assert 'stratacache_reindex_state{state="running"} 1.0' in shown
        assert 'stratacache_reindex_questions{kind="total"} 1.0' in shown
        held.go.set()
        told = await ended(gateway)
        assert told == {
            "state": "done",
            "fingerprint": "table/1",
            "total": 1,
            "done": 1,
            "failed": 0,
            "reason": "",
        }
        assert await is_hit(gateway)
        async with gateway.http.get(f"{gateway.root}/admin/audit") as answer:
            records = (await answer.json())["records"]
        assert [(one["actor"], one["outcome"], one["affected"]) for one in records] == [
            ("loopback", "done", 1),
            ("loopback", "begun", None),
        ]
    async with running_gateway(fake, config(tmp_path), models=parts()) as gateway:
        assert await is_hit(gateway)  # the new index was saved, and is found again
        assert gateway.system.semantic.follower.stats().added == 0
        folders = [path for path in tmp_path.iterdir() if path.is_dir()]  # noqa: ASYNC240
        assert [(path.name, oct(path.stat().st_mode)[-3:]) for path in folders] == [
            ("cache.db.0.index2", "700")  # questions lie in it
        ]


async def test_what_the_index_had_lost_is_taken_in_and_what_has_no_answer_left_out(
    fake: FakeUpstream, tmp_path: Path
) -> None:
    async with running_gateway(fake, config(tmp_path), models=parts()) as gateway:
        _, told, _ = await gateway.ask(question(STORED))
        _, other, _ = await gateway.ask(question("What is the way to fry an egg?"))
        await gateway.stored()
        index = gateway.system.semantic.index
        await index.remove([bytes.fromhex(told["x-strata-entry"])])
        assert not await is_hit(gateway)
        await gateway.system.store.invalidate((), [bytes.fromhex(other["x-strata-entry"])])
        assert (await admin(gateway, "POST"))[0] == 202
        assert (await ended(gateway))["done"] == 1
        assert await is_hit(gateway)
        assert (await index.stats()).vectors == 1


async def test_after_a_change_of_the_embedder_the_old_vectors_serve_until_all_are_made_anew(
    fake: FakeUpstream, tmp_path: Path
) -> None:
    first = Embedder()
    first.fingerprint = "default/1"
    async with running_gateway(fake, config(tmp_path), models=parts(first)) as gateway:
        await gateway.ask(question(STORED))
        await gateway.stored()
    changed = config(tmp_path, embedder=FOLDER)
    second = Embedder()
    second.fingerprint = f"{FOLDER}/1"
    second.before = held = Held()
    async with running_gateway(fake, changed, models=parts(second)) as gateway:
        await held.was_reached()
        serving = gateway.system.semantic.index.embedder
        assert serving.fingerprint == "default/1"
        assert await is_hit(gateway)
        second.before = None
        held.go.set()
        told = await ended(gateway)
        assert (told["state"], told["fingerprint"], told["done"]) == ("done", f"{FOLDER}/1", 1)
        assert serving.fingerprint == f"{FOLDER}/1"
        assert await is_hit(gateway)
        async with gateway.http.get(f"{gateway.root}/admin/audit") as answer:
            assert (await answer.json())["records"][0]["actor"] == "gateway"
    third = Embedder()
    third.fingerprint = f"{FOLDER}/1"
    async with running_gateway(fake, changed, models=parts(third)) as gateway:
        assert (await admin(gateway, "GET"))[1]["state"] == "idle"
        assert await is_hit(gateway)
        assert third.asked == [ASKED]


async def test_an_embedder_that_fails_changes_nothing_and_can_be_tried_again(
    fake: FakeUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swapping, "_PAUSES", ())
    monkeypatch.setattr(swapping, "_MOST_GIVEN_UP", 1)
    first = Embedder()
    first.fingerprint = "default/1"
    async with running_gateway(fake, config(tmp_path), models=parts(first)) as gateway:
        await gateway.ask(question(STORED))
        await gateway.stored()
    changed = config(tmp_path, embedder=FOLDER)
    second = Embedder()
    second.fingerprint = f"{FOLDER}/1"
    second.fault = ModelError("down", code="embedder_error")
    async with running_gateway(fake, changed, models=parts(second)) as gateway:
        told = await ended(gateway)
        assert (told["state"], told["reason"]) == ("failed", "the new embedder does not answer")
        assert await is_hit(gateway)
        assert (await admin(gateway, "POST"))[0] == 202
        assert (await ended(gateway))["state"] == "done"
        assert await is_hit(gateway)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [(b'{"embedder": "x"}', 400, "unknown_parameter"), (b"{", 400, "invalid_json"), (b"x" * 2000, 413, "")],
)
async def test_a_body_that_says_something_is_refused(
    fake: FakeUpstream, body: bytes, status: int, code: str
) -> None:
    async with running_gateway(fake, models=parts()) as gateway:
        async with gateway.http.post(f"{gateway.root}/admin/reindex", data=body) as answer:
            assert answer.status == status
            assert code in (await answer.json())["error"]["code"]
        assert (await admin(gateway, "GET"))[1]["state"] == "idle"


async def test_without_an_index_here_there_is_nothing_to_do(fake: FakeUpstream) -> None:
    async with running_gateway(fake) as gateway:
        for method in ("GET", "POST"):
            status, told = await admin(gateway, method)
            assert (status, told["error"]["code"]) == (409, "no_local_index")


async def test_only_administrators_may(fake: FakeUpstream) -> None:
    key = {"key_hash": "sha256:" + "0" * 64, "rights": ["chat"]}
    async with running_gateway(fake, {"auth": {"keys": [key]}}, models=parts()) as gateway:
        for method in ("GET", "POST"):
            assert (await admin(gateway, method))[0] == 401
