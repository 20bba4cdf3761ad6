"""Routing over replicas: what a decision costs, and what it finds on a trace beside simpler policies.

    python -m benchmarks.routing --data DIR

Decisions: 64 replicas that hold 1,000,000 blocks in all; CPU time of one ``choose`` and one ``place``, which a request
waits for, and of one ``catch_up`` and one ``settle``, which it does not.
Simulation: ``--data`` is the folder with ``traces/mooncake`` (default: STRATACACHE_DATA); without it only decisions are
timed. 8 replicas of 2,500 blocks, three rates of work.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import report
from stratacache.lab.simulate import FleetSize, Production, bounds, percentile, rate_for, replay, routers
from stratacache.lab.simulate_traces import TraceRequest, read_trace, summary
from stratacache.policy.affinity import Affinity

COMMAND = "python -m benchmarks.routing"
REPLICAS, BLOCKS = 64, 1_000_000
ROUNDS = 2_000
UTILISATIONS = (0.6, 0.68, 0.8)
BLOCK_TOKENS = 512
VARIANTS = (
    {}, {"beta": 0.0}, {"beta": 0.05}, {"beta": 0.2}, {"beta": 0.5}, {"beta": 1.0}, {"bound": 2.0}, {"excess": 0.5},
    {"bound": 8.0, "excess": 1.0},
)  # fmt: skip
"""Other weights of the load and bounds on it; the last one is no bound."""


def prefix(conversation: int, blocks: int) -> list[bytes]:
    """One block that all share, then the conversation's own."""
    own = [hashlib.sha256(b"%d:%d" % (conversation, i)).digest()[:16] for i in range(blocks - 1)]
    return [b"shared by everybody", *own]


def filled(blocks_each: int) -> tuple[Affinity, int]:
    """Replicas full of conversations of ``blocks_each`` blocks; and how many conversations there are."""
    affinity = Affinity([BLOCKS // REPLICAS] * REPLICAS)
    conversations = BLOCKS // blocks_each
    for number in range(conversations):
        affinity.settle(affinity.place(number % REPLICAS, prefix(number, blocks_each)), None)
    return affinity, conversations


def decisions(blocks: int) -> dict[str, Any]:
    """CPU microseconds of each call, for half known and half new conversations of so many blocks."""
    affinity, conversations = filled(blocks)
    loads = [float(i * 7 % 50) for i in range(REPLICAS)]
    held = sum(affinity.held(i) for i in range(REPLICAS))
    times: dict[str, list[float]] = {
        name: [] for name in ("decision", "choose", "place", "catch_up", "settle")
    }
    gc.collect()
    for number in range(ROUNDS):
        known = number % 2 == 0
        asked = prefix(conversations - 1 - number if known else conversations + number, blocks)
        started = time.thread_time()
        choice = affinity.choose(asked, loads)
        chosen = time.thread_time()
        assert choice is not None
        placement = affinity.place(choice.replica, asked)
        placed = time.thread_time()
        affinity.catch_up()
        entered = time.thread_time()
        affinity.settle(placement, choice.overlap)
        settled = time.thread_time()
        parts = (placed - started, chosen - started, placed - chosen, entered - placed, settled - entered)
        for name, seconds in zip(times, parts, strict=True):
            times[name].append(seconds * 1e6)
    affinity.check()
    rows = {
        name: {"median": round(report.median(taken), 1), "p99": round(percentile(taken, 0.99), 1)}
        for name, taken in times.items()
    }
    return {"replicas": REPLICAS, "blocks_held": held, "blocks_of_request": blocks, "cpu_microseconds": rows}


def simulation(path: Path) -> dict[str, Any]:
    trace = read_trace(path, BLOCK_TOKENS)
    found: dict[str, Any] = {
        "trace": summary(trace),
        "bounds": msgspec.to_builtins(bounds(trace)),
        "fleets": [],
    }
    for utilisation in UTILISATIONS:
        size = FleetSize(8, 2500, rate_for(trace, 8, utilisation))
        outcomes = [replay(trace, size, name, make) for name, make in routers().items()]
        first = outcomes[0]
        for one in outcomes:
            print(
                f"{utilisation:4} {one.policy:24} {one.hits:6.1%} {one.backlog:8.0f} {one.backlog / first.backlog:6.0%}"
            )
        found["fleets"].append(
            {
                "utilisation": utilisation,
                "fleet": msgspec.to_builtins(size),
                "outcomes": msgspec.to_builtins(outcomes),
            }
        )
    found["variants"] = variants(trace)
    return found


def variants(trace: Sequence[TraceRequest]) -> list[dict[str, Any]]:
    """The policy of production with other constants."""
    size = FleetSize(8, 2500, rate_for(trace, 8, 0.68))
    found = []
    for options in VARIANTS:
        affinity = Affinity([size.capacity] * size.replicas, **options)
        named = ", ".join(f"{name} {value:g}" for name, value in options.items()) or "as it is"
        one = replay(trace, size, named, lambda *_, made=affinity: Production(made))
        print(f"{one.policy:24} {one.hits:6.1%} {one.backlog:8.0f}")
        found.append(msgspec.to_builtins(one))
    return found


def main(argv: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(prog=COMMAND)
    parser.add_argument("--data", type=Path, default=os.environ.get("STRATACACHE_DATA"))
    args = parser.parse_args(argv)
    figures: dict[str, Any] = {"decisions": [decisions(24), decisions(247)]}
    for one in figures["decisions"]:
        print(one)
    if args.data is not None:
        figures["simulation"] = simulation(Path(args.data) / "traces/mooncake/conversation_trace.jsonl")
    print(report.write("routing", COMMAND, figures))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
