"""What a shared store costs a hit: CPU of the gateway per exact hit, by store, beside the store in memory.

    python -m benchmarks.shared_store_speed

Also how long an invalidation takes while several instances keep copies, of a tag with one entry and of one with very
many. Rounds are interleaved and medians reported, so that other load on the machine falls on all alike.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from tests.servers.redis import RedisServer

from benchmarks import loadgen, report
from benchmarks.gateway_speed import (
    FAKE_UPSTREAM,
    answer_body,
    free_port,
    measure_cpu,
    process,
    request_body,
)
from stratacache.clock import SystemClock
from stratacache.stores import Backend, open_backend
from stratacache.types import Entry

COMMAND = "python -m benchmarks.shared_store_speed"
ROUNDS = 7
INSTANCES = 10
INVALIDATIONS = 200
CARRIERS = 200_000  # entries of the tag that has many


@contextlib.contextmanager
def gateways(stores: Mapping[str, dict[str, Any]]) -> Iterator[dict[str, tuple[int, int]]]:
    """Name to (port, pid) of a gateway with each of ``stores``, before one fake upstream."""
    upstream = free_port()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        stack.enter_context(process(["-c", FAKE_UPSTREAM, str(upstream)], upstream, answer_body()))
        running = {}
        for name, config in stores.items():
            port = free_port()
            path = Path(folder) / f"{name.replace(' ', '-')}.yaml"
            served = {"name": "fake", "kind": "openai", "base_url": f"http://127.0.0.1:{upstream}/v1",
                      "api_key_env": "BENCH_KEY", "models": ["bench"]}  # fmt: skip
            whole = {"server": {"port": port}, "audit": {"path": None}, "upstreams": [served], **config}
            path.write_bytes(msgspec.json.encode(whole))  # JSON is YAML
            command = ["-m", "stratacache.cli", "--config", str(path), "serve"]
            running[name] = (port, stack.enter_context(process(command, port, env={"BENCH_KEY": "none"})))
        yield running


def measure_hits(redis: str, folder: str) -> dict[str, Any]:
    no_copies = {"tiers": {"exact": {"near_cache_bytes": 0}}}
    stores: dict[str, dict[str, Any]] = {
        "memory": {"store": "memory://"},
        "redis": {"store": f"{redis}?prefix=plain", **no_copies},
        "redis, copies": {"store": f"{redis}?prefix=copies"},
        "sqlite": {"store": f"sqlite:///{folder}/plain.db", **no_copies},
        "sqlite, copies": {"store": f"sqlite:///{folder}/copies.db"},
    }
    same = [loadgen.chat_request(request_body(n)) for n in range(64)]
    rows: dict[str, list[float]] = {name: [] for name in stores}
    with gateways(stores) as targets:
        for port, _ in targets.values():
            for _ in range(3):
                asyncio.run(loadgen.run(port, same, connections=1, total=64))
                time.sleep(0.5)  # write-back is asynchronous, and a lease takes a moment
        for _ in range(ROUNDS):
            for name, target in targets.items():
                rows[name].append(measure_cpu(target, same))
    base = report.median(rows["memory"])
    return {
        "cpu_us_per_hit": rows,
        "median_us": {name: report.median(values) for name, values in rows.items()},
        "ratio_to_memory": {name: report.median(values) / base for name, values in rows.items()},
    }


async def measure_invalidations(redis: RedisServer) -> dict[str, Any]:
    """Milliseconds of an invalidation while ``INSTANCES`` instances hold leases and keep copies."""
    clock = SystemClock()
    backends = [open_backend(f"{redis.url}?prefix=bumps", max_bytes=1, clock=clock) for _ in range(INSTANCES)]
    for backend in backends:
        assert backend.bulletin is not None
        await backend.bulletin.start(lambda what, digests: None)
    await asyncio.sleep(1.5)  # until every instance has its lease
    one = []
    for number in range(INVALIDATIONS):
        await _store(backends[number % INSTANCES], "few", [number])
        one.append(await _timed(backends[(number + 1) % INSTANCES], "few"))
    for first in range(0, CARRIERS, 1000):
        await _store(backends[0], "many", range(first, first + 1000))
    many = await _timed(backends[1], "many")
    for backend in backends:
        assert backend.bulletin is not None
        await backend.bulletin.close()
        await backend.store.close()
    ordered = sorted(one)
    return {"one_entry_ms": one, "median_ms": report.median(one), "p99_ms": ordered[int(len(one) * 0.99)],
            "entries_of_the_large_tag": CARRIERS, "large_tag_ms": many}  # fmt: skip


async def _timed(backend: Backend, tag: str) -> float:
    """Milliseconds to invalidate ``tag``."""
    started = time.perf_counter()
    await backend.store.invalidate([tag])
    return (time.perf_counter() - started) * 1000


async def _store(backend: Backend, tag: str, numbers: Iterable[int]) -> None:
    found = await backend.store.get(bytes(16), (tag,))
    now = time.time()
    entry = Entry(b"form", b"body", now, now + 600, versions=found.versions)
    await asyncio.gather(*(backend.store.put(b"%16d" % number, entry) for number in numbers))


def main() -> None:
    with RedisServer() as redis, tempfile.TemporaryDirectory() as folder:
        hits = measure_hits(redis.url, folder)
        invalidations = asyncio.run(measure_invalidations(redis))
    for name, value in hits["median_us"].items():
        print(f"{name:16} {value:7.1f} us CPU per hit   {hits['ratio_to_memory'][name]:.2f} x memory")
    print(
        f"invalidation with {INSTANCES} instances that keep copies: "
        f"median {invalidations['median_ms']:.2f} ms, p99 {invalidations['p99_ms']:.2f} ms; "
        f"of a tag with {CARRIERS:,} entries {invalidations['large_tag_ms']:.2f} ms"
    )
    print(report.write("shared_store_speed", COMMAND, {"hits": hits, "invalidations": invalidations}))


if __name__ == "__main__":
    main()
