"""Write-back: bounded, retried, counted; the first attempt is announced; nothing is lost in a drain."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest
from tests.clock import FakeClock

from stratacache.errors import StoreError
from stratacache.pipeline import writeback
from stratacache.pipeline.writeback import WriteBack
from stratacache.ports import Event
from stratacache.types import Absent, Call, Decision, Entry, Invalidated, PutResult, Saving, StoreStats


class Counting:
    """A Recorder that counts results."""

    def __init__(self) -> None:
        self.results: Counter[str] = Counter()

    def wrote(self, result: str) -> None:
        self.results[result] += 1

    def decided(self, decision: Decision) -> None: ...
    def called(self, call: Call) -> None: ...
    def saved(self, saving: Saving) -> None: ...
    def withheld(self, reason: str) -> None: ...
    def counted(self, event: Event) -> None: ...


class FaultyStore:
    """Fails ``faults`` times, then says ``result``; ``gate`` holds every put."""

    waits = True

    def __init__(self, faults: Sequence[Exception] = (), *, result: PutResult = "stored") -> None:
        self.faults = list(faults)
        self.result = result
        self.entries: dict[bytes, Entry] = {}
        self.gate = asyncio.Event()
        self.gate.set()

    async def put(self, digest: bytes, entry: Entry) -> PutResult:
        await self.gate.wait()
        if self.faults:
            raise self.faults.pop(0)
        if self.result == "stored":
            self.entries[digest] = entry
        return self.result

    async def get(self, digest: bytes, tags: Sequence[str] = ()) -> Entry | Absent:
        return self.entries.get(digest) or Absent("not_found", ())

    async def invalidate(
        self, tags: Sequence[str], digests: Sequence[bytes] = (), *, dry_run: bool = False
    ) -> Invalidated:
        return Invalidated(0, ())

    async def stats(self) -> StoreStats:
        return StoreStats(len(self.entries), 0)

    async def check(self) -> None: ...
    async def close(self) -> None: ...


@pytest.fixture(autouse=True)
def quick_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writeback, "BACKOFF", (0.0, 0.0, 0.0))


def entry(clock: FakeClock, size: int = 10, ttl: float = 60) -> Entry:
    return Entry(form=b"", body=b"x" * size, created_at=clock.now(), expires_at=clock.now() + ttl)


async def run(store: FaultyStore, *, submit: int = 1, max_bytes: int = 1000, size: int = 10) -> Counting:
    clock, recorder = FakeClock(), Counting()
    work = WriteBack(store, recorder, clock, max_bytes=max_bytes)
    work.start()
    for number in range(submit):
        work.submit(b"%d" % number, entry(clock, size), lambda: None)
    assert await work.drain(5)
    work.check()
    await work.close()
    return recorder


async def test_entries_reach_the_store() -> None:
    store = FaultyStore()
    recorder = await run(store, submit=5)
    assert len(store.entries) == 5
    assert recorder.results == {"stored": 5}


async def test_a_store_error_is_retried() -> None:
    store = FaultyStore([StoreError("busy"), StoreError("busy")])
    recorder = await run(store)
    assert len(store.entries) == 1
    assert recorder.results == {"stored": 1}


async def test_a_store_that_stays_broken_is_counted_and_given_up() -> None:
    recorder = await run(FaultyStore([StoreError("broken")] * 4))
    assert recorder.results == {"failed": 1}


async def test_an_error_the_store_does_not_announce_does_not_stop_the_worker() -> None:
    store = FaultyStore([ValueError("a bug")])
    recorder = await run(store, submit=2)
    assert recorder.results == {"failed": 1, "stored": 1}


async def test_a_declined_entry_is_counted() -> None:
    assert (await run(FaultyStore(result="declined"))).results == {"declined": 1}


async def test_an_entry_that_expired_while_it_waited_is_not_written() -> None:
    clock, recorder, store = FakeClock(), Counting(), FaultyStore()
    work = WriteBack(store, recorder, clock)
    work.submit(b"k", entry(clock, ttl=10), lambda: None)
    clock.advance(11)
    work.start()
    assert await work.drain(5)
    await work.close()
    assert store.entries == {}
    assert recorder.results == {"expired": 1}


async def test_beyond_its_bytes_entries_are_dropped_and_announced_at_once() -> None:
    clock, recorder, store = FakeClock(), Counting(), FaultyStore()
    work = WriteBack(store, recorder, clock, max_bytes=100)
    announced = []
    for number in range(3):
        work.submit(b"%d" % number, entry(clock, 50), lambda n=number: announced.append(n))  # type: ignore[misc]
    assert announced == [2]
    assert recorder.results == {"dropped": 1}
    work.start()
    assert await work.drain(5)
    await work.close()
    assert announced == [2, 0, 1]


async def test_the_first_attempt_is_announced_even_when_it_fails() -> None:
    clock, recorder, store = FakeClock(), Counting(), FaultyStore([StoreError("busy")])
    work = WriteBack(store, recorder, clock)
    announced = []
    work.submit(b"k", entry(clock), lambda: announced.append(len(store.entries)))
    work.start()
    assert await work.drain(5)
    await work.close()
    assert announced == [0]
    assert len(store.entries) == 1


async def test_a_drain_that_takes_too_long_says_so() -> None:
    clock, recorder, store = FakeClock(), Counting(), FaultyStore()
    store.gate.clear()
    work = WriteBack(store, recorder, clock)
    work.submit(b"k", entry(clock), lambda: None)
    work.start()
    assert not await work.drain(0.01)
    await work.close()


async def test_a_retry_does_not_put_an_older_answer_over_a_newer_one() -> None:
    clock, recorder, store = FakeClock(), Counting(), FaultyStore([StoreError("busy")])
    work = WriteBack(store, recorder, clock)
    newer = entry(clock, size=20)
    work.submit(b"k", entry(clock), lambda: work.submit(b"k", newer, lambda: None))
    work.start()
    assert await work.drain(5)
    work.check()
    await work.close()
    assert store.entries == {b"k": newer}
    assert recorder.results == {"stored": 1, "superseded": 1}


async def test_several_puts_are_under_way_at_once_but_never_two_under_one_digest() -> None:
    clock, recorder, store = FakeClock(), Counting(), FaultyStore()
    under_way: list[bytes] = []
    most = 0

    async def put(digest: bytes, entry: Entry) -> PutResult:
        nonlocal most
        assert digest not in under_way
        under_way.append(digest)
        most = max(most, len(under_way))
        await asyncio.sleep(0)
        under_way.remove(digest)
        store.entries[digest] = entry
        return "stored"

    store.put = put  # type: ignore[method-assign]
    work = WriteBack(store, recorder, clock, max_bytes=10_000)
    work.start()
    for number in range(30):
        work.submit(b"%d" % (number % 3), entry(clock, number), lambda: None)
    assert await work.drain(5)
    await work.close()
    assert most == 3
    assert [len(store.entries[b"%d" % digest].body) for digest in range(3)] == [27, 28, 29], (
        "the newest stands"
    )
    work.check()
