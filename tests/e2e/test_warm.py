"""``stratacache warm``: given answers are kept as they stand, other questions are asked, all through the gateway."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.upstream import FakeUpstream
from tests.gateway_process import Ended, run
from tests.harness import Gateway, question, running_gateway
from tests.semantic_kit import Verifier, models

STORED, ASKED = "What is the way to bake bread?", "how do you bake bread at home"


async def warm(gateway: Gateway, folder: Path, *args: str) -> Ended:
    return await asyncio.to_thread(run, "warm", *args, "--url", gateway.root, cwd=folder)


async def said(gateway: Gateway, text: str, **fields: Any) -> tuple[str, str]:
    _, headers, body = await gateway.ask(question(text, **fields))
    return headers["x-strata-cache"], body["choices"][0]["message"]["content"]


async def test_given_answers_are_kept_and_found_by_both_tiers(fake: FakeUpstream, tmp_path: Path) -> None:
    verifier = Verifier()
    verifier.table[ASKED, STORED] = 0.97
    (tmp_path / "faq.csv").write_text(f'question,answer\n"{STORED}","Knead, wait, bake."\n')
    async with running_gateway(fake, models=models(None, verifier)) as gateway:
        done = await warm(gateway, tmp_path, "faq.csv", "--model", "fake-model", "--tag", "faq")
        assert (done.code, done.out) == (0, "1 rows: 1 kept\n"), done.err
        await gateway.stored()
        for text in (STORED, ASKED):
            assert await said(gateway, text) == ("hit", "Knead, wait, bake.")
        assert fake.chat_calls == 0
        invalidate = ("invalidate", "--tag", "faq", "--url", gateway.root)
        await asyncio.to_thread(run, *invalidate, cwd=tmp_path)
        assert (await said(gateway, STORED))[0] == "miss"


async def test_a_log_is_asked_again_and_what_is_there_is_not(fake: FakeUpstream, tmp_path: Path) -> None:
    lines = [question("one"), {"request": question("two")}, {"body": question("two")}, {"question": "three"}]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)))
    async with running_gateway(fake) as gateway:
        done = await warm(gateway, tmp_path, "log.jsonl", "--model", "fake-model", "--rate", "100", "--json")
        assert json.loads(done.out) == {"rows": 4, "asked": 4, "failures": []}
        assert fake.chat_calls == 3
        await gateway.stored()
        assert [(await said(gateway, text))[0] for text in ("one", "two", "three")] == ["hit"] * 3


async def test_the_system_prompt_is_part_of_it(fake: FakeUpstream, tmp_path: Path) -> None:
    (tmp_path / "faq.jsonl").write_text(json.dumps({"question": "Who?", "answer": "We."}))
    (tmp_path / "brief.txt").write_text("Be brief.")
    async with running_gateway(fake) as gateway:
        await warm(gateway, tmp_path, "faq.jsonl", "--model", "fake-model", "--system", "brief.txt")
        await gateway.stored()
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}]
        _, headers, _ = await gateway.ask({"model": "fake-model", "messages": messages})
        assert headers["x-strata-cache"] == "hit"
        assert (await said(gateway, "Who?"))[0] == "miss"


async def test_what_may_not_be_kept_is_not(fake: FakeUpstream, tmp_path: Path) -> None:
    (tmp_path / "faq.jsonl").write_text(json.dumps({"request": question("Who?", n=2), "answer": "We."}))
    scenes = {"scenes": {"never": {"exact": False, "semantic": False}}}
    async with running_gateway(fake, scenes) as gateway:
        done = await warm(gateway, tmp_path, "faq.jsonl", "--scene", "never")
        assert (done.code, "not kept" in done.out) == (0, True), done.out
        unknown = await warm(gateway, tmp_path, "faq.jsonl", "--scene", "nosuch")
        assert (unknown.code, "scene" in unknown.err) == (1, True), unknown.err


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.csv", "q,a\nx,y\n", "'question' among them"),
        ("a.jsonl", "{", "a.jsonl:1: no JSON"),
        ("a.jsonl", '{"question": "x"}\n[]', "a.jsonl:2: must be an object"),
        ("a.jsonl", '{"prompt": "x"}', "neither a question nor a request"),
        ("a.jsonl", '{"question": "x", "answer": 1}', "answer must be a text"),
    ],
)
async def test_a_file_with_a_mistake_changes_nothing(
    fake: FakeUpstream, tmp_path: Path, name: str, text: str, why: str
) -> None:
    (tmp_path / name).write_text(text)
    async with running_gateway(fake) as gateway:
        done = await warm(gateway, tmp_path, name, "--model", "fake-model")
        assert (done.code, why in done.err) == (1, True), done.err
        assert fake.chat_calls == 0


async def test_only_administrators_teach_and_a_body_is_checked(fake: FakeUpstream) -> None:
    async with running_gateway(fake) as gateway:
        for body in ({}, {"request": question()}, {"request": question(), "answer": " "}, {"answer": "x"}):
            async with gateway.http.post(f"{gateway.root}/admin/teach", json=body) as answer:
                assert answer.status == 400
