"""Whatever is asked and in whatever order: marks hold to the provider's rules, and are all that changes."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.prompt_kit import CLAUDE, MARK, TABLE, Tier, asked, marks_in, tool, words

from stratacache.policy.fields import CHAT, MESSAGES
from stratacache.policy.messages_form import canonical_prompt
from stratacache.testing import minimum_of
from stratacache.testing.anthropic_check import check
from stratacache.types import Usage

sizes = st.sampled_from([1, 30, 400, 1100, 3000])
topics = st.sampled_from(["alpha", "beta"])
texts = st.builds(words, sizes, topics)
parts = st.builds(lambda text: {"type": "text", "text": text}, texts)
thoughts = st.just({"type": "thinking", "thinking": "hm", "signature": "c2ln"})
contents = texts | st.lists(parts, min_size=1, max_size=30)
models = st.sampled_from([CLAUDE, "claude-opus-5", "claude-haiku-4-5", "claude-opus-4-7"])


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for i in range(draw(st.integers(1, 5))):
        content: Any = draw(contents)
        if i % 2 and isinstance(content, list) and draw(st.booleans()):
            content = [draw(thoughts), *content]
        messages.append({"role": "assistant" if i % 2 else "user", "content": content})
    if messages[-1]["role"] == "assistant":
        messages.append({"role": "user", "content": "go on"})
    body = asked(*messages, model=draw(models))
    if draw(st.booleans()):
        body["system"] = draw(contents)
    if draw(st.booleans()):
        body["tools"] = [tool(f"t{i}", words(draw(sizes))) for i in range(draw(st.integers(1, 4)))]
    return body


steps = st.lists(
    st.tuples(bodies(), st.sampled_from([1.0, 60.0, 400.0, 2000.0, 9000.0])), min_size=1, max_size=12
)
repeats = st.lists(st.integers(0, 11), max_size=20)


@settings(max_examples=60, deadline=None)
@given(steps, repeats)
def test_marks_hold_to_anthropics_rules_and_are_all_that_changes(
    rows: list[tuple[dict[str, Any], float]], again: list[int]
) -> None:
    tier = Tier()
    for body, gap in [*rows, *(rows[i % len(rows)] for i in again)]:
        tier.clock.advance(gap)
        before = deepcopy(body)
        prepared, _ = tier.ask(body)
        assert body == before
        check(prepared.body, "2026-10-21")
        marks = marks_in(prepared.body)
        assert len(marks) == len(prepared.plan.marks) <= 4
        ttls = [mark.get("ttl", "5m") for mark in marks]
        assert ttls == sorted(ttls)
        assert all(mark.tokens >= minimum_of(body["model"]) for mark in prepared.plan.marks)
        assert canonical_prompt(prepared.body) == canonical_prompt(body)
        assert (prepared.body is body) == (not marks)


@settings(max_examples=60, deadline=None)
@given(bodies(), st.data())
def test_the_clients_marks_are_respected_and_a_marked_body_is_not_marked_again(
    body: dict[str, Any], data: st.DataObject
) -> None:
    tier = Tier()
    marked, _ = tier.ask(body)
    if marked.plan.marks:
        second = tier.prepare(marked.body)
        assert second.body is marked.body
        assert second.plan.decision == "own_marks"
    own = deepcopy(body)
    message = data.draw(st.sampled_from(own["messages"]))
    message["content"] = [{"type": "text", "text": "marked", "cache_control": MARK}]
    assert tier.prepare(own).body is own


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "role",
                    "content",
                    "type",
                    "text",
                    "tools",
                    "system",
                    "messages",
                    "cache_control",
                    "tool_calls",
                    "function",
                ]
            )
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["messages", "system", "tools", "thinking"]), values, max_size=4), values
)
@pytest.mark.parametrize(
    ("provider", "endpoint", "model"),
    [
        ("anthropic", MESSAGES, CLAUDE),
        ("openai", CHAT, "gpt-5.6"),
        ("openai", CHAT, "gpt-4o"),
        ("qwen", CHAT, "qwen-max"),
    ],
)
def test_no_body_makes_planning_fail(
    provider: str, endpoint: str, model: str, body: dict[str, Any], content: Any
) -> None:
    tier = Tier(provider, endpoint)
    long = {"role": "user", "content": words(3000)}
    for strange in (body, {**body, "messages": [long, {"role": "user", "content": content}]}):
        asked_for = {**strange, "model": model}
        before = msgspec.json.encode(asked_for)
        prepared = tier.prepare(asked_for)
        assert msgspec.json.encode(asked_for) == before
        assert prepared.plan.decision != "failed"


@settings(max_examples=40, deadline=None)
@given(steps)
def test_openais_breakpoints_are_no_more_than_it_writes(rows: list[tuple[dict[str, Any], float]]) -> None:
    rule = TABLE.rule("openai", "gpt-5.6")
    assert rule is not None
    tier = Tier("openai", CHAT)
    for body, gap in rows:
        tier.clock.advance(gap)
        system = [{"role": "system", "content": body["system"]}] if "system" in body else []
        chat = {"model": "gpt-5.6", "messages": [*system, *body["messages"]]}
        prepared = tier.prepare(chat)
        tier.tier.settle(prepared, 200, Usage())
        explicit = str(prepared.body).count("'prompt_cache_breakpoint'")
        assert explicit == len(prepared.plan.marks)
        assert explicit + prepared.plan.implicit <= rule.breakpoints
        bare = {k: v for k, v in prepared.body.items() if not k.startswith("prompt_cache")}
        assert _unmarked(bare) == _unmarked(chat)


def _unmarked(body: dict[str, Any]) -> Any:
    """Without breakpoints, and with a single block of text as the string it stands for."""
    made = []
    for message in body["messages"]:
        content = message["content"]
        if isinstance(content, list):
            content = [{k: v for k, v in part.items() if k != "prompt_cache_breakpoint"} for part in content]
            if len(content) == 1 and content[0]["type"] == "text":
                content = content[0]["text"]
        made.append({**message, "content": content})
    return {**body, "messages": made}
