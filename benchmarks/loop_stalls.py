"""How long one callback holds up the gateway's event loop: hits, misses and long prompts on the SQLite store.

    python -m benchmarks.loop_stalls

Every callback that the loop runs is timed in CPU time of the loop's thread, which other processes on the core do
not add to, and on the wall clock, which they do. The loop is asyncio's own, since uvloop's callbacks cannot be
timed one by one; what the callbacks run is the same.
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


def time_callbacks(times: list[tuple[float, float]]) -> None:
    """Append (CPU seconds, wall seconds) of every callback from now on."""
    run = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        cpu, wall = time.thread_time(), time.monotonic()
        run(handle)
        times.append((time.thread_time() - cpu, time.monotonic() - wall))

    asyncio.Handle._run = timed  # type: ignore[method-assign]


def serve_timed(config: str) -> None:
    """Run the gateway with its callbacks timed; print the tail when told to stop."""
    import os
    import signal

    import uvicorn

    from stratacache.commands.serve import calm_collector, listen
    from stratacache.settings import load
    from stratacache.wiring import System

    settings = load(config, os.environ)
    times: list[tuple[float, float]] = []
    app = System(settings, os.environ).app
    server = uvicorn.Server(
        uvicorn.Config(app, lifespan="on", access_log=False, log_level="warning", proxy_headers=False)
    )

    async def main() -> None:
        listener = listen(settings)
        asyncio.get_running_loop().call_later(1, calm_collector)
        asyncio.get_running_loop().call_later(1.5, time_callbacks, times)
        await server.serve(sockets=[listener])

    signal.signal(signal.SIGTERM, lambda *_: None)
    asyncio.run(main())
    cpu = sorted(cpu for cpu, _ in times)
    wall = sorted(wall for _, wall in times)
    figures = {"callbacks": len(times), "over_5ms": {"cpu": _over(cpu), "wall": _over(wall)}}
    for name, values in (("cpu_ms", cpu), ("wall_ms", wall)):
        tail = {"p99": 0.99, "p99.99": 0.9999, "max": 1.0}
        figures[name] = {label: values[int(q * (len(values) - 1))] * 1e3 for label, q in tail.items()}
    print(json.dumps(figures))


def _over(values: list[float]) -> int:
    return sum(value > 0.005 for value in values)


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
        time.sleep(2)  # until callbacks are timed
        for number in range(1, ROUNDS + 1):
            load_mix(gateway, number)
        child.terminate()
        output, _ = child.communicate(timeout=60)
    figures: dict[str, Any] = json.loads(output.splitlines()[-1])
    print(json.dumps(figures, indent=2))
    print(report.write("loop_stalls", COMMAND, figures))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve_timed(sys.argv[2])
    else:
        main()
