"""Any order of operations against a plain dict: a store returns exactly the last put, or nothing."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.clock import FakeClock

from stratacache.ports import Store
from stratacache.stores import open_store
from stratacache.types import Entry

T = TypeVar("T")
KEYS = [hashlib.sha256(bytes([number])).digest() for number in range(6)]
MAX_BYTES = 12_000  # room for about five of the larger entries, so that eviction takes part

keys = st.sampled_from(KEYS)


class StoreMachine(RuleBasedStateMachine):
    """``model`` holds every entry that a get may return. A store may lose entries, never change or revive them."""

    durable = False

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        self.folder = tempfile.TemporaryDirectory()
        self.model: dict[bytes, Entry] = {}
        self.written = 0
        self.store = self.open()

    def open(self) -> Store:
        url = f"sqlite:///{Path(self.folder.name) / 'cache.db'}" if self.durable else "memory://"
        return open_store(url, max_bytes=MAX_BYTES, clock=self.clock)

    def run(self, step: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(step)

    @rule(key=keys)
    def get(self, key: bytes) -> None:
        found = self.run(self.store.get(key))
        if found is None:
            # Lost or expired. Either way it must stay gone: what was missed once may not come back by itself.
            self.model.pop(key, None)
        else:
            assert found == self.model.get(key)
            assert found.expires_at > self.clock.now()

    @rule(
        key=keys, size=st.sampled_from([0, 10, 1500, 2500]), ttl=st.sampled_from([-1.0, 0.0, 5.0, 30.0, 1e4])
    )
    def put(self, key: bytes, size: int, ttl: float) -> None:
        self.written += 1
        now = self.clock.now()
        text = str(self.written).encode()
        entry = Entry(
            form=key + text, body=text.ljust(size), created_at=now, expires_at=now + ttl, tags=(str(size),)
        )
        if self.run(self.store.put(key, entry)):
            assert ttl > 0
            self.model[key] = entry
            assert self.run(self.store.get(key)) == entry, "True means kept"
        else:
            self.model.pop(key, None)

    @rule(chosen=st.lists(keys, max_size=4))
    def delete(self, chosen: list[bytes]) -> None:
        count = self.run(self.store.delete(chosen))
        assert 0 <= count <= len(set(chosen))
        for key in chosen:
            self.model.pop(key, None)

    @rule(seconds=st.sampled_from([0.5, 5.0, 29.5, 61.0, 3600.0]))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(seconds=st.sampled_from([-7200.0, -20.0, 20.0]))
    def set_wall_clock(self, seconds: float) -> None:
        self.clock.jump(seconds)

    @precondition(lambda self: self.durable)
    @rule()
    def reopen(self) -> None:
        self.run(self.store.close())
        self.store = self.open()

    @invariant()
    def whole(self) -> None:
        self.run(self.store.check())
        stats = self.run(self.store.stats())
        assert stats.bytes <= MAX_BYTES
        assert stats.entries <= len(KEYS)

    def teardown(self) -> None:
        self.run(self.store.close())
        self.loop.close()
        self.folder.cleanup()


class SQLiteMachine(StoreMachine):
    durable = True


TestMemory = StoreMachine.TestCase
TestMemory.settings = settings(max_examples=150, stateful_step_count=40)
TestSQLite = SQLiteMachine.TestCase
TestSQLite.settings = settings(max_examples=25, stateful_step_count=30)
