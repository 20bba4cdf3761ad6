"""The semantic tier from one run to the next: what it knew it knows, and what has gone meanwhile it forgets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.clock import FakeClock
from tests.fakes.upstream import FakeUpstream
from tests.harness import Gateway, question, running_gateway
from tests.semantic_kit import Verifier, models

from stratacache.stores import open_backend

STORED, ASKED = "What is the way to bake bread?", "how do you bake bread at home"
OTHER = "What is the way to fry an egg?"


def verifier() -> Verifier:
    made = Verifier()
    made.table[ASKED, STORED] = 0.97
    return made


async def vectors(gateway: Gateway, count: int) -> None:
    """Wait until the index holds ``count`` questions."""
    semantic = gateway.system.semantic
    assert semantic is not None
    async with asyncio.timeout(20):
        while (await semantic.index.stats()).vectors != count:  # noqa: ASYNC110 - production has no use for an event
            await asyncio.sleep(0.01)


async def test_after_a_gap_in_the_log_the_index_is_compared_with_the_store(
    fake: FakeUpstream, tmp_path: Path
) -> None:
    """RocksDB keeps entries and no log of questions: what happened between two runs is in the store alone."""
    config: dict[str, Any] = {"store": f"rocksdb:///{tmp_path}/cache"}
    async with running_gateway(fake, config, models=models(None, verifier())) as gateway:
        await gateway.ask(question(STORED))
        _, told, _ = await gateway.ask(question(OTHER))
        await vectors(gateway, 2)
    backend = open_backend(config["store"], max_bytes=1 << 20, clock=FakeClock())
    await backend.store.invalidate((), [bytes.fromhex(told["x-strata-entry"])])
    await backend.store.close()
    async with running_gateway(fake, config, models=models(None, verifier())) as gateway:
        await vectors(gateway, 1)
        _, headers, _ = await gateway.ask(question(ASKED))
        assert headers["x-strata-tier"] == "semantic"


async def test_without_the_tier_nothing_of_the_store_stays_open(fake: FakeUpstream, tmp_path: Path) -> None:
    async with running_gateway(fake, {"store": f"sqlite:///{tmp_path}/cache.db"}) as gateway:
        assert gateway.system.semantic is None
        await gateway.ask(question(STORED))
        assert str(tmp_path) in Path("/proc/self/maps").read_text()  # noqa: ASYNC240
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()  # noqa: ASYNC240
