"""Any order of changes, searches, sweeps and snapshots of a local index against a plain model."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from tests.clock import FakeClock

from stratacache.types import Question
from stratacache.vectors.limits import IndexKind, IndexLimits
from stratacache.vectors.local import LocalIndex

T = TypeVar("T")
DIMENSION = 12
DIGESTS = [hashlib.sha256(bytes([number])).digest()[:16] for number in range(60)]
PARTITIONS = [b"p" * 16, b"q" * 16]
_random = np.random.default_rng(1).standard_normal((40, DIMENSION)).astype(np.float32)
VECTORS = _random / np.linalg.norm(_random, axis=1, keepdims=True)

digests = st.sampled_from(DIGESTS)
partitions = st.sampled_from(PARTITIONS)
vectors = st.integers(0, len(VECTORS) - 1)


class IndexMachine(RuleBasedStateMachine):
    """``model``: every question that was added and not removed, with the number of its vector."""

    kind: IndexKind
    most = 40

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        self.folder = tempfile.TemporaryDirectory()
        self.limits = IndexLimits(
            kind=self.kind, max_vectors=self.most, exact_below=8, rebuild_share=0.3, sweep_seconds=1e6
        )
        self.index = LocalIndex(DIMENSION, "f", self.clock, self.limits, folder=Path(self.folder.name))
        self.model: dict[bytes, tuple[Question, int]] = {}
        self.added = 0

    def run(self, step: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(step)

    def live(self, partition: bytes) -> dict[bytes, tuple[Question, int]]:
        now = self.clock.now()
        return {
            key: (one, vector)
            for key, (one, vector) in self.model.items()
            if one.partition == partition and one.expires_at > now
        }

    @rule(
        digest=digests,
        partition=partitions,
        vector=vectors,
        ttl=st.sampled_from([-1.0, 5.0, 30.0, 1e4, float("inf")]),
    )
    def add(self, digest: bytes, partition: bytes, vector: int, ttl: float) -> None:
        self.added += 1
        now = self.clock.now()
        one = Question(digest, partition, str(self.added), now, now + ttl)
        self.run(self.index.add(one, VECTORS[vector]))
        self.model.pop(digest, None)
        if ttl > 0:
            self.make_room()
            self.model[digest] = (one, vector)

    def make_room(self) -> None:
        """Who goes is the soonest to expire, and of these the oldest; of equals any, so the index is asked."""
        if len(self.model) < self.most:
            return
        least = min((one.expires_at, one.created_at) for one, _ in self.model.values())
        equals = [key for key, (one, _) in self.model.items() if (one.expires_at, one.created_at) == least]
        gone = set(equals) - self.held()
        assert len(gone) == 1 or (gone and least[0] <= self.clock.now())  # the sweep may have come too
        for key in gone:
            del self.model[key]

    def held(self) -> set[bytes]:
        rows = self.index._table.rows
        return {rows.question(row, b"").digest for row in range(rows.high) if rows.owners[row]}

    @rule(partition=partitions, few=st.integers(1, 30), vector=vectors, ttl=st.sampled_from([5.0, 1e4]))
    def add_some(self, partition: bytes, few: int, vector: int, ttl: float) -> None:
        for at in range(few):
            self.add(DIGESTS[(vector + at) % len(DIGESTS)], partition, (vector * 7 + at) % len(VECTORS), ttl)

    @rule(chosen=st.lists(digests, max_size=20))
    def remove(self, chosen: list[bytes]) -> None:
        self.run(self.index.remove(chosen))
        for digest in chosen:
            self.model.pop(digest, None)

    @rule(seconds=st.sampled_from([1.0, 5.0, 40.0]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def sweep(self) -> None:
        self.run(self.index.sweep())
        now = self.clock.now()
        self.model = {key: value for key, value in self.model.items() if value[0].expires_at > now}
        assert self.run(self.index.stats()).vectors == len(self.model)

    @rule()
    def settle(self) -> None:
        self.run(self.index.settled())

    @rule()
    def yield_to_upkeep(self) -> None:
        self.run(asyncio.sleep(0))

    @rule(partition=partitions, vector=vectors, count=st.integers(1, 12))
    def search(self, partition: bytes, vector: int, count: int) -> None:
        found = self.run(self.index.search(partition, VECTORS[vector], count))
        live = self.live(partition)
        assert len(found) == min(count, len(live))
        assert len({one.question.digest for one in found}) == len(found)
        for one in found:
            question, number = live[one.question.digest]
            assert one.question == question
            assert abs(one.similarity - float(VECTORS[vector] @ VECTORS[number])) < 3e-3
        true = sorted((float(VECTORS[vector] @ VECTORS[at]) for _, at in live.values()), reverse=True)
        assert np.allclose([one.similarity for one in found], true[: len(found)], atol=3e-3)

    @rule()
    def save_and_load(self) -> None:
        self.run(self.index.save(b"%d" % self.added))
        self.run(self.index.close())
        self.index, cursor = LocalIndex.load(Path(self.folder.name), DIMENSION, "f", self.clock, self.limits)
        assert cursor == b"%d" % self.added

    @invariant()
    def holds(self) -> None:
        self.run(self.index.check())
        held, now = self.held(), self.clock.now()
        assert (
            {key for key, (one, _) in self.model.items() if one.expires_at > now} <= held <= set(self.model)
        )
        self.model = {key: value for key, value in self.model.items() if key in held}

    def teardown(self) -> None:
        self.run(self.index.settled())
        self.run(self.index.check())
        self.run(self.index.close())
        self.loop.close()
        self.folder.cleanup()


@pytest.mark.parametrize("kind", ["exact", "hnsw"])
def test_a_local_index_is_what_its_model_is(kind: IndexKind) -> None:
    machine = type("Machine", (IndexMachine,), {"kind": kind})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=60, stateful_step_count=40, deadline=None)
    )
