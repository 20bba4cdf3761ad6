"""Near caches of two instances before one shared store: no read is stale or foreign, whatever news is lost."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.clock import FakeClock

from stratacache.observe.metrics import Metrics
from stratacache.stores.memory import MemoryStore
from stratacache.stores.near import NearCache
from stratacache.types import Absent, Entry, Invalidated, Versions

News = tuple[Invalidated | None, Sequence[bytes]]
INSTANCES = st.sampled_from([0, 1])
DIGESTS = st.sampled_from([b"a" * 16, b"b" * 16, b"c" * 16])
TAGS = st.sampled_from(["x", "y"])
TAG_SETS = st.sampled_from([(), ("x",), ("y",), ("x", "y")])


class SlowBulletin:
    """News arrive when the test says so, or are lost; ``current`` tells the truth about that, as the port asks."""

    def __init__(self) -> None:
        self.waiting: deque[News] = deque()
        self.hear: Callable[[Invalidated | None, Sequence[bytes]], None] = lambda what, digests: None

    def current(self) -> bool:
        return not self.waiting

    async def start(self, hear: Callable[[Invalidated | None, Sequence[bytes]], None]) -> None:
        self.hear = hear

    async def close(self) -> None:
        """Nothing to release."""


class NearMachine(RuleBasedStateMachine):
    """``truth`` holds, for each digest, the number of the last answer that was stored under it and still stands."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.shared = MemoryStore(100_000, self.clock)
        self.bulletins = [SlowBulletin(), SlowBulletin()]
        self.nears = [
            NearCache(self.shared, bulletin, Metrics(), self.clock, max_bytes=20_000)
            for bulletin in self.bulletins
        ]
        for bulletin, near in zip(self.bulletins, self.nears, strict=True):
            bulletin.hear = near.hear
        self.number = 0
        self.gone: set[bytes] = set()  # bodies that an invalidation hit
        self.snapshots: list[tuple[bytes, Versions]] = []

    def run(self, step: Any) -> Any:
        return asyncio.run(step)

    @rule(instance=INSTANCES, digest=DIGESTS, tags=TAG_SETS)
    def read(self, instance: int, digest: bytes, tags: tuple[str, ...]) -> None:
        found = self.run(self.nears[instance].get(digest, tags))
        if isinstance(found, Absent):
            self.snapshots.append((digest, found.versions))
            return
        assert found.form == digest, "a foreign entry"
        assert found.body not in self.gone, "a stale entry"
        assert set(tags) <= set(found.tags)

    @rule(instance=INSTANCES, pick=st.integers(0, 100))
    def answer(self, instance: int, pick: int) -> None:
        """A call that began at some earlier read comes back now."""
        if not self.snapshots:
            return
        digest, versions = self.snapshots[pick % len(self.snapshots)]
        self.number += 1
        now = self.clock.now()
        entry = Entry(digest, b"%d" % self.number, now, now + 1000, versions=versions)
        self.run(self.nears[instance].put(digest, entry))
        newest = dict(self.run(self.shared.invalidate(["x", "y"], dry_run=True)).versions)
        if any(newest[tag] != version for tag, version in versions):
            self.gone.add(entry.body)

    @rule(instance=INSTANCES, tags=st.sets(TAGS), digests=st.sets(DIGESTS))
    def invalidate(self, instance: int, tags: set[str], digests: set[bytes]) -> None:
        standing = [self.run(self.shared.get(digest)) for digest in (b"a" * 16, b"b" * 16, b"c" * 16)]
        done = self.run(self.nears[instance].invalidate(sorted(tags), sorted(digests)))
        for entry in standing:
            if isinstance(entry, Entry) and (tags & set(entry.tags) or entry.form in digests):
                self.gone.add(entry.body)
        self.bulletins[1 - instance].waiting.append((done, sorted(digests)))

    @rule(instance=INSTANCES)
    def deliver(self, instance: int) -> None:
        waiting = self.bulletins[instance].waiting
        if waiting:
            what, digests = waiting.popleft()

            async def on_the_loop() -> None:
                self.nears[instance].hear(what, digests)

            self.run(on_the_loop())

    @rule(instance=INSTANCES)
    def lose(self, instance: int) -> None:
        waiting = self.bulletins[instance].waiting
        if waiting:
            waiting.clear()
            waiting.append((None, ()))  # the loss is noticed

    @rule(seconds=st.sampled_from([-50.0, 1.0, 400.0]))
    def set_clock(self, seconds: float) -> None:
        self.clock.jump(seconds)

    @rule()
    def restart_empty(self) -> None:
        """The shared server comes back without its data; copies may go on, as they were never invalidated."""
        self.shared = MemoryStore(100_000, self.clock)
        for near in self.nears:
            near._store = self.shared

    @invariant()
    def whole(self) -> None:
        for near in self.nears:
            self.run(near.check())


NearMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestNear = NearMachine.TestCase
