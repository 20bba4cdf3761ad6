"""Keys for OpenAI's prompt cache under load: what is read when many requests a minute share a prefix.

    python -m benchmarks.prompt_keys --data DIR

``--data`` is the folder with ``prompts`` (default: STRATACACHE_DATA); without it nothing is measured. Runs of an
airline agent, a new one every four seconds, are replayed through ``stratacache.testing.OpenAICache``: prefix and key
decide on the machine, and what is more than 15 requests a minute spills over to another. Costs are in plain input
tokens.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.prompt_cache import Clock, Counts
from benchmarks.prompt_traffic import Ask, crowd
from stratacache.policy.fields import CHAT
from stratacache.settings import read_providers
from stratacache.testing import OpenAICache
from stratacache.tiers.prompt import PromptTier
from stratacache.types import CacheControl, Request, Scope, Usage

COMMAND = "python -m benchmarks.prompt_keys"
PRICES = {"gpt-4.1": (0.25, 1.0), "gpt-5.6": (0.1, 1.25)}
"""Of a read and of a written token, by model."""

Placed = tuple[dict[str, Any], Callable[[Usage], None] | None]
Strategy = Callable[[dict[str, Any]], Placed]


def without(body: dict[str, Any]) -> Placed:
    return body, None


def one_for_all(body: dict[str, Any]) -> Placed:
    """The application's name."""
    return {**body, "prompt_cache_key": "airline"}, None


def one_each(body: dict[str, Any]) -> Placed:
    """One for each conversation."""
    first = str(body["messages"][1]["content"]).encode()
    return {**body, "prompt_cache_key": hashlib.sha256(first).hexdigest()}, None


def by_tier(clock: Clock) -> Strategy:
    tier = PromptTier({"gpt": "openai"}, read_providers(None), b"benchmark" * 4, clock, Counts())

    def place(body: dict[str, Any]) -> Placed:
        model = body["model"]
        prepared = tier.prepare(Request(CHAT, model, model, "gpt", body, Scope(), CacheControl()), body)
        return prepared.body, lambda usage: tier.settle(prepared, 200, usage)

    return place


def replay(traffic: Sequence[Ask], place: Strategy, clock: Clock) -> dict[str, Any]:
    cache = OpenAICache(clock.monotonic)
    prompt = read = written = 0
    for ask in traffic:
        clock.at = ask.at
        body, settle = place(ask.body)
        used = cache.serve("o", body)
        prompt, read, written = prompt + used.prompt, read + used.read, written + (used.written or 0)
        if settle is not None:
            settle(Usage(prompt=used.prompt, cached_prompt=used.read))
    of_read, of_write = PRICES[traffic[0].body["model"]]
    cost = prompt - read - written + read * of_read + written * of_write
    return {
        "prompt": prompt, "read": read, "written": written, "read_share": round(read / prompt, 4),
        "cost_share": round(cost / prompt, 4), "machines": len(cache.machines),
    }  # fmt: skip


def simulate(traffic: Sequence[Ask]) -> dict[str, Any]:
    clock = Clock()
    strategies = {
        "no key": without, "one key": one_for_all, "one each": one_each, "stratacache": by_tier(clock)
    }  # fmt: skip
    minutes = (traffic[-1].at - traffic[0].at) / 60
    print(f"{traffic[0].body['model']}: {len(traffic)} requests, {len(traffic) / minutes:.0f} a minute")
    rows = {}
    for name, place in strategies.items():
        rows[name] = row = replay(traffic, place, clock)
        print(
            f"  {name:12} read {row['read_share']:6.1%}, cost {row['cost_share']:6.1%}, {row['machines']} machines"
        )
    return {"requests": len(traffic), "a_minute": round(len(traffic) / minutes), "strategies": rows}


def main(argv: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(prog=COMMAND)
    parser.add_argument("--data", type=Path, default=os.environ.get("STRATACACHE_DATA"))
    args = parser.parse_args(argv)
    if args.data is None:
        print("needs --data")
        return 0
    models = {model: simulate(crowd(Path(args.data), model)) for model in PRICES}
    print(report.write("prompt_keys", COMMAND, {"models": models}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
