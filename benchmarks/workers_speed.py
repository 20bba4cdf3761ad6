"""Exact hits a second with one worker and with two, side by side.

    python -m benchmarks.workers_speed

All gateways run from the start, on SQLite files of their own, and are measured in turn. The client sends requests in
pipelines and only counts the answers: it costs a small part of what a gateway does, on the same cores. One worker is
measured twice, as it is and bound to one core: the threads of one process that wait for its interpreter lock on
several cores are slower than on one, and that must not count as what a second worker gains.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import uvloop

from benchmarks import loadgen, report
from benchmarks.gateway_speed import FAKE_UPSTREAM, answer_body, free_port, process, request_body

COMMAND = "python -m benchmarks.workers_speed"
VARIANTS = {"one worker": 1, "one worker on one core": 1, "two workers": 2}
ROUNDS = 9
REQUESTS = 12_000
CONNECTIONS = 64  # enough for the kernel to spread them evenly over two workers
DEPTH = 8  # requests in flight on each
QUESTIONS = 64
OUTCOME = b"x-strata-cache: "
HIT = OUTCOME + b"hit"


async def _connection(port: int, batch: bytes, rounds: int) -> int:
    """How many of the answers were hits, give or take one that is cut in two."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    hits = 0
    for _ in range(rounds):
        writer.write(batch)
        seen = b""
        while seen.count(OUTCOME) < DEPTH:
            data = await reader.read(1 << 18)
            if not data:
                raise RuntimeError("the gateway hung up")
            seen += data
        hits += seen.count(HIT)
    writer.close()
    return hits


async def _drive(port: int, requests: Sequence[bytes]) -> float:
    """Hits a second."""
    rounds = REQUESTS // CONNECTIONS // DEPTH
    batches = [
        b"".join(requests[(first + n) % len(requests)] for n in range(DEPTH)) for first in range(CONNECTIONS)
    ]
    started = time.perf_counter()
    hits = sum(await asyncio.gather(*(_connection(port, batch, rounds) for batch in batches)))
    seconds = time.perf_counter() - started
    if hits < 0.99 * rounds * CONNECTIONS * DEPTH:
        raise RuntimeError(f"only {hits} of {rounds * CONNECTIONS * DEPTH} answers were hits")
    return hits / seconds


@contextlib.contextmanager
def gateways(folder: Path) -> Iterator[dict[str, int]]:
    """The port of each variant's gateway."""
    upstream = free_port()
    ports = {variant: free_port() for variant in VARIANTS}
    with contextlib.ExitStack() as stack:
        stack.enter_context(process(["-c", FAKE_UPSTREAM, str(upstream)], upstream, answer_body()))
        for variant, port in ports.items():
            fake = {
                "name": "fake",
                "kind": "openai",
                "base_url": f"http://127.0.0.1:{upstream}/v1",
                "models": ["bench"],
            }
            config = {
                "server": {"port": port, "workers": VARIANTS[variant]},
                "store": f"sqlite:///{folder}/{port}.db",
                "upstreams": [fake],
            }
            path = folder / f"{port}.yaml"
            path.write_bytes(msgspec.json.encode(config))  # JSON is YAML
            command = ["-m", "stratacache.cli", "--config", str(path), "serve"]
            pid = stack.enter_context(process(command, port))
            if variant.endswith("one core"):
                for thread in Path(f"/proc/{pid}/task").iterdir():
                    os.sched_setaffinity(int(thread.name), {0})
        yield ports


def main() -> None:
    requests = [loadgen.chat_request(request_body(n)) for n in range(QUESTIONS)]
    rates: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    with tempfile.TemporaryDirectory() as folder, gateways(Path(folder)) as ports:
        for port in ports.values():
            asyncio.run(loadgen.run(port, requests, connections=1, total=QUESTIONS))
        time.sleep(1)  # write-back is asynchronous
        for _ in range(ROUNDS):
            for variant, port in ports.items():
                rates[variant].append(uvloop.run(_drive(port, requests)))
    medians = {variant: report.median(values) for variant, values in rates.items()}
    ratios = {variant: medians["two workers"] / rate for variant, rate in medians.items()}
    for variant, rate in medians.items():
        print(f"{variant:24} {rate:8.0f} hits/s   two workers: {ratios[variant]:.2f} x")
    figures = {"hits_per_second": rates, "median": medians, "two_workers_to": ratios}
    print(report.write("workers_speed", COMMAND, figures))


if __name__ == "__main__":
    main()
