"""Agent traffic for ``benchmarks.prompt_cache``: real runs and prompts as Anthropic requests at points in time."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stratacache.dialects import chat_to_messages

MODEL = "claude-sonnet-4-5"
RUNS = 100
TOOL_SECONDS = 4.0  # from a call of a tool to the request with its result
BUSY_START, BUSY_PAUSE = 20.0, 30.0
QUIET_START, QUIET_PAUSE = 900.0, 420.0
CROWD_START = 4.0
"""Seconds between new runs, and a person's pause, on average; both are drawn from exponential distributions."""


@dataclass(frozen=True)
class Ask:
    """A request ``at`` so many seconds."""

    at: float
    body: dict[str, Any]


def crowd(data: Path, model: str) -> list[Ask]:
    """Many runs of the airline agent at once, as OpenAI requests: a new one every ``CROWD_START`` seconds."""
    runs, airline, tools = _airline(data)
    system = {"role": "system", "content": airline}

    def chat(turn: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {"model": model, "tools": tools, "messages": [system, *turn]}

    draw, start, asks = random.Random(7), 0.0, []
    for run in runs:
        start += draw.expovariate(1 / CROWD_START)
        asks += [Ask(at, chat(turn)) for at, turn in _turns(run, start, BUSY_PAUSE, draw)]
    return sorted(asks, key=lambda ask: ask.at)


def _airline(data: Path) -> tuple[list[list[dict[str, Any]]], str, list[dict[str, Any]]]:
    """Runs of the agent, its system prompt and its tools."""
    folder = data / "prompts/tau_bench"
    runs = [run["messages"] for run in _rows(folder / "airline_gpt4o_trajectories.jsonl")][:RUNS]
    tools = [row["tool"] for row in _rows(folder / "tools.jsonl") if row["env"] == "airline"]
    return runs, _rows(folder / "system_prompts.jsonl")[0]["content"], tools


def workloads(data: Path) -> dict[str, list[Ask]]:
    """By name."""
    prompts = data / "prompts"
    runs, airline, airline_tools = _airline(data)
    coding = [row["content"] for row in _rows(prompts / "gemini_cli_prompts/system_prompts.jsonl")]
    coding_tools = _coding_tools(prompts / "gemini_cli_prompts/tools.jsonl")
    trace = _rows(data / "traces/lmcache_agent/taubench.jsonl")
    return {
        "airline agent, trace": _trace(trace, airline, airline_tools),
        "airline agent, busy": _runs(runs, [airline], airline_tools, BUSY_START, BUSY_PAUSE),
        "airline agent, quiet": _runs(runs, [airline], airline_tools, QUIET_START, QUIET_PAUSE),
        "coding agent, busy": _runs(runs, coding, coding_tools, BUSY_START, BUSY_PAUSE),
        "one-off questions": _one_off(_rows(prompts / "tau_bench/few_shot_retail.jsonl")),
        "airline agent, clock first": _clocked(_runs(runs[:30], [airline], airline_tools, BUSY_START, BUSY_PAUSE)),
    }  # fmt: skip


def _rows(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _coding_tools(path: Path) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for row in _rows(path):
        one = row["declaration"]
        if one is not None and row["tool_name"] not in found:
            schema = one.get("parametersJsonSchema") or {"type": "object", "properties": {}}
            function = {
                "name": row["tool_name"],
                "description": one.get("description", ""),
                "parameters": schema,
            }
            found[row["tool_name"]] = {"type": "function", "function": function}
    return list(found.values())


def _request(system: str, tools: Sequence[Any], messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    body = {"model": MODEL, "tools": tools, "messages": [{"role": "system", "content": system}, *messages]}
    return chat_to_messages.request(body, max_tokens=1024)


def _runs(
    runs: Sequence[Sequence[Mapping[str, Any]]],
    systems: Sequence[str],
    tools: Sequence[Any],
    every: float,
    pause: float,
) -> list[Ask]:
    """Each run begins some time after the one before it, and asks once for every turn of the agent."""
    draw, start, asks = random.Random(7), 0.0, []
    for number, run in enumerate(runs):
        start += draw.expovariate(1 / every)
        system = systems[number % len(systems)]
        asks += [Ask(at, _request(system, tools, turn)) for at, turn in _turns(run, start, pause, draw)]
    return sorted(asks, key=lambda ask: ask.at)


def _turns(
    run: Sequence[Mapping[str, Any]], at: float, pause: float, draw: random.Random
) -> Iterator[tuple[float, list[Mapping[str, Any]]]]:
    said: list[Mapping[str, Any]] = []
    for message in run:
        if message["role"] == "assistant" and said:
            yield at, list(said)
        elif message["role"] == "user":
            at += draw.expovariate(1 / pause)
        else:
            at += TOOL_SECONDS
        said.append(_plain(message))


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    names = ("role", "content", "tool_calls", "tool_call_id")
    return {name: message[name] for name in names if message.get(name) is not None}


def _trace(rows: Sequence[Mapping[str, Any]], system: str, tools: Sequence[Any]) -> list[Ask]:
    """The recorded calls at their recorded times. What they sent is one text, whose paragraphs are blocks here."""
    begin = min(row["timestamp"] for row in rows)
    asks = []
    for row in sorted(rows, key=lambda row: row["timestamp"]):
        parts = [{"type": "text", "text": part} for part in row["input"].split("\n\n") if part.strip()]
        if parts:
            body = _request(system, tools, [{"role": "user", "content": parts}])
            asks.append(Ask((row["timestamp"] - begin) / 1e6, body))
    return asks


def _one_off(rows: Sequence[Mapping[str, Any]]) -> list[Ask]:
    """Long texts that are each asked about once."""
    texts = dict.fromkeys(row["messages_display"] for row in rows)
    return [
        Ask(
            i * BUSY_START,
            {"model": MODEL, "max_tokens": 100, "messages": [{"role": "user", "content": text}]},
        )
        for i, text in enumerate(texts)
    ]


def _clocked(asks: Sequence[Ask]) -> list[Ask]:
    """The same with the time of each request at the start of its system prompt."""
    return [
        Ask(
            ask.at,
            {**ask.body, "system": f"Current time: {1_700_000_000 + ask.at:.3f}\n{ask.body['system']}"},
        )
        for ask in asks
    ]
