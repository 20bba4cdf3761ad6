"""The gateway's own cost: CPU per exact hit beside a minimal cache app, and latency added to a miss.

    python -m benchmarks.gateway_speed

Rounds are interleaved and medians reported, so that other load on the machine falls on both sides alike.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import loadgen, report

COMMAND = "python -m benchmarks.gateway_speed"
CONNECTIONS = 16
ROUNDS = 7
REQUESTS = 8000
MISSES = 400
ANSWER = "word " * 300  # an answer body of about 1.7 KB on the wire

FAKE_UPSTREAM = """
import asyncio, sys, uvicorn
BODY = sys.stdin.buffer.read()
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    more = True
    while more:
        more = (await receive()).get("more_body", False)
    head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": BODY})
uvicorn.run(app, port=int(sys.argv[1]), log_level="warning", access_log=False, lifespan="off")
"""


def answer_body() -> bytes:
    message = {"role": "assistant", "content": ANSWER[:1400]}
    return msgspec.json.encode(
        {
            "id": "chatcmpl-bench",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": "bench",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
            "usage": {"prompt_tokens": 80, "completion_tokens": 320, "total_tokens": 400},
        }
    )


def request_body(number: int, *, indent: int = 0) -> bytes:
    body = {
        "model": "bench",
        "messages": [
            {"role": "system", "content": "You are a helpful assistant. Answer briefly and say when unsure."},
            {"role": "user", "content": f"What is the airspeed of swallow number {number}, and why?"},
        ],
        "temperature": 0.2,
    }
    encoded = msgspec.json.encode(body)
    return msgspec.json.format(encoded, indent=indent) if indent else encoded


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def cpu_seconds(pid: int) -> float:
    """User + system time of a process, threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def wait_for(port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"nothing listens on {port}")


@contextlib.contextmanager
def process(
    arguments: Sequence[str], port: int, feed: bytes = b"", env: dict[str, str] | None = None
) -> Iterator[int]:
    child = subprocess.Popen(
        [sys.executable, *arguments], stdin=subprocess.PIPE, env={**os.environ, **(env or {})}
    )
    assert child.stdin is not None
    child.stdin.write(feed)
    child.stdin.close()
    try:
        wait_for(port)
        yield child.pid
    finally:
        child.terminate()
        child.wait(30)


@contextlib.contextmanager
def servers() -> Iterator[dict[str, tuple[int, int]]]:
    """Name to (port, pid) of the minimal app, a fake upstream and our gateway before it."""
    minimal, upstream, gateway = free_port(), free_port(), free_port()
    config = {
        "server": {"port": gateway},
        "store": "memory://",
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
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        path = Path(folder) / "bench.yaml"
        path.write_bytes(msgspec.json.encode(config))  # JSON is YAML
        pid_minimal = stack.enter_context(process(["-m", "benchmarks.minimal_app", str(minimal)], minimal))
        pid_upstream = stack.enter_context(
            process(["-c", FAKE_UPSTREAM, str(upstream)], upstream, answer_body())
        )
        command = ["-m", "stratacache.cli", "--config", str(path), "serve"]
        pid_gateway = stack.enter_context(process(command, gateway, env={"BENCH_KEY": "none"}))
        yield {
            "minimal": (minimal, pid_minimal),
            "upstream": (upstream, pid_upstream),
            "gateway": (gateway, pid_gateway),
        }


def measure_cpu(target: tuple[int, int], requests: Sequence[bytes]) -> float:
    """CPU microseconds of the server per request."""
    port, pid = target
    before = cpu_seconds(pid)
    asyncio.run(loadgen.run(port, requests, connections=CONNECTIONS, total=REQUESTS))
    return (cpu_seconds(pid) - before) / REQUESTS * 1e6


def measure_hits(targets: dict[str, tuple[int, int]]) -> dict[str, Any]:
    """Interleaved rounds over hit workloads: the same bytes again, equal requests in other bytes, streams."""
    same = [loadgen.chat_request(request_body(n)) for n in range(64)]
    # Every variant is new to the gateway's memo of request bytes for a whole round, so each hit is parsed,
    # normalised and hashed anew.
    variants = [
        loadgen.chat_request(request_body(n % 64, indent=2).replace(b"\n", b"\n" + b" " * (n // 64)))
        for n in range(64 * 64)
    ]
    streams = [loadgen.chat_request(request_body(n)[:-1] + b',"stream":true}') for n in range(64)]
    for _ in range(2):
        asyncio.run(loadgen.run(targets["gateway"][0], same, connections=1, total=64))
        time.sleep(0.5)  # write-back is asynchronous
    rows: dict[str, list[float]] = {"minimal": [], "same bytes": [], "other bytes": [], "stream": []}
    for _ in range(ROUNDS):
        rows["minimal"].append(measure_cpu(targets["minimal"], same))
        rows["same bytes"].append(measure_cpu(targets["gateway"], same))
        rows["other bytes"].append(measure_cpu(targets["gateway"], variants))
        rows["stream"].append(measure_cpu(targets["gateway"], streams))
    base = report.median(rows["minimal"])
    return {
        "cpu_us_per_request": rows,
        "median_us": {name: report.median(values) for name, values in rows.items()},
        "ratio_to_minimal": {name: report.median(values) / base for name, values in rows.items()},
    }


def measure_misses(targets: dict[str, tuple[int, int]]) -> dict[str, Any]:
    """Median latency of new questions, one at a time: the bare upstream and through the gateway, interleaved."""
    rounds: dict[str, list[float]] = {"upstream": [], "gateway": []}
    for number in range(ROUNDS):
        fresh = [loadgen.chat_request(request_body(10_000 * (number + 1) + n)) for n in range(MISSES)]
        for name, row in rounds.items():
            times = asyncio.run(loadgen.run(targets[name][0], fresh, connections=1, total=MISSES))
            row.append(report.median(times) * 1000)
    return {
        "median_ms": rounds,
        "added_ms": report.median(rounds["gateway"]) - report.median(rounds["upstream"]),
    }


def measure_memory(targets: dict[str, tuple[int, int]]) -> dict[str, Any]:
    """RSS of the gateway before and after 10,000 further entries."""
    port, pid = targets["gateway"]
    before = rss_bytes(pid)
    fresh = [loadgen.chat_request(request_body(1_000_000 + n)) for n in range(10_000)]
    asyncio.run(loadgen.run(port, fresh, connections=1, total=10_000))
    return {"rss_before": before, "rss_after": rss_bytes(pid), "added_mb": (rss_bytes(pid) - before) / 1e6}


def main() -> None:
    with servers() as targets:
        hits = measure_hits(targets)
        misses = measure_misses(targets)
        memory = measure_memory(targets)
    for name, value in hits["median_us"].items():
        print(f"{name:12} {value:8.1f} us CPU   {hits['ratio_to_minimal'][name]:.2f} x minimal")
    print(f"miss: {misses['added_ms']:.3f} ms added at the median")
    print(f"memory: {memory['added_mb']:.1f} MB for 10,000 entries")
    figures = {"hits": hits, "misses": misses, "memory": memory}
    print(report.write("gateway_speed", COMMAND, figures))


if __name__ == "__main__":
    main()
