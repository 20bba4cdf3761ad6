"""What observing costs of an exact hit's CPU: metrics and ledger, and traces, beside a gateway that notes nothing.

    python -m benchmarks.observe_speed

Gateways on memory stores serve the same hits in short, interleaved rounds; medians are reported, and those of the
ratio of each round to its neighbour, so that other load on the machine falls on all alike. "Nothing again" shows what
chance does.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import loadgen, report
from benchmarks.gateway_speed import (
    CONNECTIONS,
    FAKE_UPSTREAM,
    answer_body,
    free_port,
    process,
    request_body,
)

COMMAND = "python -m benchmarks.observe_speed"
ROUNDS = 32
REQUESTS = 2000
VARIANTS: dict[str, dict[str, Any] | None] = {
    "nothing": None,
    "nothing again": None,
    "metrics and ledger": None,
    # What the default, 20 a second, is at 8,000 hits a second; a round is shorter than a second.
    "traces too": {"sample": 0.0025, "per_second": 100_000},
}

# The gateway as it is, but for its recorder, which forgets everything.
UNOBSERVED = """
import sys
from stratacache import cli
from stratacache.wiring import accounts
class Nothing:
    def __init__(self, *parts): pass
    def decided(self, decision): pass
    def called(self, call): pass
    def saved(self, saving): pass
    def wrote(self, result): pass
    def withheld(self, reason): pass
    def counted(self, event): pass
accounts.Observer = Nothing
sys.exit(cli.main(sys.argv[1:]))
"""


def config(port: int, upstream: int, otel: dict[str, Any] | None) -> bytes:
    made: dict[str, Any] = {
        "server": {"port": port},
        "store": "memory://",
        "tiers": {"semantic": {"enabled": False}},
        "upstreams": [
            {
                "name": "fake",
                "kind": "openai",
                "base_url": f"http://127.0.0.1:{upstream}/v1",
                "api_key_env": "BENCH_KEY",
                "models": ["bench"],
            }
        ],
    }
    if otel is not None:
        made["observe"] = {"otel": {"endpoint": f"http://127.0.0.1:{upstream}", **otel}}
    return msgspec.json.encode(made)


def cpu_nanoseconds(pid: int) -> int:
    """On the CPU so far, all threads; /proc/PID/stat is too coarse for short rounds."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


def measure(target: tuple[int, int], requests: Sequence[bytes]) -> float:
    """CPU microseconds of the server per request."""
    port, pid = target
    before = cpu_nanoseconds(pid)
    asyncio.run(loadgen.run(port, requests, connections=CONNECTIONS, total=REQUESTS))
    return (cpu_nanoseconds(pid) - before) / REQUESTS / 1000


def main() -> None:
    rows: dict[str, list[float]] = {name: [] for name in VARIANTS}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        upstream = free_port()  # it answers whatever it is sent, and so is the traces' collector too
        stack.enter_context(process(["-c", FAKE_UPSTREAM, str(upstream)], upstream, answer_body()))
        targets = {}
        for name in rows:
            port, path = free_port(), Path(folder) / f"{name}.yaml"
            path.write_bytes(config(port, upstream, VARIANTS[name]))
            start = ["-c", UNOBSERVED] if name.startswith("nothing") else ["-m", "stratacache.cli"]
            command = [*start, "--config", str(path), "serve"]
            targets[name] = (port, stack.enter_context(process(command, port, env={"BENCH_KEY": "none"})))
        same = [loadgen.chat_request(request_body(number)) for number in range(64)]
        for port, _ in targets.values():
            for _ in range(2):
                asyncio.run(loadgen.run(port, same, connections=1, total=64))
                time.sleep(0.5)  # write-back is asynchronous
        for number in range(ROUNDS):
            turn = number % len(rows)
            names = [*list(rows)[turn:], *list(rows)[:turn]]
            for name in names:
                rows[name].append(measure(targets[name], same))
    base = [(one + other) / 2 for one, other in zip(rows["nothing"], rows["nothing again"], strict=True)]
    added = {
        name: report.median([mine / other - 1 for mine, other in zip(row, base, strict=True)])
        for name, row in rows.items()
    }
    for name, row in rows.items():
        print(f"{name:20} {report.median(row):8.1f} us CPU a hit   {added[name]:+.1%}")
    figures = {"cpu_us_per_hit": rows, "added": added}
    print(report.write("observe_speed", COMMAND, figures))


if __name__ == "__main__":
    main()
