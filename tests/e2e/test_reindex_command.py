"""``stratacache reindex`` against a gateway: what it says, and its exit codes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.upstream import FakeUpstream
from tests.gateway_process import Ended, run
from tests.harness import Gateway, question, running_gateway
from tests.semantic_kit import Embedder, models

from stratacache.errors import ModelError
from stratacache.vectors import swapping


class Kit:
    """A gateway with one stored question, and its embedder."""

    def __init__(self, gateway: Gateway, embedder: Embedder, folder: Path) -> None:
        self.gateway = gateway
        self.embedder = embedder
        self._folder = folder

    async def run(self, *args: str) -> Ended:
        """The command, while the gateway serves."""
        return await asyncio.to_thread(run, "reindex", "--url", self.gateway.root, *args, cwd=self._folder)


@pytest.fixture
async def kit(fake: FakeUpstream, tmp_path: Path) -> AsyncIterator[Kit]:
    embedder = Embedder()
    async with running_gateway(fake, models=models(embedder)) as gateway:
        await gateway.ask(question())
        await gateway.stored()
        yield Kit(gateway, embedder, tmp_path)


async def test_it_begins_and_tells(kit: Kit) -> None:
    assert (await kit.run("--status")).out == "nothing was embedded anew since the gateway started\n"
    done = await kit.run("--wait")
    assert (done.code, done.out) == (0, "done: 1 of 1 questions embedded anew, by table/1\n")
    shown = await kit.run("--status", "--json")
    assert (shown.code, '"state": "done"' in shown.out) == (0, True)


async def test_a_second_one_is_refused(kit: Kit) -> None:
    go = asyncio.Event()
    kit.embedder.before = go.wait
    begun = await kit.run()
    assert (begun.code, begun.out.partition(":")[0]) == (0, "running")
    refused = await kit.run()
    assert (refused.code, "already" in refused.err) == (1, True)
    go.set()


async def test_a_failure_is_1_with_the_reason(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swapping, "_PAUSES", ())
    monkeypatch.setattr(swapping, "_MOST_GIVEN_UP", 1)
    kit.embedder.fault = ModelError("down", code="embedder_error")
    failed = await kit.run("--wait")
    assert (failed.code, failed.out) == (
        1,
        "failed: the new embedder does not answer; the index is as it was\n",
    )


@pytest.mark.parametrize("args", [("--wait", "--status"), ("--nothing",)])
def test_wrong_usage_is_2(tmp_path: Path, args: Any) -> None:
    assert run("reindex", *args, cwd=tmp_path).code == 2
