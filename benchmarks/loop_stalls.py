"""How long the gateway's event loop is held up under load: hits, misses and long prompts on the SQLite store.

    python -m benchmarks.loop_stalls

A task in the gateway's own loop wakes every millisecond. Between two wakes it takes the loop thread's CPU time
(what our code held the loop for; another process on the core does not count) and the lateness on the wall clock
(which other processes add to). Both are reported.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import loadgen, report
from benchmarks.gateway_speed import FAKE_UPSTREAM, answer_body, free_port, process, request_body, wait_for

COMMAND = "python -m benchmarks.loop_stalls"
ROUNDS = 5
TICK = 0.001


async def monitor(samples: list[tuple[float, float]]) -> None:
    """Append (CPU seconds, lateness in seconds) of every tick."""
    cpu, wall = time.thread_time(), time.monotonic()
    while True:
        await asyncio.sleep(TICK)
        cpu_now, wall_now = time.thread_time(), time.monotonic()
        samples.append((cpu_now - cpu, wall_now - wall - TICK))
        cpu, wall = cpu_now, wall_now


def serve_monitored(config: str) -> None:
    """Run the gateway with the monitor in its loop; print the samples' tail when told to stop."""
    import os
    import signal

    import uvicorn
    import uvloop

    from stratacache.commands.serve import listen
    from stratacache.settings import load
    from stratacache.wiring import System

    settings = load(config, os.environ)
    samples: list[tuple[float, float]] = []
    server = uvicorn.Server(
        uvicorn.Config(
            System(settings, os.environ).app,
            lifespan="on",
            access_log=False,
            log_level="warning",
            proxy_headers=False,
        )
    )

    async def main() -> None:
        watching = asyncio.create_task(monitor(samples))
        await server.serve(sockets=[listen(settings)])
        watching.cancel()

    signal.signal(signal.SIGTERM, lambda *_: None)
    uvloop.run(main())
    samples = samples[200:]  # start-up
    cpu = sorted(cpu for cpu, _ in samples)
    late = sorted(late for _, late in samples)
    print(
        json.dumps(
            {
                "ticks": len(samples),
                "cpu_ms": {"p99": cpu[int(0.99 * len(cpu))] * 1e3, "max": cpu[-1] * 1e3},
                "late_ms": {"p99": late[int(0.99 * len(late))] * 1e3, "max": late[-1] * 1e3},
                "cpu_over_5ms": sum(c > 0.005 for c in cpu),
            }
        )
    )


def load_mix(port: int, number: int) -> None:
    """Hits, new questions, and new questions of 100 KB, all at once."""
    hits = [loadgen.chat_request(request_body(n)) for n in range(64)]
    fresh = [loadgen.chat_request(request_body(100_000 * number + n)) for n in range(2000)]
    long = []
    for n in range(40):
        body = msgspec.json.decode(request_body(10_000_000 + 100 * number + n))
        body["messages"][1]["content"] += " Here is a long text with, say, 12 commas." * 2400
        long.append(loadgen.chat_request(msgspec.json.encode(body)))

    async def mixed() -> None:
        await asyncio.gather(
            loadgen.run(port, hits, connections=8, total=8000),
            loadgen.run(port, fresh, connections=6, total=1998),
            loadgen.run(port, long, connections=2, total=40),
        )

    asyncio.run(mixed())


def main() -> None:
    upstream, gateway = free_port(), free_port()
    with (
        tempfile.TemporaryDirectory() as folder,
        process(["-c", FAKE_UPSTREAM, str(upstream)], upstream, answer_body()),
    ):
        path = Path(folder) / "bench.yaml"
        fake = {
            "name": "fake",
            "kind": "openai",
            "base_url": f"http://127.0.0.1:{upstream}/v1",
            "models": ["bench"],
        }
        config = {"server": {"port": gateway}, "store": f"sqlite:///{folder}/cache.db", "upstreams": [fake]}
        path.write_bytes(msgspec.json.encode(config))
        child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.loop_stalls", "--serve", str(path)],
            stdout=subprocess.PIPE,
            text=True,
        )
        wait_for(gateway)
        for number in range(1, ROUNDS + 1):
            load_mix(gateway, number)
        child.terminate()
        output, _ = child.communicate(timeout=60)
    figures: dict[str, Any] = json.loads(output.splitlines()[-1])
    print(json.dumps(figures, indent=2))
    print(report.write("loop_stalls", COMMAND, figures))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve_monitored(sys.argv[2])
    else:
        main()
