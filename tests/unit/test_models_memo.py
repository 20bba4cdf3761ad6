"""The memo of recent texts: what it keeps within its bytes, and how equal texts share one embedding."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratacache.errors import ModelError
from stratacache.models.memo import MemoEmbedder
from stratacache.ports import Vector


class Counting:
    """An embedder that counts, and waits while ``gate`` is closed."""

    fingerprint = "counting/1"
    dimension = 2

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.asked_once = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.fails = False
        self.closed = False

    async def embed(self, text: str) -> Vector:
        self.asked.append(text)
        self.asked_once.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        if self.fails:
            raise ModelError("no", code="embedder_error")
        vector = np.array([1, 0], np.float32)
        vector.flags.writeable = False
        return vector

    async def close(self) -> None:
        self.closed = True


async def test_a_text_is_embedded_once() -> None:
    inner = Counting()
    memo = MemoEmbedder(inner, 100_000)
    first = await memo.embed("a")
    assert await memo.embed("a") is first
    await memo.embed("A")
    assert inner.asked == ["a", "A"]
    assert (memo.counts.hits, memo.counts.misses, memo.counts.texts) == (1, 2, 2)
    assert (memo.fingerprint, memo.dimension) == ("counting/1", 2)
    memo.check()
    await memo.close()
    assert inner.closed


async def test_equal_texts_at_a_time_share_one_embedding() -> None:
    inner = Counting()
    inner.gate.clear()
    memo = MemoEmbedder(inner, 0)
    calls = [asyncio.create_task(memo.embed("same")) for _ in range(20)]
    await asyncio.sleep(0)
    memo.check()
    calls[0].cancel()
    inner.gate.set()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert len(inner.asked) == 1
    assert all(isinstance(result, np.ndarray) for result in results[1:])
    assert (memo.counts.joined, memo.counts.texts) == (19, 0)
    memo.check()


async def test_cancelling_all_callers_cancels_the_embedding() -> None:
    inner = Counting()
    inner.gate.clear()
    memo = MemoEmbedder(inner, 100_000)
    calls = [asyncio.create_task(memo.embed("same")) for _ in range(3)]
    await inner.asked_once.wait()
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    await inner.cancelled.wait()
    memo.check()
    inner.gate.set()
    assert len(await memo.embed("same")) == 2


async def test_errors_reach_all_and_are_not_remembered() -> None:
    inner = Counting()
    inner.fails = True
    memo = MemoEmbedder(inner, 100_000)
    failed = await asyncio.gather(*(memo.embed("a") for _ in range(3)), return_exceptions=True)
    assert [type(one) for one in failed] == [ModelError] * 3
    inner.fails = False
    await memo.embed("a")
    assert len(inner.asked) == 2
    memo.check()


async def test_the_least_recently_used_go_first() -> None:
    inner = Counting()
    memo = MemoEmbedder(inner, 16 * 600)
    for number in range(30):
        await memo.embed("kept")
        await memo.embed(f"text {number}")
        memo.check()
    assert inner.asked.count("kept") == 1
    assert 0 < memo.counts.texts < 30


async def test_a_book_is_not_kept() -> None:
    memo = MemoEmbedder(Counting(), 16 * 600)
    await memo.embed("x" * 1000)
    assert memo.counts.texts == memo.counts.bytes == 0


@given(st.lists(st.text(max_size=40), max_size=60), st.integers(0, 20_000))
def test_never_more_than_its_bytes(texts: list[str], max_bytes: int) -> None:
    async def use() -> None:
        memo = MemoEmbedder(Counting(), max_bytes)
        for text in texts:
            await memo.embed(text)
            memo.check()

    asyncio.run(use())


async def test_vectors_cannot_be_changed() -> None:
    vector = await MemoEmbedder(Counting(), 100_000).embed("a")
    with pytest.raises(ValueError, match="read-only"):
        vector[0] = 2
