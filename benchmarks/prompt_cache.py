"""L3 on agent traffic: what a provider's prompt cache reads and what prompts cost, by who places the marks.

    python -m benchmarks.prompt_cache --data DIR

``--data`` is the folder with ``traces/lmcache_agent`` and ``prompts`` (default: STRATACACHE_DATA); without it only the
planner's CPU time is measured. Traffic is replayed through the pure model of ``stratacache.testing.PromptCache``, which
holds to Anthropic's rules; costs are in plain input tokens (write 1.25 or 2, read 0.1). ``oracle`` is the most that any
placement could read: every position of every earlier request of the last hour, had it been marked.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import itertools
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import report
from benchmarks.prompt_traffic import Ask, workloads
from stratacache.dialects import chat_to_messages
from stratacache.policy.fields import MESSAGES
from stratacache.settings import read_providers
from stratacache.testing import CacheUsage, PromptCache, minimum_of
from stratacache.testing.prompt_cache import SECONDS, blocks_of, chained
from stratacache.tiers.prompt import PromptTier
from stratacache.types import CacheControl, Request, Scope, Usage

COMMAND = "python -m benchmarks.prompt_cache"
MODEL = "claude-sonnet-4-5"
LATENCY = 2.0  # seconds from a request to the start of its answer
WRITE = {"5m": 1.25, "1h": 2.0}
READ = 0.1
ROUNDS = 300
MARK = {"type": "ephemeral"}

Strategy = Callable[
    [dict[str, Any], float], tuple[dict[str, Any], Callable[[CacheUsage, float], None] | None]
]


class Clock:
    """The replay's time, in seconds."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


class Counts:
    """A tally of decisions."""

    def __init__(self) -> None:
        self.decisions: dict[str, int] = {}
        self.reads: dict[str, int] = {}

    def planned(self, provider: str, decision: str) -> None:
        self.decisions[decision] = self.decisions.get(decision, 0) + 1

    def prompt_read(self, provider: str, result: str) -> None:
        self.reads[result] = self.reads.get(result, 0) + 1


def request(body: Mapping[str, Any]) -> Request:
    """``body`` as the pipeline has it."""
    model = body["model"]
    return Request(MESSAGES, model, model, "claude", body, Scope(), CacheControl())


def planner(clock: Clock, counts: Counts) -> PromptTier:
    return PromptTier({"claude": "anthropic"}, read_providers(None), b"benchmark" * 4, clock, counts)


def by_planner(clock: Clock, counts: Counts) -> Strategy:
    tier = planner(clock, counts)

    def place(body: dict[str, Any], at: float) -> Any:
        prepared = tier.prepare(request(body), body)

        def settle(usage: CacheUsage, at: float) -> None:
            tier.settle(prepared, 200, Usage(prompt=usage.total, cached_prompt=usage.read))

        return prepared.body, settle

    return place


def unmarked(body: dict[str, Any], at: float) -> Any:
    return body, None


def on_system(body: dict[str, Any], at: float) -> Any:
    """What most guides say: one mark at the end of the system prompt."""
    system = body.get("system")
    if system is None:
        return body, None
    blocks = [{"type": "text", "text": system}] if isinstance(system, str) else system
    return {**body, "system": [*blocks[:-1], {**blocks[-1], "cache_control": MARK}]}, None


def automatic(body: dict[str, Any], at: float) -> Any:
    """The provider's automatic mark, on the last block of every request."""
    return {**body, "cache_control": MARK}, None


def both(body: dict[str, Any], at: float) -> Any:
    """System and automatic: what careful clients do."""
    return {**on_system(body, at)[0], "cache_control": MARK}, None


def replay(traffic: Sequence[Ask], place: Strategy, clock: Clock) -> dict[str, Any]:
    """The totals in tokens; an answer begins ``LATENCY`` after its request, and only then is its prefix there."""
    cache = PromptCache(clock.now)
    totals = {"read": 0, "written_5m": 0, "written_1h": 0, "fresh": 0}
    events: list[tuple[float, int, Any]] = [(ask.at, i, ask) for i, ask in enumerate(traffic)]
    heapq.heapify(events)
    number = len(events)
    while events:
        clock.at, _, what = heapq.heappop(events)
        if not isinstance(what, Ask):
            what()
            continue
        body, settle = place(what.body, clock.at)
        begun = cache.look_up("w", MODEL, body)
        for name in totals:
            totals[name] += getattr(begun.usage, name)

        def begin(begun: Any = begun, settle: Any = settle) -> None:
            cache.begin_answer(begun)
            if settle is not None:
                settle(begun.usage, clock.at)

        number += 1
        heapq.heappush(events, (clock.at + LATENCY, number, begin))
    prompt = sum(totals.values())
    cost = (
        totals["fresh"] + totals["read"] * READ
        + totals["written_5m"] * WRITE["5m"] + totals["written_1h"] * WRITE["1h"]
    )  # fmt: skip
    return {**totals, "prompt": prompt, "cost": round(cost)}


def oracle(traffic: Sequence[Ask]) -> int:
    """Tokens that could be read at most: the longest prefix of an earlier request of the last hour, used or begun."""
    seen: dict[bytes, float] = {}
    pending: list[tuple[float, list[bytes]]] = []
    least, read = minimum_of(MODEL), 0
    for ask in sorted(traffic, key=lambda one: one.at):
        while pending and pending[0][0] <= ask.at:
            begun, prefixes = pending.pop(0)
            seen.update(dict.fromkeys(prefixes, begun))
        blocks = blocks_of(ask.body)
        prefixes = list(chained("w", MODEL, ask.body, blocks))
        total = found = 0
        for block, prefix in zip(blocks, prefixes, strict=True):
            total += block.tokens
            if ask.at - seen.get(prefix, -1e9) <= SECONDS["1h"] and total >= least:
                found = total
        read += found
        pending.append((ask.at + LATENCY, prefixes))
    return read


def simulate(name: str, traffic: Sequence[Ask]) -> dict[str, Any]:
    most = oracle(traffic)
    clock, counts = Clock(), Counts()
    strategies: dict[str, Strategy] = {
        "unmarked": unmarked, "system": on_system, "automatic": automatic, "system + automatic": both,
        "stratacache": by_planner(clock, counts),
    }  # fmt: skip
    rows = {title: replay(traffic, place, clock) for title, place in strategies.items()}
    plain = rows["unmarked"]["cost"]
    print(f"{name}: {len(traffic)} requests, {rows['unmarked']['prompt']} tokens, oracle reads {most}")
    for title, row in rows.items():
        row["of_oracle"] = round(row["read"] / most, 4) if most else None
        row["cost_share"] = round(row["cost"] / plain, 4)
        share = "  none" if row["of_oracle"] is None else f"{row['of_oracle']:6.1%}"
        print(f"  {title:20} read {share} of the oracle's, cost {row['cost_share']:6.1%}")
    return {
        "requests": len(traffic), "oracle_read": most, "strategies": rows, "decisions": counts.decisions,
        "reads": counts.reads,
    }  # fmt: skip


def speed(body: dict[str, Any]) -> dict[str, Any]:
    """Median CPU time of the next turn of a conversation: turning a chat request into Anthropic's form, planning and
    marking it, and taking note of the answer; and of decoding and encoding the same as JSON once."""
    clock = Clock()
    tier = planner(clock, Counts())
    taken: dict[str, list[float]] = {"convert": [], "plan": [], "settle": [], "all": [], "json": []}
    gc.collect()
    for number in range(ROUNDS):
        clock.at += 5.0
        said = {"role": "user", "content": f"question {number} of this benchmark"}
        turn = {**body, "messages": [*body["messages"], said]}
        times = [time.thread_time()]
        converted = chat_to_messages.request(turn, max_tokens=100)
        times.append(time.thread_time())
        prepared = tier.prepare(request(converted), converted)
        times.append(time.thread_time())
        tier.settle(prepared, 200, Usage(prompt=1, cached_prompt=0))
        times.append(time.thread_time())
        msgspec.json.decode(msgspec.json.encode(turn))
        times.append(time.thread_time())
        spent = [later - earlier for earlier, later in itertools.pairwise(times)]
        for name, seconds in zip(taken, [*spent[:3], sum(spent[:3]), spent[3]], strict=True):
            taken[name].append(seconds)
    tier.check()
    medians = {name: round(report.median(seconds) * 1e6, 1) for name, seconds in taken.items()}
    ratio = round(medians["all"] / medians["json"], 2)
    return {"bytes": len(msgspec.json.encode(body)), "cpu_microseconds": medians, "ratio_to_json": ratio}


def small_body() -> dict[str, Any]:
    """2 KB, for a model that caches from 512 tokens on: with others such a request is passed over at once."""
    words = "The agent helps customers of a small airline with their bookings. " * 33
    return {"model": "claude-opus-5", "messages": [{"role": "system", "content": words}]}


def large_body() -> dict[str, Any]:
    """200 KB with 60 tools and a history of 40 turns."""
    properties = {f"field_{i}": {"type": "string", "description": "what it says " * 6} for i in range(12)}
    schema = {"type": "object", "properties": properties}
    tools = [
        {
            "type": "function",
            "function": {"name": f"tool_{i}", "description": "does this " * 10, "parameters": schema},
        }
        for i in range(60)
    ]
    history = [
        {"role": role, "content": f"turn {i} " + "and so on " * 120}
        for i in range(40)
        for role in ("user", "assistant")
    ]
    system = {"role": "system", "content": "Be brief. " * 1000}
    return {"model": MODEL, "tools": tools, "messages": [system, *history]}


def main(argv: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(prog=COMMAND)
    parser.add_argument("--data", type=Path, default=os.environ.get("STRATACACHE_DATA"))
    args = parser.parse_args(argv)
    figures: dict[str, Any] = {
        "planning": {"2 KB": speed(small_body()), "200 KB, 60 tools": speed(large_body())}
    }
    for name, row in figures["planning"].items():
        print(name, row)
    if args.data is not None:
        figures["workloads"] = {
            name: simulate(name, asks) for name, asks in workloads(Path(args.data)).items()
        }
    print(report.write("prompt_cache", COMMAND, figures))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
