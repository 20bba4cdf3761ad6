"""The benchmark of prompt caches on small made-up traffic: its accounts, its oracle, and that the goals can be met."""

from __future__ import annotations

import pytest
from benchmarks import prompt_keys
from benchmarks.prompt_cache import Clock, Counts, automatic, by_planner, on_system, oracle, replay, unmarked
from benchmarks.prompt_traffic import Ask
from tests.prompt_kit import asked, assistant, tool, user, words

SYSTEM = words(2000, "policy")


def agents(count: int, turns: int, every: float) -> list[Ask]:
    """Conversations that begin ``every`` so many seconds and take a turn each 15 s."""
    asks = []
    for number in range(count):
        messages = [user(f"question {number} " + words(100))]
        for turn in range(turns):
            body = asked(*messages, system=SYSTEM, tools=[tool("search", words(400))])
            asks.append(Ask(number * every + turn * 15.0, body))
            messages += [assistant(f"answer {turn} " + words(100)), user(f"question {turn} " + words(100))]
    return sorted(asks, key=lambda ask: ask.at)


@pytest.mark.parametrize("every", [40.0, 1200.0])
def test_the_planner_reads_what_can_be_read_and_costs_less_than_simple_marks(every: float) -> None:
    traffic = agents(12, 6, every)
    clock = Clock()
    most = oracle(traffic)
    rows = {
        "unmarked": replay(traffic, unmarked, clock),
        "system": replay(traffic, on_system, clock),
        "automatic": replay(traffic, automatic, clock),
        "planned": replay(traffic, by_planner(clock, Counts()), clock),
    }
    plain, planned = rows["unmarked"], rows["planned"]
    assert (plain["read"], plain["cost"]) == (0, plain["prompt"])
    assert all(row["prompt"] == plain["prompt"] and row["read"] <= most for row in rows.values())
    assert planned["read"] >= 0.85 * most
    assert planned["cost"] <= 0.4 * plain["cost"]
    assert planned["cost"] < min(rows["system"]["cost"], rows["automatic"]["cost"])


def test_the_oracle_reads_nothing_before_an_answer_began() -> None:
    body = asked(user(words(2000)))
    assert oracle([Ask(0.0, body), Ask(1.0, body)]) == 0
    assert oracle([Ask(0.0, body), Ask(3.0, body)]) > 2000
    assert oracle([Ask(0.0, body), Ask(3700.0, body)]) == 0


@pytest.mark.parametrize("model", ["gpt-4.1", "gpt-5.6"])
def test_keys_of_the_tier_read_more_than_none_in_a_crowd(model: str) -> None:
    asks = []
    for number in range(60):
        messages = [{"role": "system", "content": SYSTEM}, user(f"question {number} " + words(300))]
        for turn in range(4):
            asks.append(Ask(number * 2.0 + turn * 15.0, {"model": model, "messages": messages}))
            messages = [*messages, assistant(words(300)), user(f"question {turn} " + words(300))]
    asks.sort(key=lambda ask: ask.at)
    clock = Clock()
    bare = prompt_keys.replay(asks, prompt_keys.without, clock)
    keyed = prompt_keys.replay(asks, prompt_keys.by_tier(clock), clock)
    assert keyed["read"] > bare["read"]
    assert keyed["cost_share"] < bare["cost_share"]
