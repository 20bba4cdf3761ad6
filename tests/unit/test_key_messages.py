"""The key of Anthropic requests: what means the same has one key, whatever changes the answer has another."""

from __future__ import annotations

from typing import Any

import pytest

from stratacache.policy.fields import MESSAGES
from stratacache.policy.key import exact_key
from stratacache.policy.partition import Unfit, question_of, scope_of
from stratacache.types import CacheControl, Key, Request, Scope

MARK = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
TOOL = {"name": "f", "description": "d", "input_schema": {"type": "object"}}
CALL = {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "sunny"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa"}}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


BASE: dict[str, Any] = {
    "model": "m",
    "max_tokens": 100,
    "system": "Be brief.",
    "messages": [user("What is a cache?")],
    "tools": [TOOL],
}


def request(**fields: Any) -> Request:
    return Request(
        endpoint=MESSAGES, model="m", resolved_model="m", upstream="u", body={**BASE, **fields}, scope=Scope(),
        control=CacheControl(),
    )  # fmt: skip


def key(window: int | None = None, **fields: Any) -> Key:
    return exact_key(request(**fields), history_window=window)


@pytest.mark.parametrize(
    "fields",
    [
        {"stream": True},
        {"metadata": {"user_id": "u"}},
        {"cache_control": {"type": "ephemeral"}},
        {"system": [text("Be brief.")]},
        {"system": [text("Be brief.", **MARK)]},
        {"messages": [user([text("What is a cache?", **MARK)])]},
        {"messages": [user("What is a cache? ")]},
        {"tools": [{**TOOL, **MARK}]},
    ],
)
def test_what_means_the_same_has_one_key(fields: dict[str, Any]) -> None:
    assert key(**fields) == key()


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": 101},
        {"system": "Be brief!"},
        {"system": [text("Be"), text("brief.")]},
        {"system": None},
        {"temperature": 0},
        {"thinking": {"type": "enabled", "budget_tokens": 2000}},
        {"tools": []},
        {"tools": [{**TOOL, "description": "e"}]},
        {"tool_choice": {"type": "any"}},
        {"stop_sequences": ["x"]},
        {"messages": [user([IMAGE, text("What is a cache?")])]},
        {"messages": [user("Hi"), {"role": "assistant", "content": "Hi."}, user("What is a cache?")]},
        {"messages": [user("What is a cache?"), {"role": "assistant", "content": "It is"}]},
        {"messages": [user([text("What is a cache?", citations=None)])]},
    ],
)
def test_what_changes_the_answer_changes_the_key(fields: dict[str, Any]) -> None:
    assert key(**fields).digest != key().digest


def test_marks_inside_a_tool_s_result_are_left_out() -> None:
    def asked(content: Any, **marks: Any) -> Key:
        said = [user("Weather?"), {"role": "assistant", "content": [CALL]}]
        return key(messages=[*said, user([{**RESULT, "content": content, **marks}])])

    assert asked("sunny") == asked([text("sunny", **MARK)]) == asked("sunny", **MARK)
    assert asked("rainy").digest != asked("sunny").digest


def test_a_window_never_tears_a_call_from_its_result() -> None:
    turns = [
        user("Old"), {"role": "assistant", "content": "Old."},
        user("Weather?"), {"role": "assistant", "content": [CALL]}, user([RESULT]),
    ]  # fmt: skip
    one = key(1, messages=turns)
    assert b"Weather" in one.form
    assert b"Old" not in one.form


def test_the_form_of_a_question_without_its_words() -> None:
    one, other = key(), key(messages=[user([text("What's a cache, then?")])])
    scoped, same = scope_of(one.form), scope_of(other.form)
    assert scoped is not None
    assert same is not None
    assert scoped.form == same.form
    assert (scoped.text, same.text) == ("what is a cache", "what's a cache, then")
    apart = scope_of(key(system="Answer in French.").form)
    assert apart is not None
    assert apart.form != scoped.form


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"messages": [user("Weather?"), {"role": "assistant", "content": [CALL]}, user([RESULT])]}, "tool_results"),
        ({"messages": [user("a"), {"role": "assistant", "content": "b"}]}, "no_question"),
        ({"messages": [user([text("a"), text("b")])]}, "several_texts"),
        ({"system": "Translate the user's text into German."}, "works_on_text"),
        ({"system": [text("Translate the user's text into German.", **MARK)]}, "works_on_text"),
    ],
)  # fmt: skip
def test_what_the_semantic_tier_leaves_alone(fields: dict[str, Any], reason: str) -> None:
    assert question_of(request(**fields)) == Unfit(reason)


def test_a_question_beside_an_image_is_one() -> None:
    assert question_of(request(messages=[user([IMAGE, text("What is this?")])])) == "What is this?"
