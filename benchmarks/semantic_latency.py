"""What the semantic tier costs: latency of a miss with nothing near and of a verified hit, memory, loop, overload.

    python -m benchmarks.semantic_latency [--entries N]

A gateway with its default models and ``--entries`` questions in one partition: 400 real ones, asked through it, and
unit vectors in clusters about them that are too far to be candidates. Twenty clients ask at random times, at a rate
that leaves the core idle for more than half of the time; the load generator, the fake upstream and the gateway share
it. Then the same clients ask as fast as they can. ``max_error`` is .2, so that what was verified is served from the
start. Other load on the machine is in every figure; so the verifier's time for one of these pairs, and the embedder's
for one question, are measured in the same minutes, and ``stages`` are the medians that the gateway itself tells.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks import report
from benchmarks.gateway_speed import (
    FAKE_UPSTREAM,
    answer_body,
    cpu_seconds,
    free_port,
    process,
    rss_bytes,
    wait_for,
)
from benchmarks.loadgen import chat_request
from benchmarks.loop_stalls import time_callbacks
from stratacache.types import Question

COMMAND = "python -m benchmarks.semantic_latency"
CLIENTS = 20
MAX_ERROR = 0.2
STORED = "What is the warranty period of a {} {}?"
ASKED = "What is the warranty period for a {} {}?"
ASKED_AGAIN = "For how many years is a {} {} under warranty?"
MAKES = "red blue green black white brown grey pink small large"
GOODS = (
    "kettle toaster fridge oven lamp chair table sofa printer camera phone laptop tablet bicycle helmet tent stove fan "
    "heater mixer blender grinder drill saw hammer ladder mower pump filter mattress pillow curtain carpet mirror "
    "clock radio speaker keyboard monitor router"
)
SUBJECTS = (
    "volcanoes glaciers rivers deserts forests islands comets planets galaxies magnets bridges tunnels castles "
    "engines turbines batteries lenses poems operas novels symphonies bees ants whales wolves eagles owls oaks ferns"
)
VERBS = (
    "form move change grow decay spread vanish sing shine break bend freeze melt rust float sink spin drift glow hum "
    "crack fade split merge rise fall turn heal burn shrink"
)
PLACES = (
    "in winter,in summer,at night,under water,in the north,in the south,on the moon,near the sea,at high altitude,"
    "in cities,in caves,in old age,after rain,before dawn,without light,during storms,in spring,in autumn"
)


class Answer(msgspec.Struct, frozen=True):
    seconds: float
    tier: str
    reason: str
    stages: dict[str, float]


def body(question: str, user: str) -> bytes:
    messages = [{"role": "user", "content": question}]
    return msgspec.json.encode({"model": "bench", "messages": messages, "user": user})


async def client(
    port: int, questions: Sequence[bytes], pause: Callable[[], float], found: list[Answer]
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for question in questions:
        await asyncio.sleep(pause())
        started = time.perf_counter()
        writer.write(question)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
        await reader.readexactly(int(fields["content-length"]))
        seconds = time.perf_counter() - started
        if " 200 " not in head.split("\r\n", 1)[0]:
            raise RuntimeError(head.split("\r\n", 1)[0])
        timing = fields.get("server-timing", "")
        parts = (part.strip().split(";dur=") for part in timing.split(",") if ";dur=" in part)
        stages = {name: float(value) for name, value in parts}
        found.append(Answer(seconds, fields["x-strata-tier"], fields["x-strata-reason"], stages))
    writer.close()


def ask(
    port: int, questions: Sequence[str], rate: float | None, headers: str = "", *, crowd: bool = False
) -> list[Answer]:
    """All questions, over all clients, ``rate`` of them a second; None: as fast as they are answered.

    In a ``crowd`` each is a caller's first, and is kept; else one caller asks more than may be kept.
    """
    draws = random.Random(len(questions))
    pause = (lambda: draws.expovariate(rate / CLIENTS)) if rate else (lambda: 0.0)
    found: list[Answer] = []

    async def together() -> None:
        requests = [
            chat_request(body(question, question if crowd else "one"), headers=headers)
            for question in questions
        ]
        await asyncio.gather(*(client(port, requests[n::CLIENTS], pause, found) for n in range(CLIENTS)))

    asyncio.run(together())
    return found


def summary(answers: Sequence[Answer]) -> dict[str, Any]:
    """Milliseconds."""
    seconds = np.array([answer.seconds for answer in answers]) * 1e3
    names = {name for answer in answers for name in answer.stages}
    stages = {
        name: float(np.median([a.stages[name] for a in answers if name in a.stages]))
        for name in sorted(names)
    }
    p50, p99 = np.percentile(seconds, [50, 99])
    return {"requests": len(answers), "p50_ms": float(p50), "p99_ms": float(p99), "stages": stages}


def serve(config: str, entries: int) -> None:
    """Run the gateway; when told on standard input, fill the index; then time callbacks, and print at the end."""
    import signal

    import uvicorn

    from stratacache.commands.serve import calm_collector, listen
    from stratacache.settings import load
    from stratacache.wiring import System

    settings = load(config, os.environ)
    system = System(settings, os.environ)
    assert system.semantic is not None
    index = system.semantic.index
    partitions: list[bytes] = []
    search = index.search

    async def watched(partition: bytes, vector: Any, count: int) -> Any:
        partitions[:] = [partition]
        return await search(partition, vector, count)

    index.search = watched  # type: ignore[method-assign]
    times: list[tuple[float, float]] = []
    server = uvicorn.Server(
        uvicorn.Config(
            system.app,
            lifespan="on",
            access_log=False,
            log_level="warning",
            proxy_headers=False,
            timeout_keep_alive=75,
        )
    )

    async def fill() -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, sys.stdin.readline)
        rng = np.random.default_rng(1)
        expires = time.time() + 86_400
        topics = rng.standard_normal((entries // 50, 512), np.float32)
        for number in range(entries):
            vector = topics[number % len(topics)] + 0.5 * rng.standard_normal(512, np.float32)
            digest = number.to_bytes(32, "big")
            question = Question(digest, partitions[0], f"filler {number}", expires - 86_400, expires)
            await index.add(question, vector / np.linalg.norm(vector))
        index.search = search  # type: ignore[method-assign]
        print("filled", flush=True)
        await loop.run_in_executor(None, sys.stdin.readline)
        calm_collector()
        time_callbacks(times)

    async def main() -> None:
        filling = asyncio.create_task(fill())
        await server.serve(sockets=[listen(settings)])
        await filling

    signal.signal(signal.SIGTERM, lambda *_: None)
    asyncio.run(main())
    cpu, wall = (sorted(values) for values in zip(*times, strict=True))
    tail = {"p99": 0.99, "p99.99": 0.9999, "max": 1.0}
    print(
        json.dumps(
            {
                "callbacks": len(cpu),
                "cpu_ms": {name: cpu[int(q * (len(cpu) - 1))] * 1e3 for name, q in tail.items()},
                "wall_ms": {name: wall[int(q * (len(wall) - 1))] * 1e3 for name, q in tail.items()},
            }
        )
    )


def model_times(pairs: Sequence[tuple[str, str]]) -> dict[str, float]:
    """Medians of one verification and one embedding, alone, in milliseconds."""
    from stratacache.models.pool import Pool
    from stratacache.models.use import UseEmbedder
    from stratacache.models.verifier import WEIGHTS, PairModel

    model = PairModel(WEIGHTS)
    verify: list[float] = []
    for one, other in pairs:
        started = time.perf_counter()
        model.logit(one, other)
        verify.append(time.perf_counter() - started)

    async def embed() -> list[float]:
        embedder = UseEmbedder(Pool(1, 4), budget=60)
        embedder.start()
        await embedder.ready()
        took = []
        for one, _ in pairs:
            started = time.perf_counter()
            await embedder.embed(one)
            took.append(time.perf_counter() - started)
        await embedder.close()
        return took

    return {
        "verify_ms": report.median(verify[3:]) * 1e3,
        "embed_ms": report.median(asyncio.run(embed())[3:]) * 1e3,
    }


def settle(pid: int) -> None:
    """Wait until the process does nothing more: its index is built."""
    quiet = 0
    while quiet < 3:
        before = cpu_seconds(pid)
        time.sleep(1)
        quiet = quiet + 1 if cpu_seconds(pid) - before < 0.1 else 0


def measure(port: int, child: subprocess.Popen[str]) -> dict[str, Any]:
    goods = [(make, thing) for make in MAKES.split() for thing in GOODS.split()]
    random.Random(1).shuffle(goods)
    stored = [STORED.format(*one) for one in goods]
    asked = [ASKED.format(*one) for one in goods]
    everything = itertools.product(SUBJECTS.split(), VERBS.split(), PLACES.split(","))
    fresh = [f"Why do {s} {v} {p}?" for s, v, p in everything]
    random.Random(2).shuffle(fresh)
    figures: dict[str, Any] = {"rss_empty": rss_bytes(child.pid)}
    ask(port, stored, 20, crowd=True)
    _tell(child)
    assert child.stdout is not None
    if child.stdout.readline() != "filled\n":
        raise RuntimeError("the gateway did not fill its index")
    settle(child.pid)
    figures["rss"] = rss_bytes(child.pid)
    _tell(child)
    for number in range(4):  # interleaved, so that other load falls on both sides alike
        part = fresh[number * 240 : (number + 1) * 240]
        figures.setdefault("off", []).extend(ask(port, part[:120], 20, "x-strata-tiers: exact\r\n"))
        figures.setdefault("on", []).extend(ask(port, part[120:], 20))
        figures.setdefault("near", []).extend(ask(port, asked[number * 60 : (number + 1) * 60], 10))
        figures.setdefault("alone", []).append(model_times(list(zip(asked[:40], stored[:40], strict=True))))
    figures["overload"] = ask(port, [ASKED_AGAIN.format(*one) for one in goods], None)
    figures["rss_after"] = rss_bytes(child.pid)
    return figures


def _tell(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


def figures_of(raw: dict[str, Any]) -> dict[str, Any]:
    """What is reported of what was measured."""
    hits = [answer for answer in raw["near"] if answer.tier == "semantic"]
    nothing = [
        answer for answer in raw["on"] if answer.reason == "not_found" and "verify" not in answer.stages
    ]
    off, on = summary(raw["off"]), summary(nothing or raw["on"])
    alone = {name: report.median([one[name] for one in raw["alone"]]) for name in raw["alone"][0]}
    verified = summary(hits) if hits else {}
    overload = Counter(answer.reason for answer in raw["overload"])
    return {
        "rss_mb": {name: raw[name] / 1e6 for name in ("rss_empty", "rss", "rss_after")},
        "alone": alone,
        "miss_without_tier": off,
        "miss_nothing_near": on,
        "added_p50_ms": on["p50_ms"] - off["p50_ms"],
        "reasons": {
            name: dict(Counter(answer.reason for answer in raw[name])) for name in ("on", "near", "overload")
        },
        "verified_hit": verified,
        "verified_p50_by_one_verification": verified["p50_ms"] / alone["verify_ms"] if hits else None,
        "overload": summary(raw["overload"]),
        "overload_shed": sum(overload[name] for name in SHED) / sum(overload.values()),
        "shed_reasons": {name: overload[name] for name in SHED if overload[name]},
    }


SHED = ("overloaded", "embedder_slow", "index_slow", "verifier_slow", "verifier_down", "embedder_down")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve, args.entries)
        return
    upstream, gateway = free_port(), free_port()
    with (
        tempfile.TemporaryDirectory() as folder,
        process(["-c", FAKE_UPSTREAM, str(upstream)], upstream, answer_body()),
    ):
        url = f"http://127.0.0.1:{upstream}/v1"
        fake = {"name": "fake", "kind": "openai", "base_url": url, "models": ["bench"]}
        config = {
            "server": {"port": gateway},
            "store": "memory://",
            "upstreams": [fake],
            "tiers": {"semantic": {"max_error": MAX_ERROR, "inserts_per_minute": 1}},
        }
        path = Path(folder) / "bench.yaml"
        path.write_bytes(msgspec.json.encode(config))
        command = ["-m", "benchmarks.semantic_latency", "--serve", str(path), "--entries", str(args.entries)]
        child = subprocess.Popen(
            [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            wait_for(gateway)
            settle(child.pid)  # until the models are loaded
            figures = figures_of(measure(gateway, child))
        finally:
            child.terminate()
            output, _ = child.communicate(timeout=120)
    figures |= {"entries": args.entries, "load_average": os.getloadavg()[0]}
    figures["loop"] = json.loads(output.splitlines()[-1])
    print(json.dumps(figures, indent=2))
    print(report.write("semantic_latency", COMMAND, figures))


if __name__ == "__main__":
    main()
