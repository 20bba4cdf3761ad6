"""Any order of operations by two instances against a plain model: a store gives the last put while that is current.

It may lose entries and versions. It never changes or revives an entry, never gives one that lacks an asked tag, and
never stores an answer that was begun before an invalidation.
"""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import tempfile
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.clock import FakeClock
from tests.contract.backends import KINDS, Kind

from stratacache.ports import Store
from stratacache.types import Absent, Entry, Versions

T = TypeVar("T")
KEYS = [hashlib.sha256(bytes([number])).digest()[:16] for number in range(6)]
TAGS = ["*", "a", "b", "价"]
MAX_BYTES = 12_000  # room for about five of the larger entries, so that eviction takes part

keys = st.sampled_from(KEYS)
tag_sets = st.lists(st.sampled_from(TAGS), max_size=3, unique=True)
instances = st.sampled_from([0, 1])


class StoreMachine(RuleBasedStateMachine):
    """``entries`` holds every entry that a get may return, ``newest`` the highest version seen of each tag."""

    kind: Kind

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        self.folder = tempfile.TemporaryDirectory()
        self.entries: dict[bytes, Entry] = {}
        self.newest: dict[str, int] = {}
        self.snapshots: list[Versions] = []
        self.written = 0
        self.stacks = [AsyncExitStack(), AsyncExitStack()]
        self.stores: list[Store] = []
        self.open()

    def open(self) -> None:
        opened = [self.run(self.open_one(stack)) for stack in self.stacks[: 1 + self.kind.shared]]
        self.stores = [opened[0], opened[-1]]

    async def open_one(self, stack: AsyncExitStack) -> Store:
        path = Path(self.folder.name)
        return (await stack.enter_async_context(self.kind.open(self.clock, MAX_BYTES, path))).store

    def close(self) -> None:
        for stack in self.stacks:
            self.run(stack.aclose())

    def run(self, step: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(step)

    def saw(self, versions: Versions, *, bumped: bool = False) -> None:
        """Versions never fall; what is not of the newest is never right again, whoever lost it."""
        for tag, version in versions:
            newest = self.newest.get(tag, 0)
            assert version > newest if bumped else version >= newest
            self.newest[tag] = version
        self.entries = {key: entry for key, entry in self.entries.items() if self.is_current(entry.versions)}

    def is_current(self, versions: Versions) -> bool:
        return all(self.newest[tag] == version for tag, version in versions)

    @rule(instance=instances, key=keys, tags=tag_sets)
    def get(self, instance: int, key: bytes, tags: list[str]) -> None:
        found = self.run(self.stores[instance].get(key, tags))
        if isinstance(found, Absent):
            self.saw(found.versions)
            assert set(tags) <= {tag for tag, _ in found.versions}
            self.snapshots.append(found.versions)
            if found.reason != "untagged":
                # Lost, expired or outdated. What was missed once may not come back by itself.
                self.entries.pop(key, None)
        else:
            assert found == self.entries.get(key)
            assert set(tags) <= set(found.tags)
            assert found.gone_at > self.clock.now()

    @precondition(lambda self: self.snapshots)
    @rule(
        instance=instances,
        key=keys,
        back=st.integers(1, 4),
        size=st.sampled_from([0, 10, 1500, 2300]),
        ttl=st.sampled_from([-1.0, 0.0, 5.0, 30.0, 1e4]),
        grace=st.sampled_from([0.0, 20.0]),
    )
    def put(self, instance: int, key: bytes, back: int, size: int, ttl: float, grace: float) -> None:
        self.written += 1
        now = self.clock.now()
        text = str(self.written).encode()
        versions = self.snapshots[-min(back, len(self.snapshots))]
        stale_until = now + ttl + grace if grace else 0.0
        entry = Entry(
            key + text, text.ljust(size), now, now + ttl, versions=versions, stale_until=stale_until
        )
        result = self.run(self.stores[instance].put(key, entry))
        if result == "outdated":
            assert versions, "nothing can outdate an entry without tags"
            return
        assert self.is_current(versions)
        if result == "stored":
            assert ttl + grace > 0
            self.entries[key] = entry
            for store in self.stores:
                assert self.run(store.get(key)) == entry, "stored means kept, for every instance"
        else:
            self.entries.pop(key, None)

    @rule(instance=instances, tags=tag_sets, chosen=st.lists(keys, max_size=3), dry_run=st.booleans())
    def invalidate(self, instance: int, tags: list[str], chosen: list[bytes], dry_run: bool) -> None:
        there = sum(key in chosen or not set(tags).isdisjoint(e.tags) for key, e in self.live().items())
        told = self.run(self.stores[instance].invalidate(tags, chosen, dry_run=dry_run))
        assert [tag for tag, _ in told.versions] == sorted(tags)
        assert told.affected is None or self.kind.counts or not tags
        self.saw(told.versions, bumped=not dry_run)
        if told.affected is not None and not dry_run:
            assert told.affected >= there
        if not dry_run:
            for key in chosen:
                self.entries.pop(key, None)

    def live(self) -> dict[bytes, Entry]:
        """What the first instance still has."""
        found = {key: self.run(self.stores[0].get(key)) for key in KEYS}
        return {key: entry for key, entry in found.items() if isinstance(entry, Entry)}

    @precondition(lambda self: self.kind.name in LOSSES)
    @rule()
    def lose_versions(self) -> None:
        LOSSES[self.kind.name](self.stores[0], Path(self.folder.name))
        self.entries = {key: entry for key, entry in self.entries.items() if not entry.versions}

    @rule(seconds=st.sampled_from([0.5, 5.0, 29.5, 61.0, 7200.0]))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(seconds=st.sampled_from([-7200.0, -20.0, 20.0]))
    def set_wall_clock(self, seconds: float) -> None:
        self.clock.jump(seconds)

    @precondition(lambda self: self.kind.durable)
    @rule()
    def restart(self) -> None:
        self.close()
        self.open()

    @invariant()
    def whole(self) -> None:
        self.run(self.stores[0].check())
        if self.kind.bounded:
            stats = self.run(self.stores[1].stats())
            assert stats.bytes <= MAX_BYTES
            assert stats.entries <= len(KEYS)

    def teardown(self) -> None:
        self.close()
        self.loop.close()
        self.folder.cleanup()


def _lose_in_memory(store: Store, _: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stratacache.stores.versions.MAX_TAGS", 0)
        asyncio.run(store.get(bytes(16), ["one more than there is room for"]))


def _lose_in_sqlite(_: Store, folder: Path) -> None:
    connection = sqlite3.connect(folder / "deep" / "cache.db")
    connection.execute("DELETE FROM versions")
    connection.commit()
    connection.close()


# How the versions of a backend are lost, for those that cannot be made to by time or restarts alone.
LOSSES: dict[str, Callable[[Store, Path], None]] = {"memory": _lose_in_memory, "sqlite": _lose_in_sqlite}
EXAMPLES = {"memory": 150, "sqlite": 25, "rocksdb": 25, "memcached": 60, "redis": 60}


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_order_of_operations_gives_a_stale_entry(name: str) -> None:
    class Machine(StoreMachine):
        kind = next(kind for kind in KINDS if kind.name == name)

    steps = settings(max_examples=EXAMPLES[name], stateful_step_count=40, deadline=None)
    run_state_machine_as_test(Machine, settings=steps)
