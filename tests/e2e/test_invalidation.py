"""Invalidation through a real gateway: what goes, what stays, who may, and what the log and the command say."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.upstream import FakeUpstream, Gate, Reply
from tests.harness import Gateway, question, running_gateway

from stratacache.cli import main

KEYS = {
    "sk-acme": {"tenant": "acme"},
    "sk-beta": {"tenant": "beta"},
    "sk-root": {"tenant": "ops", "rights": ["admin"]},
}
AUTH = {
    "auth": {
        "keys": [
            {"key_hash": "sha256:" + hashlib.sha256(key.encode()).hexdigest(), **rest}
            for key, rest in KEYS.items()
        ]
    }
}


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def invalidate(
    gateway: Gateway, body: Any, headers: Mapping[str, str] | None = None
) -> tuple[int, Any]:
    url = f"{gateway.root}/admin/invalidate"
    async with gateway.http.post(url, json=body, headers=headers) as response:
        return response.status, await response.json()


async def records(gateway: Gateway, query: str = "", headers: Mapping[str, str] | None = None) -> Any:
    async with gateway.http.get(f"{gateway.root}/admin/audit{query}", headers=headers) as response:
        assert response.status == 200, await response.text()
        return await response.json()


async def outcome(gateway: Gateway, text: str, headers: Mapping[str, str] | None = None) -> str:
    status, got, _ = await gateway.ask(question(text), headers)
    assert status == 200
    await gateway.stored()
    return got["x-strata-cache"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


async def test_a_tag_takes_what_carries_it_and_leaves_the_rest(gateway: Gateway) -> None:
    await outcome(gateway, "price of tea?", {"x-strata-tags": "prices"})
    await outcome(gateway, "opening hours?", {"x-strata-tags": "hours"})
    status, told = await invalidate(gateway, {"tags": ["prices"], "dry_run": True})
    assert (status, told["affected"], told["dry_run"], told["audited"]) == (200, 1, True, False)
    assert await outcome(gateway, "price of tea?", {"x-strata-tags": "prices"}) == "hit"
    status, told = await invalidate(gateway, {"tags": ["prices"]})
    assert (status, told["affected"], list(told["versions"])) == (200, 1, ["prices"])
    assert await outcome(gateway, "opening hours?", {"x-strata-tags": "hours"}) == "hit"
    assert await outcome(gateway, "price of tea?", {"x-strata-tags": "prices"}) == "miss"
    assert await outcome(gateway, "price of tea?", {"x-strata-tags": "prices"}) == "hit"


@pytest.mark.parametrize(
    "selection",
    [{"all": True}, {"tenant": "default"}, {"tags": ["tenant:default"]}, {"tags": ["model:fake-model"]}],
    ids=json.dumps,
)
async def test_what_every_entry_carries(gateway: Gateway, selection: dict[str, Any]) -> None:
    await outcome(gateway, "one?")
    assert (await invalidate(gateway, selection))[1]["affected"] == 1
    assert await outcome(gateway, "one?") == "miss"


async def test_an_entry_goes_by_the_id_that_clients_see(gateway: Gateway) -> None:
    for text in ("one?", "two?"):
        await outcome(gateway, text)
    _, got, _ = await gateway.ask(question("one?"))
    assert (got["x-strata-cache"], len(got["x-strata-entry"])) == ("hit", 32)
    for name in ("entries", "keys"):
        assert (await invalidate(gateway, {name: [got["x-strata-entry"]]}))[0] == 200
        assert await outcome(gateway, "one?") == "miss"
        assert await outcome(gateway, "two?") == "hit"


async def test_an_answer_begun_before_is_not_stored_as_new(fake: FakeUpstream, gateway: Gateway) -> None:
    gate = Gate()
    fake.script(Reply(header_gate=gate))
    asking = asyncio.ensure_future(gateway.ask(question("slow?"), {"x-strata-tags": "prices"}))
    await gateway.listening(1)
    assert (await invalidate(gateway, {"tags": ["prices"]}))[0] == 200
    gate.open()
    assert (await asking)[0] == 200
    assert await outcome(gateway, "slow?", {"x-strata-tags": "prices"}) == "miss"


async def test_a_tenant_is_one_of_several(fake: FakeUpstream) -> None:
    async with running_gateway(fake, AUTH) as gateway:
        for key in ("sk-acme", "sk-beta"):
            await outcome(gateway, "one?", bearer(key))
        assert (await invalidate(gateway, {"tenant": "acme"}, bearer("sk-root")))[1]["affected"] == 1
        assert await outcome(gateway, "one?", bearer("sk-beta")) == "hit"
        assert await outcome(gateway, "one?", bearer("sk-acme")) == "miss"


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [({}, 401, "missing_api_key"), (bearer("sk-acme"), 403, "missing_right")],
)
async def test_only_administrators_may(
    fake: FakeUpstream, headers: dict[str, str], status: int, code: str
) -> None:
    async with running_gateway(fake, AUTH) as gateway:
        await outcome(gateway, "one?", bearer("sk-acme"))
        got, told = await invalidate(gateway, {"all": True}, headers)
        assert (got, told["error"]["code"]) == (status, code)
        async with gateway.http.get(f"{gateway.root}/admin/audit", headers=headers) as response:
            assert response.status == status
        assert await outcome(gateway, "one?", bearer("sk-acme")) == "hit"


async def test_a_web_page_of_another_site_cannot(gateway: Gateway) -> None:
    status, told = await invalidate(gateway, {"all": True}, {"origin": "https://evil.example"})
    assert (status, told["error"]["code"]) == (403, "foreign_origin")


async def test_refusals_are_in_the_clients_dialect(gateway: Gateway) -> None:
    status, told = await invalidate(gateway, {"tag": ["prices"]})
    assert status == 400
    assert told["error"] == {
        "message": "unknown field 'tag'; did you mean 'tags'? known: tags, keys, entries, tenant, all, dry_run",
        "type": "invalid_request_error",
        "param": "tag",
        "code": "unknown_parameter",
    }
    assert (await invalidate(gateway, []))[1]["error"]["code"] == "invalid_json"
    async with gateway.http.get(f"{gateway.root}/admin/audit?limit=0") as response:
        assert (await response.json())["error"]["param"] == "limit"


async def test_the_log_says_who_did_what(fake: FakeUpstream, log: Path) -> None:
    async with running_gateway(fake, {**AUTH, "audit": {"path": str(log)}}) as gateway:
        root = bearer("sk-root")
        assert await records(gateway, headers=root) == {"enabled": True, "records": []}
        _, first = await invalidate(gateway, {"tags": ["prices"], "dry_run": True}, root)
        _, second = await invalidate(gateway, {"tenant": "acme"}, root)
        assert (first["audited"], second["audited"]) == (True, True)
        newest, oldest = (await records(gateway, headers=root))["records"]
        digits = hashlib.sha256(b"sk-root").hexdigest()[:8]
        assert (newest["actor"], newest["selection"]) == (f"ops/{digits}", {"tenant": "acme"})
        assert (newest["versions"], newest["outcome"]) == (second["versions"], "done")
        assert (oldest["dry_run"], newest["dry_run"]) == (True, False)
        assert (await records(gateway, "?limit=1", root))["records"] == [newest]
        assert "sk-root" not in log.read_text()  # noqa: ASYNC240 - a line or two


async def test_the_command_does_the_same(
    fake: FakeUpstream, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running_gateway(fake, {"audit": {"path": str(log)}}) as gateway:

        async def command(*args: str) -> tuple[int, str]:
            code = await asyncio.to_thread(main, ["invalidate", *args, "--url", gateway.root])
            captured = capsys.readouterr()
            return code, captured.out + captured.err

        await outcome(gateway, "price of tea?", {"x-strata-tags": "prices"})
        code, shown = await command("--tag", "prices", "--dry-run")
        assert (code, shown.splitlines()[0]) == (0, "would invalidate at most 1 entry")
        code, shown = await command("--tag", "prices", "--json")
        assert (code, json.loads(shown)["affected"]) == (0, 1)
        assert await outcome(gateway, "price of tea?", {"x-strata-tags": "prices"}) == "miss"
        code, shown = await command("--tag", "kb:*")
        assert code == 1
        assert "refused (400): tags[0] is a pattern" in shown
        assert (await command("--tenant", "default"))[0] == 0
        assert (await command("--all"))[1].startswith("invalidated at most ")
        code, shown = await command("--log", "--json", "--limit", "2")
        assert [record["selection"] for record in json.loads(shown)["records"]] == [
            {"all": True, "dry_run": False},
            {"tenant": "default", "dry_run": False},
        ]
        code, shown = await command("--log")
        assert code == 0
        assert "loopback" in shown
        assert "(dry run)" in shown


async def test_without_a_log_the_command_says_so(
    gateway: Gateway, capsys: pytest.CaptureFixture[str]
) -> None:
    await asyncio.to_thread(main, ["invalidate", "--all", "--url", gateway.root])
    assert "not in the audit log" in capsys.readouterr().out
    await asyncio.to_thread(main, ["invalidate", "--log", "--url", gateway.root])
    assert "the audit log is off" in capsys.readouterr().out
