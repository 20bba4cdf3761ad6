"""The ledger over HTTP: real traffic in, an account out, beside what is known of wrong answers."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

from tests.fakes.upstream import FakeUpstream, Reply
from tests.gateway_process import run
from tests.harness import Gateway, question, running_gateway

ADMIN = {"authorization": "Bearer admin-key"}
ALICE = {"authorization": "Bearer alice-key"}
KEYS = [
    {"key_hash": "sha256:" + hashlib.sha256(b"admin-key").hexdigest(), "rights": ["admin"]},
    {"key_hash": "sha256:" + hashlib.sha256(b"alice-key").hexdigest(), "tenant": "alice"},
]


async def ledger(gateway: Gateway, query: str = "", headers: dict[str, str] | None = None) -> tuple[int, Any]:
    async with gateway.http.get(f"{gateway.root}/admin/ledger{query}", headers=headers) as response:
        return response.status, await response.json()


def prices(folder: Path) -> str:
    path = folder / "prices.yaml"
    path.write_text("prices:\n  - {model: fake-model, input: 62500, output: 62500, read: 0.25}\n")
    return str(path)


async def test_what_was_spent_and_saved_is_told_by_day_tenant_and_model(
    fake: FakeUpstream, tmp_path: Path
) -> None:
    config = {"auth": {"keys": KEYS}, "prices": prices(tmp_path)}
    async with running_gateway(fake, config) as gateway:
        fake.default = Reply(text="Paris.", usage=(12, 5, 8))
        status, headers, _ = await gateway.ask(question(), ALICE)
        assert (status, headers["x-strata-prompt-tokens-cached"]) == (200, "8")
        await gateway.stored()
        await gateway.ask(question(), ALICE)
        status, told = await ledger(gateway, "?days=2", ADMIN)
        metrics = await (await gateway.http.get(gateway.root + "/metrics", headers=ADMIN)).text()
    assert status == 200
    total = told["total"]
    spent = (4 + 8 * 0.25 + 5) / 16
    assert total["spent_usd"] == spent
    # The hit is worth what the same prompt cost before, the provider's cache read two thirds of it.
    assert total["saved"]["exact"] == {
        "requests": 1, "requests_uncounted": 0, "tokens": 17, "usd": spent, "unpriced_tokens": 0,
    }  # fmt: skip
    assert total["saved"]["prompt"]["usd"] == 6.0 / 16
    assert total["net_usd"] == spent + 6.0 / 16
    assert [one["tenant"] for one in told["tenants"]] == ["alice"]
    assert [one["model"] for one in told["models"]] == ["fake-model"]
    assert told["models"][0]["price"]["example"] is False
    assert len(told["days"]) == 2
    assert told["risk"] == []
    assert 'stratacache_saved_usd_total{tier="exact"} 0.6875' in metrics
    assert 'stratacache_saved_usd_total{tier="prompt"} 0.375' in metrics
    assert 'stratacache_prompt_tokens_total{kind="write"} 0.0' in metrics


async def test_it_is_for_administrators_and_says_what_is_wrong_with_a_question(fake: FakeUpstream) -> None:
    async with running_gateway(fake, {"auth": {"keys": KEYS}}) as gateway:
        assert (await ledger(gateway))[0] == 401
        assert (await ledger(gateway, headers=ALICE))[0] == 403
        for query in ("?days=0", "?days=-1", "?days=9999", "?days=x", "?days=1.5"):
            status, told = await ledger(gateway, query, ADMIN)
            assert (status, told["error"]["param"]) == (400, "days")
        await gateway.ask(question(), ALICE)
        status, told = await ledger(gateway, "?tenant=bob", ADMIN)
        assert (status, told["total"]["requests"], told["tenants"]) == (200, 0, [])


async def test_it_outlives_the_gateway_beside_its_store(fake: FakeUpstream, tmp_path: Path) -> None:
    config = {"store": f"sqlite:///{tmp_path}/cache.db"}
    async with running_gateway(fake, config) as gateway:
        await gateway.ask(question())
    async with running_gateway(fake, config) as gateway:
        assert (await ledger(gateway))[1]["total"]["requests"] == 1
    assert (tmp_path / "cache.db.ledger").exists()


async def test_a_ledger_that_cannot_be_kept_fails_no_answer(fake: FakeUpstream, tmp_path: Path) -> None:
    (tmp_path / "cache.db.ledger").mkdir()
    async with running_gateway(fake, {"store": f"sqlite:///{tmp_path}/cache.db"}) as gateway:
        assert (await gateway.ask(question()))[0] == 200
        status, told = await ledger(gateway)
        assert (status, told["total"]["requests"]) == (200, 1)
        assert json.dumps(told)


async def test_the_command_answers_what_was_saved_and_what_was_risked(
    fake: FakeUpstream, tmp_path: Path
) -> None:
    async with running_gateway(fake, {"prices": prices(tmp_path)}) as gateway:
        fake.default = Reply(text="Paris.", usage=(12, 5, 8))
        await gateway.ask(question())
        await gateway.stored()
        await gateway.ask(question())
        at = ("stats", "--url", gateway.root)
        shown = await asyncio.to_thread(run, *at, cwd=tmp_path, env={"COLUMNS": "140"})
        asked = await asyncio.to_thread(run, *at, "--json", "--days", "3", "--tenant", "nobody", cwd=tmp_path)
        wrong = await asyncio.to_thread(run, *at, "--days", "0", cwd=tmp_path)
    assert shown.code == 0
    today = [line for line in shown.out.splitlines() if "$0.69" in line or "$1.06" in line]
    assert any("17" in line for line in today), shown.out
    assert "semantic answers wrong, of late: no semantic answers yet" in shown.out
    assert len(json.loads(asked.out)["ledger"]["days"]) == 3
    assert json.loads(asked.out)["ledger"]["total"]["requests"] == 0
    assert wrong.code == 2
