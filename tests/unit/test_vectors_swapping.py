"""Changing the embedder under a running index: nothing is lost, nothing meets vectors of the other embedder."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from tests.clock import FakeClock

from stratacache.errors import ModelError, VectorIndexError
from stratacache.ports import Embedder, Vector
from stratacache.types import Question
from stratacache.vectors import swapping
from stratacache.vectors.limits import IndexLimits
from stratacache.vectors.local import LocalIndex
from stratacache.vectors.swapping import SwappingIndex

HERE = b"h" * 16


def digest(name: object) -> bytes:
    return hashlib.sha256(str(name).encode()).digest()[:16]


class HashEmbedder:
    """Each text has a random direction of its own, for each fingerprint another."""

    def __init__(self, fingerprint: str, dimension: int = 32) -> None:
        self.fingerprint = fingerprint
        self.dimension = dimension
        self.may_go = asyncio.Event()
        self.may_go.set()
        self.down = False
        self.hopeless: set[str] = set()
        self.closed = False
        self.embedded = 0

    async def embed(self, text: str) -> Vector:
        await self.may_go.wait()
        self.embedded += 1
        if self.down or text in self.hopeless:
            raise ModelError("no", code="embedder_error" if self.down else "nothing_to_embed")
        seed = int.from_bytes(hashlib.sha256((self.fingerprint + text).encode()).digest()[:4])
        vector = np.random.default_rng(seed).standard_normal(self.dimension).astype(np.float32)
        return np.asarray(vector / np.linalg.norm(vector), np.float32)

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def index_for(embedder: Embedder, clock: FakeClock, folder: Path | None = None) -> LocalIndex:
    limits = IndexLimits(kind="hnsw", max_vectors=2000, exact_below=50)
    return LocalIndex(embedder.dimension, embedder.fingerprint, clock, limits, folder=folder)


@pytest.fixture
async def old() -> HashEmbedder:
    return HashEmbedder("old")


@pytest.fixture
async def index(old: HashEmbedder, clock: FakeClock) -> AsyncIterator[SwappingIndex]:
    made = SwappingIndex(old, index_for(old, clock))
    for number in range(100):
        await put(made, clock, f"text {number}")
    yield made
    await made.check()
    await made.close()


async def put(index: SwappingIndex, clock: FakeClock, text: str, ttl: float = 600.0) -> None:
    question = Question(digest(text), HERE, text, clock.now(), clock.now() + ttl)
    await index.add(question, await index.embedder.embed(text))


async def nearest(index: SwappingIndex, text: str) -> tuple[str, float]:
    (found,) = await index.search(HERE, await index.embedder.embed(text), 1)
    return found.question.text, found.similarity


async def test_all_texts_are_embedded_anew(index: SwappingIndex, clock: FakeClock, old: HashEmbedder) -> None:
    new = HashEmbedder("new", 48)
    before = index.serving.index
    await index.reindex(new, index_for(new, clock))
    assert index.progress == swapping.ReindexProgress("done", "new", total=100, done=100)
    assert (index.embedder.fingerprint, index.embedder.dimension) == ("new", 48)
    for number in (0, 50, 99):
        assert await nearest(index, f"text {number}") == (f"text {number}", pytest.approx(1.0, abs=2e-3))
    assert old.closed
    with pytest.raises(VectorIndexError, match="closed"):
        await before.stats()


async def test_the_old_serves_and_changes_are_kept_until_the_swap(
    index: SwappingIndex, clock: FakeClock, old: HashEmbedder
) -> None:
    new = HashEmbedder("new")
    new.may_go.clear()
    task = index.reindex(new, index_for(new, clock))
    await asyncio.sleep(0)
    assert index.progress.state == "running"
    assert index.embedder.fingerprint == "old"
    await put(index, clock, "added meanwhile")
    await put(index, clock, "text 7", ttl=900.0)
    await index.remove([digest("text 1"), digest("text 98")])
    await put(index, clock, "comes and goes")
    await index.remove([digest("comes and goes")])
    assert await nearest(index, "added meanwhile") == ("added meanwhile", pytest.approx(1.0, abs=2e-3))
    new.may_go.set()
    await task
    assert index.progress.state == "done"
    texts = {one.text: one async for batch in index.questions() for one in batch}
    expected = {f"text {number}" for number in range(100)} - {"text 1", "text 98"} | {"added meanwhile"}
    assert set(texts) == expected
    assert texts["text 7"].expires_at == clock.now() + 900.0
    assert await nearest(index, "added meanwhile") == ("added meanwhile", pytest.approx(1.0, abs=2e-3))


async def test_a_vector_of_the_old_embedder_never_meets_the_new_ones(
    index: SwappingIndex, clock: FakeClock
) -> None:
    late = await index.embedder.embed("text 3")
    new = HashEmbedder("new")
    await index.reindex(new, index_for(new, clock))
    with pytest.raises(VectorIndexError, match="before the embedder changed"):
        await index.search(HERE, late, 1)
    with pytest.raises(VectorIndexError, match="before the embedder changed"):
        await index.add(Question(digest("x"), HERE, "x", clock.now(), clock.now() + 9), late)


async def test_what_cannot_be_embedded_is_left_out(index: SwappingIndex, clock: FakeClock) -> None:
    new = HashEmbedder("new")
    new.hopeless = {"text 5", "text 6"}
    await index.reindex(new, index_for(new, clock))
    assert index.progress == swapping.ReindexProgress("done", "new", total=100, done=98, failed=2)
    assert (await index.stats()).vectors == 98


async def test_an_embedder_that_is_down_changes_nothing(
    index: SwappingIndex, clock: FakeClock, old: HashEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swapping, "_PAUSES", (0.0,))
    new = HashEmbedder("new")
    new.down = True
    aside = index_for(new, clock)
    await index.reindex(new, aside)
    assert index.progress.state == "failed"
    assert "does not answer" in index.progress.reason
    assert new.closed
    assert not old.closed
    assert await nearest(index, "text 9") == ("text 9", pytest.approx(1.0, abs=2e-3))
    with pytest.raises(VectorIndexError, match="closed"):
        await aside.stats()
    again = HashEmbedder("again")
    await index.reindex(again, index_for(again, clock))
    assert index.progress.state == "done"


async def test_one_at_a_time_and_only_what_fits(index: SwappingIndex, clock: FakeClock) -> None:
    new, other = HashEmbedder("new"), HashEmbedder("other", 16)
    stray = index_for(other, clock)
    with pytest.raises(VectorIndexError, match="not for the new embedder"):
        index.reindex(new, stray)
    await stray.close()
    new.may_go.clear()
    index.reindex(new, index_for(new, clock))
    second = index_for(new, clock)
    with pytest.raises(VectorIndexError, match="already"):
        index.reindex(new, second)
    await second.close()
    new.may_go.set()


async def test_it_can_be_given_up(index: SwappingIndex, clock: FakeClock, tmp_path: Path) -> None:
    new = HashEmbedder("new")
    new.may_go.clear()
    aside = index_for(new, clock, tmp_path)
    task = index.reindex(new, aside)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (index.progress.state, index.progress.reason) == ("failed", "given up")
    assert new.closed
    assert await nearest(index, "text 9") == ("text 9", pytest.approx(1.0, abs=2e-3))
