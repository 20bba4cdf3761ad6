"""The review queue over HTTP and in the terminal: what waits, what a verdict does, who may, and after a restart."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import termios
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Any

import msgspec
import pytest
from tests.fakes.upstream import FakeUpstream, Reply
from tests.gateway_process import run
from tests.harness import Gateway, question, running_gateway
from tests.semantic_kit import Embedder, FixedBound, Verifier, models

from stratacache.commands.review import read_key
from stratacache.errors import StoreError

STORED = "What is the way to bake bread?"
ASKED = "how do you bake bread at home"
NEARLY = "how is bread baked"


class Kit:
    """A gateway in which ``ASKED`` gets the answer to ``STORED`` and ``NEARLY`` does not."""

    def __init__(self, gateway: Gateway, bound: FixedBound) -> None:
        self.gateway = gateway
        self.bound = bound
        self.url = f"{gateway.root}/admin/review"

    async def traffic(self) -> str:
        """One hit and one near miss; the entry of the stored answer."""
        _, got, _ = await self.gateway.ask(question(STORED))
        await self.gateway.stored()
        for text in (ASKED, NEARLY):
            await self.gateway.ask(question(text))
        await self.kept()
        return got["x-strata-entry"]

    async def kept(self) -> None:
        await self.gateway.labelled()
        semantic = self.gateway.system.semantic
        assert semantic is not None
        await semantic.kindred.review.settled()

    async def waiting(self, query: str = "") -> Any:
        async with self.gateway.http.get(self.url + query) as answer:
            assert answer.status == 200
            return await answer.json()

    async def say(self, body: Any, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        async with self.gateway.http.post(self.url, json=body, headers=headers) as answer:
            return answer.status, await answer.json()


def parts() -> tuple[Embedder, Verifier, FixedBound]:
    verifier = Verifier()
    verifier.table[ASKED, STORED] = 0.97
    verifier.table[NEARLY, STORED] = 0.4
    return Embedder(), verifier, FixedBound()


@pytest.fixture
async def kit(fake: FakeUpstream, tmp_path: Path) -> AsyncIterator[Kit]:
    fake.default = Reply(text="Knead, wait, bake.")
    embedder, verifier, bound = parts()
    config = {"audit": {"path": f"{tmp_path}/audit.jsonl"}}
    async with running_gateway(fake, config, models=models(embedder, verifier, bound)) as gateway:
        yield Kit(gateway, bound)


async def test_hits_and_near_misses_wait_with_all_that_is_needed_to_judge(kit: Kit) -> None:
    entry = await kit.traffic()
    told = await kit.waiting()
    by_kind = {one["kind"]: one for one in told["items"]}
    hit, miss = by_kind["hit"], by_kind["near_miss"]
    assert (hit["asked"], hit["stored"], hit["entry"], hit["probability"]) == (ASKED, STORED, entry, 0.97)
    assert (hit["answer"], hit["tenant"], hit["reason"]) == ("Knead, wait, bake.", "default", "")
    assert (miss["asked"], miss["probability"], miss["reason"]) == (NEARLY, 0.4, "explored")
    assert sum(told["lengths"].values()) == 2
    assert told["kept"] is True
    assert (await kit.waiting("?tenant=other"))["items"] == []
    assert len((await kit.waiting("?limit=1"))["items"]) == 1
    async with kit.gateway.http.get(f"{kit.gateway.root}/metrics") as answer:
        assert 'stratacache_review_queue{stratum="near_miss"} 1.0' in await answer.text()


async def test_a_hit_that_is_wrong_is_gone_from_both_tiers(kit: Kit) -> None:
    entry = await kit.traffic()
    (hit,) = [one for one in (await kit.waiting())["items"] if one["kind"] == "hit"]
    body = {"id": hit["id"], "verdict": "wrong", "note": "old"}
    assert await kit.say(body) == (
        200,
        {"id": hit["id"], "verdict": "wrong", "removed": True, "audited": True},
    )
    assert kit.bound.observed[-1][1:5] == (bytes.fromhex(entry), 0.97, False, "review")
    assert (await kit.waiting())["items"] == []  # the near miss was on the same entry
    for text in (ASKED, STORED):
        _, got, _ = await kit.gateway.ask(question(text))
        assert got["x-strata-cache"] != "hit"
    assert (await kit.say(body))[0] == 404
    async with kit.gateway.http.get(f"{kit.gateway.root}/admin/audit") as answer:
        (record,) = (await answer.json())["records"]
    assert (record["actor"], record["selection"]["review"]) == ("loopback", body)


async def test_a_near_miss_teaches_and_removes_nothing(kit: Kit) -> None:
    entry = await kit.traffic()
    items = (await kit.waiting())["items"]
    (miss,) = [one for one in items if one["kind"] == "near_miss"]
    (hit,) = [one for one in items if one["kind"] == "hit"]
    status, told = await kit.say({"id": miss["id"], "verdict": "wrong"})
    assert (status, told["removed"], told["audited"]) == (200, False, True)
    assert kit.bound.observed[-1][1:5] == (bytes.fromhex(entry), 0.4, False, "review")
    taught = len(kit.bound.observed)
    assert (await kit.say({"id": hit["id"], "verdict": "skip"}))[0] == 200
    assert len(kit.bound.observed) == taught
    assert (await kit.gateway.ask(question(STORED)))[1]["x-strata-cache"] == "hit"
    async with kit.gateway.http.get(f"{kit.gateway.root}/admin/labels") as answer:
        labels = (await answer.json())["labels"]
    assert [(one["asked"], one["right"]) for one in labels if one["source"] == "review"] == [(NEARLY, False)]
    async with kit.gateway.http.get(f"{kit.gateway.root}/metrics") as answer:
        assert 'stratacache_review_verdicts_total{verdict="skip"} 1.0' in await answer.text()


async def test_while_the_store_is_down_a_wrong_answer_stays_in_the_queue(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    await kit.traffic()
    (hit,) = [one for one in (await kit.waiting())["items"] if one["kind"] == "hit"]

    async def down(*_: Any, **__: Any) -> Any:
        raise StoreError("down")

    with monkeypatch.context() as patched:
        patched.setattr(kit.gateway.system.store, "invalidate", down)
        assert (await kit.say({"id": hit["id"], "verdict": "wrong"}))[0] == 503
    assert (await kit.say({"id": hit["id"], "verdict": "wrong"}))[0] == 200


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"id": "x", "verdict": "wrong"}, "id"),
        ({"id": "0" * 32, "verdict": "perhaps"}, "verdict"),
        ({"id": "0" * 32, "verdict": ["wrong"]}, "verdict"),
        ({"id": "0" * 32, "verdict": "wrong", "note": "x" * 2001}, "note"),
        ({"idd": "0" * 32, "verdict": "wrong"}, "idd"),
    ],
)
async def test_what_is_not_understood_is_refused(kit: Kit, body: dict[str, Any], param: str) -> None:
    status, told = await kit.say(body)
    assert (status, told["error"]["param"]) == (400, param)


async def test_nothing_is_found_under_an_unknown_id_and_limits_are_checked(kit: Kit) -> None:
    assert (await kit.say({"id": "0" * 32, "verdict": "right"}))[0] == 404
    async with kit.gateway.http.get(f"{kit.url}?limit=0") as answer:
        assert answer.status == 400


async def test_administrators_alone(fake: FakeUpstream) -> None:
    import hashlib

    keys = [
        {
            "key_hash": f"sha256:{hashlib.sha256(name.encode()).hexdigest()}",
            "tenant": "acme",
            "rights": rights,
        }
        for name, rights in (("user", ["chat"]), ("boss", ["chat", "admin"]))
    ]
    embedder, verifier, bound = parts()
    config = {"auth": {"keys": keys}}
    async with running_gateway(fake, config, models=models(embedder, verifier, bound)) as gateway:
        kit = Kit(gateway, bound)
        for name, status in (("user", 403), ("boss", 404)):
            headers = {"authorization": f"Bearer {name}"}
            assert (await kit.say({"id": "0" * 32, "verdict": "right"}, headers))[0] == status
            async with gateway.http.get(kit.url, headers=headers) as answer:
                assert answer.status == (403 if status == 403 else 200)


async def test_without_the_tier_nothing_waits(fake: FakeUpstream) -> None:
    async with running_gateway(fake) as gateway:
        kit = Kit(gateway, FixedBound())
        assert await kit.waiting() == {"items": [], "lengths": {}, "kept": False}
        assert (await kit.say({"id": "0" * 32, "verdict": "right"}))[0] == 404


async def test_the_queue_and_its_verdicts_survive_a_restart(fake: FakeUpstream, tmp_path: Path) -> None:
    config = {"store": f"sqlite:///{tmp_path}/cache.db"}
    identities = []
    for run_number in range(2):
        embedder, verifier, bound = parts()
        async with running_gateway(fake, config, models=models(embedder, verifier, bound)) as gateway:
            kit = Kit(gateway, bound)
            if run_number == 0:
                await kit.traffic()
                told = await kit.waiting()
                identities = [one["id"] for one in told["items"]]
                assert (len(identities), told["kept"]) == (2, True)
                await kit.say({"id": identities[0], "verdict": "right"})
            else:
                assert [one["id"] for one in (await kit.waiting())["items"]] == identities[1:]
                assert (await kit.say({"id": identities[0], "verdict": "right"}))[0] == 404


async def test_the_command_works_the_queue_off(kit: Kit, tmp_path: Path) -> None:
    await kit.traffic()

    async def command(*args: str, stdin: bytes = b"") -> tuple[int, str]:
        done = await asyncio.to_thread(
            run, "review", "--url", kit.gateway.root, *args, cwd=tmp_path, stdin=stdin
        )
        return done.code, done.out

    code, out = await command("--json")
    assert (code, len(msgspec.json.decode(out)["items"])) == (0, 2)
    code, out = await command(stdin=b"q\n")
    assert (code, "0 of 2 pairs" in out, ASKED in out, "Knead" in out) == (0, True, True, True)
    code, out = await command(stdin=b"nonsense\nr\ns\n")
    assert (code, "2 of 2 pairs worked off" in out) == (0, True)
    assert (await command())[1] == "nothing waits\n"
    assert (await command("--limit", "0"))[0] == 1


def type_when_asked(terminal: int, hands: IO[bytes], keys: bytes) -> None:
    """Keys arrive a moment after they are written, and what Ctrl-D means depends on whether one is waited for."""
    deadline = time.monotonic() + 30
    while termios.tcgetattr(terminal)[3] & termios.ICANON:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    hands.write(keys)


@pytest.mark.parametrize(("keys", "read"), [(b"xw", "w"), (b"\x04", "q")])
def test_a_key_at_a_terminal_needs_no_enter(keys: bytes, read: str) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "r") as keyboard, os.fdopen(ours, "wb", buffering=0) as hands:
        typist = threading.Thread(target=type_when_asked, args=(theirs, hands, keys))
        typist.start()
        assert read_key(keyboard, io.StringIO()) == read
        typist.join()


def test_the_end_of_the_input_quits() -> None:
    assert read_key(io.StringIO(""), io.StringIO()) == "q"
