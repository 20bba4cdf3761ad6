"""Two gateways on one store: what one learns the other finds, and what is wrong for one is gone for both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.fakes.upstream import FakeUpstream
from tests.harness import Gateway, question, running_gateway
from tests.semantic_kit import Verifier, models

STORED, ASKED = "What is the way to bake bread?", "how do you bake bread at home"


@pytest.fixture
async def pair(fake: FakeUpstream, tmp_path: Path) -> AsyncIterator[tuple[Gateway, Gateway]]:
    async with AsyncExitStack() as stack:
        made = []
        for _ in range(2):
            verifier = Verifier()
            verifier.table[ASKED, STORED] = 0.97
            config = {"store": f"sqlite:///{tmp_path}/cache.db"}
            made.append(
                await stack.enter_async_context(running_gateway(fake, config, models=models(None, verifier)))
            )
        yield made[0], made[1]


async def until(gateway: Gateway, outcome: str) -> dict[str, str]:
    """Ask until the news have come; the headers."""
    async with asyncio.timeout(20):
        while True:  # the other instance follows a log
            _, headers, _ = await gateway.ask(question(ASKED), {"x-strata-ttl": "0"})
            if headers["x-strata-cache"] == outcome:
                return dict(headers)
            await asyncio.sleep(0.02)


async def test_what_one_learns_the_other_finds_and_a_wrong_answer_is_gone_for_both(
    pair: tuple[Gateway, Gateway], tmp_path: Path
) -> None:
    one, other = pair
    _, told, _ = await one.ask(question(STORED))
    await one.stored()
    for gateway in pair:
        assert (await until(gateway, "hit"))["x-strata-entry"] == told["x-strata-entry"]
    body = {"entry": told["x-strata-entry"], "verdict": "wrong"}
    async with other.http.post(f"{other.base_url}/feedback", json=body) as answer:
        assert answer.status == 200
    for gateway in pair:  # at once: the store says so, whatever an index still holds
        _, headers, _ = await gateway.ask(question(ASKED), {"x-strata-ttl": "0"})
        assert headers["x-strata-cache"] == "miss"
    for gateway in pair:
        semantic = gateway.system.semantic
        assert semantic is not None
        async with asyncio.timeout(20):
            while (await semantic.index.stats()).vectors:  # noqa: ASYNC110 - production has no use for an event
                await asyncio.sleep(0.02)
    assert sorted(path.name for path in tmp_path.glob("*.lock") if path.name[9].isdigit()) == [  # noqa: ASYNC240
        "cache.db.0.lock",
        "cache.db.1.lock",
    ]
