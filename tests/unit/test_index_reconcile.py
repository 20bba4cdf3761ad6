"""An index is compared with its store: what has no entry any more is removed, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from tests.clock import FakeClock

from stratacache.errors import StoreError
from stratacache.stores.memory import MemoryStore
from stratacache.types import Absent, Entry, Question
from stratacache.vectors.limits import IndexLimits
from stratacache.vectors.local import LocalIndex
from stratacache.vectors.reconcile import Compared, prune


async def filled(clock: FakeClock, count: int) -> tuple[LocalIndex, MemoryStore]:
    index, store = LocalIndex(4, "e", clock, IndexLimits(max_vectors=1000)), MemoryStore(1 << 20, clock)
    now = clock.now()
    for number in range(count):
        digest = number.to_bytes(16, "big")
        missed = await store.get(digest, ("odd" if number % 2 else "even",))
        assert isinstance(missed, Absent)
        entry = Entry(b"form", b"body", created_at=now, expires_at=now + 600, versions=missed.versions)
        await store.put(digest, entry)
        vector = np.random.default_rng(number).standard_normal(4).astype(np.float32)
        await index.add(Question(digest, b"p" * 16, "question", now, now + 600), vector)
    return index, store


async def test_what_the_store_lost_is_removed() -> None:
    index, store = await filled(FakeClock(), 100)
    assert await prune(index, store) == Compared(100, 0)
    await store.invalidate(["odd"], [(2).to_bytes(16, "big")])
    assert await prune(index, store, dry_run=True) == Compared(100, 51)
    assert (await index.stats()).vectors == 100
    assert await prune(index, store) == Compared(100, 51)
    left = [question.digest async for batch in index.questions() for question in batch]
    assert sorted(left) == [number.to_bytes(16, "big") for number in range(0, 100, 2) if number != 2]
    await index.check()
    await index.close()


async def test_a_store_that_fails_loses_the_index_nothing() -> None:
    index, store = await filled(FakeClock(), 10)
    await store.close()
    with pytest.raises(StoreError):
        await prune(index, store)
    assert (await index.stats()).vectors == 10
    await index.close()
