"""What the stores cost and what the memory store's policy earns, beside plain Python structures.

    python -m benchmarks.store_speed [--rows N] [--trace FILE] [--million [N]]

``--rows``: entries in the SQLite part. ``--trace``: JSON lines with ``hash_ids``, such as Mooncake's conversation
trace; each id is one lookup. ``--million``: instead of the rest, one SQLite file of a million entries (or N) of 1 to
2 KB, in the folder for temporary files: minutes, and 2 GB.
"""

from __future__ import annotations

import argparse
import asyncio
import bisect
import gc
import hashlib
import json
import os
import random
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

from benchmarks import report
from stratacache.clock import SystemClock
from stratacache.policy.tags import bucket_tag
from stratacache.ports import Store
from stratacache.stores.memory import MemoryStore, cost_of
from stratacache.stores.sqlite import SQLiteStore
from stratacache.types import Absent, Entry, Versions

COMMAND = "python -m benchmarks.store_speed"
ENTRIES = 10_000
ROUNDS = 9


class Cache(Protocol):
    async def get(self, digest: bytes) -> Entry | Absent | None: ...
    async def put(self, digest: bytes, entry: Entry) -> object: ...


class DictCache:
    """The least that a cache can do: a dict behind coroutines."""

    def __init__(self) -> None:
        self._entries: dict[bytes, Entry] = {}

    async def get(self, digest: bytes) -> Entry | None:
        return self._entries.get(digest)

    async def put(self, digest: bytes, entry: Entry) -> bool:
        self._entries[digest] = entry
        return True


class LruCache:
    """The usual OrderedDict LRU with expiry, bounded by number."""

    def __init__(self, room: int) -> None:
        self._entries: OrderedDict[bytes, Entry] = OrderedDict()
        self._room = room

    async def get(self, digest: bytes) -> Entry | None:
        entry = self._entries.get(digest)
        if entry is None or entry.expires_at <= time.time():
            return None
        self._entries.move_to_end(digest)
        return entry

    async def put(self, digest: bytes, entry: Entry) -> bool:
        self._entries[digest] = entry
        self._entries.move_to_end(digest)
        if len(self._entries) > self._room:
            self._entries.popitem(last=False)
        return True


def digest_of(number: int) -> bytes:
    return hashlib.sha256(number.to_bytes(8, "big", signed=True)).digest()[:16]


def digests(count: int) -> list[bytes]:
    return [digest_of(number) for number in range(count)]


def entry_of(number: int, form: int = 600, body: int = 2048) -> Entry:
    """An entry with objects of its own, as a gateway would make it."""
    now = time.time()
    return Entry(
        form=os.urandom(form),
        body=os.urandom(body),
        created_at=now,
        expires_at=now + 3600 + number % 600,
        model="smollm2-135m",
        prompt_tokens=300 + number,
        completion_tokens=400 + number,
    )


async def timed(call: Callable[[int], Awaitable[object]], count: int) -> float:
    """CPU nanoseconds per call; CPU time, so that other processes on the machine count for nothing."""
    start = time.thread_time_ns()
    for number in range(count):
        await call(number)
    return (time.thread_time_ns() - start) / count


async def memory_costs() -> dict[str, dict[str, float]]:
    """CPU nanoseconds per get (hit) and put (a store at its bound), each cache in turn in every round."""
    keys = digests(2 * ENTRIES)
    entries = [entry_of(number, 60, 200) for number in range(2 * ENTRIES)]
    room = ENTRIES * cost_of(entries[0])
    makers: dict[str, Callable[[], Cache]] = {
        "dict": DictCache,
        "OrderedDict LRU": lambda: LruCache(ENTRIES),
        "MemoryStore": lambda: MemoryStore(room, SystemClock()),
    }
    gets: dict[str, list[float]] = {name: [] for name in makers}
    puts: dict[str, list[float]] = {name: [] for name in makers}
    for _ in range(ROUNDS):
        for name, make in makers.items():
            cache = make()

            async def put(number: int, cache: Cache = cache) -> object:
                return await cache.put(keys[number], entries[number])

            async def get(number: int, cache: Cache = cache) -> object:
                return await cache.get(keys[number])

            puts[name].append(await timed(put, 2 * ENTRIES))
            for number in range(ENTRIES):
                await cache.put(keys[number], entries[number])
            gets[name].append(await timed(get, ENTRIES))
    return {
        name: {"get_ns": report.median(gets[name]), "put_ns": report.median(puts[name])} for name in makers
    }


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def memory_footprint() -> dict[str, float]:
    """Resident bytes that 10,000 entries of 2 KB body and 600 B form add."""
    store = MemoryStore(1 << 30, SystemClock())
    gc.collect()
    before = resident_bytes()
    for number, digest in enumerate(digests(ENTRIES)):
        await store.put(digest, entry_of(number))
    gc.collect()
    stats = await store.stats()
    return {
        "entries": stats.entries,
        "added_rss_bytes": resident_bytes() - before,
        "charged_bytes": stats.bytes,
    }


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


async def latencies(call: Callable[[int], Awaitable[object]], count: int) -> list[float]:
    """Microseconds of each call, one after the other."""
    found = []
    for number in range(count):
        start = time.perf_counter_ns()
        await call(number)
        found.append((time.perf_counter_ns() - start) / 1000)
    return found


async def sqlite_costs(rows: int) -> dict[str, float]:
    """Latency through the event loop and threads, and the file beside its payload."""
    keys = digests(rows)
    payload = 0

    async def put(number: int) -> None:
        nonlocal payload
        # Sizes vary as answers do; equal ones could fit pages unusually well or badly.
        entry = entry_of(number, body=max(300, int(shapes.gauss(2048, 600))))
        payload += entry.size
        await store.put(keys[number], entry)

    async def get(_: int) -> None:
        assert isinstance(await store.get(shapes.choice(keys)), Entry)

    shapes = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cache.db"
        store: Store = SQLiteStore(path, 1 << 40, SystemClock())
        puts = await latencies(put, rows)
        gets = await latencies(get, min(rows, 20_000))
        await store.close()
        size = path.stat().st_size
    return {
        "rows": rows,
        "put_p50_us": percentile(puts, 0.5),
        "put_p99_us": percentile(puts, 0.99),
        "get_p50_us": percentile(gets, 0.5),
        "get_p99_us": percentile(gets, 0.99),
        "file_to_payload": size / payload,
    }


LABELS = ("*", "model:smollm2-135m", "tenant:default")


def million_entry(number: int, versions: Versions, shapes: random.Random) -> Entry:
    """1 to 2 KB of payload, with the tags that the gateway gives."""
    size = shapes.randint(1000, 2000)
    now = time.time()
    return Entry(
        form=os.urandom(300),
        body=os.urandom(size - 300),
        created_at=now,
        expires_at=now + 86_400 + number % 600,
        model="smollm2-135m",
        versions=versions,
        prompt_tokens=300 + number % 100,
        completion_tokens=400 + number % 100,
        seconds=1.25,
    )


async def fill(store: SQLiteStore, first: int, count: int, together: int) -> tuple[float, int]:
    """Entries stored per second with so many puts ``together``, and their payload."""
    shapes = random.Random(first)
    seconds, payload = 0.0, 0
    for start in range(first, first + count, together):
        puts = []
        for number in range(start, min(start + together, first + count)):
            digest = digest_of(number)
            found = await store.get(digest, (*LABELS, bucket_tag(digest)))
            assert isinstance(found, Absent)
            puts.append((digest, million_entry(number, found.versions, shapes)))
        payload += sum(entry.size for _, entry in puts)
        begun = time.perf_counter()
        results = await asyncio.gather(*(store.put(digest, entry) for digest, entry in puts))
        seconds += time.perf_counter() - begun
        assert set(results) == {"stored"}
    return count / seconds, payload


async def million_costs(entries: int) -> dict[str, Any]:
    """One large file: put throughput, look-ups anywhere in it, its size, and invalidating what all entries carry."""
    alone = min(entries // 10, 10_000)
    chance = random.Random(3)

    async def get(_: int) -> None:
        digest = digest_of(chance.randrange(entries))
        assert isinstance(await store.get(digest, (*LABELS, bucket_tag(digest))), Entry)

    async def miss(number: int) -> None:
        assert isinstance(await store.get(digest_of(-1 - number), LABELS), Absent)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cache.db"
        store = SQLiteStore(path, 1 << 40, SystemClock())
        rate_alone, payload = await fill(store, 0, alone, 1)
        rate_together, more = await fill(store, alone, entries - alone, 128)
        figures: dict[str, Any] = {"entries": (await store.stats()).entries}
        figures |= {"puts_per_s_one_at_a_time": rate_alone, "puts_per_s_128_at_a_time": rate_together}
        gets, misses = await latencies(get, 20_000), await latencies(miss, 5000)
        invalidations = []
        for (
            tag
        ) in LABELS:  # each is carried by all: outdated by one tag, an entry still counts for the others
            begun = time.perf_counter()
            told = await store.invalidate([tag])
            invalidations.append((time.perf_counter() - begun) * 1000)
            assert told.affected == entries
        await store.close()
        figures |= {
            "get_p50_us": percentile(gets, 0.5),
            "get_p99_us": percentile(gets, 0.99),
            "miss_p50_us": percentile(misses, 0.5),
            "miss_p99_us": percentile(misses, 0.99),
            "invalidate_ms": invalidations,
            "payload_bytes": payload + more,
            "file_bytes": path.stat().st_size,
            "file_to_payload": path.stat().st_size / (payload + more),
        }
    return figures


def zipf_trace(keys: int, length: int, skew: float) -> list[bytes]:
    """``length`` lookups of ``keys`` digests, the n-th most popular in proportion to n^-skew."""
    weights = list(accumulate(1 / (rank + 1) ** skew for rank in range(keys)))
    chance = random.Random(7)
    names = digests(keys)
    return [names[bisect.bisect(weights, chance.random() * weights[-1])] for _ in range(length)]


def file_trace(path: Path) -> list[bytes]:
    with path.open() as lines:
        ids = [block for line in lines for block in json.loads(line)["hash_ids"]]
    names = {block: hashlib.sha256(str(block).encode()).digest()[:16] for block in set(ids)}
    return [names[block] for block in ids]


async def hit_ratio(cache: Cache, trace: Sequence[bytes], entry: Entry) -> float:
    hits = 0
    for digest in trace:
        if isinstance(await cache.get(digest), Entry):
            hits += 1
        else:
            await cache.put(digest, entry)
    return hits / len(trace)


async def hit_ratios(name: str, trace: Sequence[bytes], rooms: Sequence[int]) -> list[dict[str, Any]]:
    """W-TinyLFU and LRU with room for as many equal entries, beside a cache without bound."""
    entry = Entry(form=b"f" * 600, body=b"b" * 2048, created_at=0.0, expires_at=1e12)
    bound = 1 - len(set(trace)) / len(trace)
    return [
        {
            "trace": name,
            "lookups": len(trace),
            "room": room,
            "w_tinylfu": await hit_ratio(MemoryStore(room * cost_of(entry), SystemClock()), trace, entry),
            "lru": await hit_ratio(LruCache(room), trace, entry),
            "unbounded": bound,
        }
        for room in rooms
    ]


async def measure(rows: int, trace: Path | None) -> dict[str, Any]:
    # Latencies cannot be read without knowing what else the machine did.
    figures: dict[str, Any] = {"load_average_before": os.getloadavg()[0]}
    figures |= {"footprint": await memory_footprint(), "memory": await memory_costs()}
    figures["hit_ratios"] = await hit_ratios("zipf 0.9", zipf_trace(100_000, 200_000, 0.9), (500, 2000, 8000))
    if trace is not None:
        figures["hit_ratios"] += await hit_ratios(trace.name, file_trace(trace), (1000, 5000, 20_000, 50_000))
    figures["sqlite"] = await sqlite_costs(rows)
    return figures


def print_million(entries: int) -> None:
    load = os.getloadavg()[0]
    figures = asyncio.run(million_costs(entries))
    for name, value in figures.items():
        print(f"{name:26} {value}")
    figures |= {"load_average_before": load, "load_average_after": os.getloadavg()[0]}
    print(report.write("store_million", f"{COMMAND} --million {entries}", figures))


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--million", type=int, nargs="?", const=1_000_000, metavar="N")
    options = parser.parse_args(arguments)
    if options.million:
        print_million(options.million)
        return
    figures = asyncio.run(measure(options.rows, options.trace))
    for name, costs in figures["memory"].items():
        print(f"{name:16} get {costs['get_ns']:7.0f} ns   put {costs['put_ns']:7.0f} ns")
    footprint = figures["footprint"]
    added, charged = footprint["added_rss_bytes"] / 1e6, footprint["charged_bytes"] / 1e6
    print(f"10,000 entries add {added:.1f} MB and are charged {charged:.1f} MB")
    for row in figures["hit_ratios"]:
        print(
            f"{row['trace']:26} room {row['room']:6}  W-TinyLFU {row['w_tinylfu']:.4f}  LRU {row['lru']:.4f}"
            f"  unbounded {row['unbounded']:.4f}"
        )
    print("SQLite", {name: round(value, 3) for name, value in figures["sqlite"].items()})
    trace = f" --trace {options.trace.name}" if options.trace else ""
    print(report.write("store_speed", f"{COMMAND} --rows {options.rows}{trace}", figures))


if __name__ == "__main__":
    main(sys.argv[1:])
