"""The rollout tutorial runs: its blocks are executed in order against a gateway with the packaged models."""

from __future__ import annotations

import asyncio
import contextlib
import io
import shlex
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.docs.doc_pages import Block, blocks
from tests.fakes.upstream import Call, FakeUpstream, Reply
from tests.gateway_process import run
from tests.harness import Gateway, running_gateway

GATEWAY = "http://127.0.0.1:8900"
PAGE = "docs/guide/rollout.md"


def steps() -> list[Block]:
    found = [block for kind in ("python", "console", "yaml") for block in blocks(kind) if block.page == PAGE]
    return sorted(found, key=lambda block: block.line)


def answer(call: Call) -> Reply:
    """The same words for questions about one thing, as a model would at temperature 0."""
    question = call.json["messages"][-1]["content"].lower()
    about = next((word for word in ("france", "japan", "bread") if word in question), question)
    return Reply(text=f"What is known of {about} is this: it is well known.")


async def execute(block: Block, gateway: Gateway, folder: Path) -> None:
    if block.language == "python":
        code = compile(block.text.replace(GATEWAY, gateway.root), str(block), "exec")

        def work() -> None:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(code, {"__name__": "__main__"})

        await asyncio.to_thread(work)
        await gateway.labelled()
    elif block.language == "console":
        for line in block.text.splitlines():
            if line.startswith("$ stratacache "):
                ended = await asyncio.to_thread(
                    run, *shlex.split(line)[2:], "--url", gateway.root, cwd=folder
                )
                assert ended.code in (0, 1), ended.err
                assert "Traceback" not in ended.err


@pytest.fixture
async def fake() -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream() as upstream:
        yield upstream


async def test_the_tutorial_runs_from_shadow_to_serve(fake: FakeUpstream, tmp_path: Path) -> None:
    fake.responder = answer
    shown = steps()
    first: Any = yaml.safe_load(next(block.text for block in shown if block.language == "yaml"))
    assert first["tiers"]["semantic"]["mode"] == "shadow"
    upstream = {"name": "local", "kind": "openai", "base_url": fake.base_url, "models": ["smollm2-135m"]}
    async with running_gateway(fake, {**first, "upstreams": [upstream]}) as gateway:
        semantic = gateway.system.semantic
        assert semantic is not None
        await semantic.models.ready()
        for block in shown:
            await execute(block, gateway, tmp_path)
        async with gateway.http.get(f"{gateway.root}/admin/shadow") as told:
            report = await told.json()
        assert report["hits"] > 0
        assert report["scenes"][0]["agree"] > 0
        assert report["mode"] == "serve"  # the last step
