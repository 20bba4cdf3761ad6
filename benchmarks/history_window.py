"""What a history window gains in hits and costs in wrong answers, for windows of 1, 2, 3, 5 turns and all.

    python -m benchmarks.history_window --data DIR [--conversations N] [--seed N]

Two replays through the gateway's own ``exact_key``, nothing ever expiring:

- recorded: 200 runs of an airline agent (tau-bench), each call of the model a request with the recorded history. An
  entry holds the recorded reply of the call that made it;
- generated: a support bot (``benchmarks.support_traffic``), where the right answer to each turn is known. The history
  holds the answers as served, wrong ones included, as it would behind a cache.

``--data``: the folder with ``prompts/tau_bench``, ``queries/banking77`` and ``pairs/bq_corpus``. Without it nothing
is measured.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from benchmarks import report, support_traffic
from stratacache.policy.key import exact_key
from stratacache.types import CacheControl, Request, Scope

COMMAND = "python -m benchmarks.history_window"
WINDOWS = (1, 2, 3, 5, None)
FACTS = (0.0, 0.2)
NEAR = 0.9
SHORT_WORDS = 8

Message = Mapping[str, Any]
Likeness = Literal["same", "near", "different"]

# What names a thing in these conversations: a booking (6 capitals or digits), or a word with a digit in it, such as
# a user id, a flight, a date or an amount. Single digits number the points of a list.
_NAMES = re.compile(r"\b[A-Z0-9]{6}\b|\b(?=\w*\d)\w{2,}\b")
_WRITES = ("book_", "cancel_", "update_", "send_")


def request_of(messages: Sequence[Message], **fields: Any) -> Request:
    """A chat request as the gateway prepares it."""
    return Request(
        endpoint="chat.completions",
        model="assistant",
        resolved_model="assistant",
        upstream="local",
        body={"model": "assistant", "temperature": 0, "messages": list(messages), **fields},
        scope=Scope(),
        control=CacheControl(),
    )


@dataclass
class Tally:
    """Counts of one replay; ``by_kind`` splits requests, hits and wrong hits by the kind of the last turn."""

    counts: Counter[str] = field(default_factory=Counter)
    by_kind: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, kind: str, *events: str) -> None:
        self.counts.update(events)
        self.by_kind.setdefault(kind, Counter()).update(events)

    def figures(self) -> dict[str, Any]:
        counts = self.counts
        return {
            **counts,
            "hit_rate": counts["hits"] / counts["requests"],
            "wrong_per_hit": counts["wrong"] / max(1, counts["hits"]),
            "wrong_per_request": counts["wrong"] / counts["requests"],
            "by_kind": {kind: dict(found) for kind, found in sorted(self.by_kind.items())},
        }


# --- recorded conversations -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """One recorded call of the model: what was sent, and the reply."""

    messages: Sequence[Message]
    reply: Message


def recorded_calls(runs: Sequence[Mapping[str, Any]], policies: Mapping[str, str]) -> Iterator[Call]:
    """Every call, one trial of all tasks after the other."""
    for run in sorted(runs, key=lambda run: (run["trial"], run["task_id"])):
        messages = [{"role": "system", "content": policies[run["system_ref"]]}, *run["messages"]]
        for number, message in enumerate(messages):
            if message["role"] == "assistant":
                yield Call(messages[:number], message)


def calls_of(reply: Message) -> list[tuple[str, Any]]:
    """The tool calls of a reply without their ids, which are random."""
    functions = [call["function"] for call in reply.get("tool_calls") or ()]
    return [(function["name"], json.loads(function["arguments"])) for function in functions]


def plain(reply: Message) -> str:
    """A reply's text without capitals, punctuation and markup."""
    return " ".join(re.findall(r"\w+", (reply.get("content") or "").lower()))


def names(text: str) -> set[str]:
    return set(_NAMES.findall(text))


def likeness(served: Message, own: Message) -> Likeness:
    """``same``: equal tool calls, and texts equal but for capitals, punctuation and markup. ``near``: equal tool
    calls, the same numbers and names, and texts alike by ``NEAR`` or more (difflib's ratio)."""
    if calls_of(served) != calls_of(own):
        return "different"
    left, right = plain(served), plain(own)
    if left == right:
        return "same"
    if names(served.get("content") or "") != names(own.get("content") or ""):
        return "different"
    ratio = difflib.SequenceMatcher(None, left, right, autojunk=False).ratio()
    return "near" if ratio >= NEAR else "different"


def foreign(served: Message, call: Call) -> bool:
    """Whether the served reply names something that neither the asker's conversation nor its own reply does."""
    own = json.dumps([list(call.messages), call.reply], ensure_ascii=False)
    return not names(_spoken(served)) <= names(own)


def _spoken(reply: Message) -> str:
    return (reply.get("content") or "") + json.dumps(calls_of(reply), ensure_ascii=False)


def kind_of(messages: Sequence[Message]) -> str:
    """The kind of turn that a recorded call answers."""
    last = messages[-1]
    if last["role"] != "user":
        return "after a tool"
    if sum(message["role"] == "user" for message in messages) == 1:
        return "first message"
    return "short message" if len(last["content"].split()) <= SHORT_WORDS else "longer message"


def replay_recorded(calls: Iterable[Call], window: int | None, tools: Sequence[Any]) -> Tally:
    """A hit is wrong when its entry was made for another full conversation and the replies are ``different``.

    ``foreign``: wrong hits that also name what belongs to another conversation, the surest of them;
    ``foreign_writes``: those that would make the client book, change or cancel something of another customer.
    """
    tally = Tally()
    entries: dict[bytes, tuple[bytes, Message]] = {}
    for call in calls:
        request = request_of(call.messages, tools=tools)
        full = exact_key(request).digest
        key = exact_key(request, history_window=window).digest
        kind = kind_of(call.messages)
        made_for, served = entries.setdefault(key, (full, call.reply))
        events = ["requests"]
        if served is not call.reply:
            alike = likeness(served, call.reply)
            events += ["hits", alike]
            if made_for != full and alike == "different":
                events.append("wrong")
                if foreign(served, call):
                    events.append("foreign")
                    if any(name.startswith(_WRITES) for name, _ in calls_of(served)):
                        events.append("foreign_writes")
        tally.add(kind, *events)
    return tally


# --- generated conversations ------------------------------------------------------------------------------------


def replay_generated(
    conversations: Iterable[support_traffic.Conversation], system: str, window: int | None
) -> Tally:
    """A hit is wrong when its entry answers another truth than the turn has.

    ``possible``: requests whose last text, in normal form, was answered before with the same truth: the right hits
    of a key that knew how much history each turn needs. ``misled``: conversations with a wrong answer in them.
    """
    tally = Tally()
    entries: dict[bytes, str] = {}
    answered: set[tuple[bytes, str]] = set()
    for conversation in conversations:
        messages: list[Message] = [{"role": "system", "content": system}]
        misled = False
        for turn in conversation:
            messages.append({"role": "user", "content": turn.text})
            key = exact_key(request_of(messages), history_window=window).digest
            served = entries.get(key)
            events = ["requests"]
            asked = (exact_key(request_of(messages[-1:])).digest, turn.truth)
            if asked in answered:
                events.append("possible")
            if served is None:
                entries[key] = turn.truth
            else:
                events.append("hits")
                if served != turn.truth:
                    events.append("wrong")
                    misled = True
            answered.add(asked)
            messages.append({"role": "assistant", "content": f"Answer to: {served or turn.truth}"})
            tally.add(turn.kind, *events)
        tally.counts.update(conversations=1, misled=int(misled))
    return tally


# --- command ----------------------------------------------------------------------------------------------------


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def label(window: int | None) -> str:
    return "all" if window is None else str(window)


def measure_recorded(data: Path) -> dict[str, Any]:
    folder = data / "prompts/tau_bench"
    policies = {row["id"]: row["content"] for row in _rows(folder / "system_prompts.jsonl")}
    tools = [row["tool"] for row in _rows(folder / "tools.jsonl") if row["env"] == "airline"]
    calls = list(recorded_calls(_rows(folder / "airline_gpt4o_trajectories.jsonl"), policies))
    return {label(window): replay_recorded(calls, window, tools).figures() for window in WINDOWS}


def measure_generated(data: Path, count: int, seed: int) -> list[dict[str, Any]]:
    english, chinese = support_traffic.english_topics(data, seed), support_traffic.chinese_topics(data, seed)
    bots: tuple[tuple[support_traffic.Language, support_traffic.Topics, str], ...] = (
        ("en", english, "You answer questions about our bank."),
        ("zh", chinese, "你是贷款客服。"),
    )
    return [
        {
            "language": language,
            "facts": facts,
            "windows": {
                label(window): replay_generated(
                    support_traffic.conversations(topics, language, count, facts, seed), system, window
                ).figures()
                for window in WINDOWS
            },
        }
        for language, topics, system in bots
        for facts in FACTS
    ]


def show(title: str, windows: Mapping[str, Mapping[str, Any]]) -> None:
    print(title)
    for window, row in windows.items():
        print(
            f"  window {window:3}  requests {row['requests']:6}  hits {row.get('hits', 0):6} ({row['hit_rate']:6.2%})"
            f"  wrong {row.get('wrong', 0):6}, {row['wrong_per_hit']:6.2%} of hits,"
            f" {row['wrong_per_request']:6.2%} of requests"
        )


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=os.environ.get("STRATACACHE_DATA"))
    parser.add_argument("--conversations", type=int, default=8000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    if options.data is None:
        print("not measured: needs the recorded conversations, --data DIR or STRATACACHE_DATA")
        return
    start = time.monotonic()
    data = Path(options.data)
    recorded = measure_recorded(data)
    show("recorded: airline agent, 200 conversations", recorded)
    generated = measure_generated(data, options.conversations, options.seed)
    for row in generated:
        show(f"generated: {row['language']}, {row['facts']:.0%} open with a fact", row["windows"])
    command = f"{COMMAND} --data DIR --conversations {options.conversations} --seed {options.seed}"
    figures = {
        "seed": options.seed,
        "seconds": time.monotonic() - start,
        "recorded": recorded,
        "generated": generated,
    }
    print(report.write("history_window", command, figures))


if __name__ == "__main__":
    main(sys.argv[1:])
