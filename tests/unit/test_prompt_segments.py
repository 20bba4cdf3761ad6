"""Segments of prompts, their estimated tokens, and digests of prefixes."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratacache.policy.prompt import segments
from stratacache.policy.prompt.segments import Chain, Segment, estimated_tokens, segments_of
from stratacache.testing.prompt_cache import blocks_of

TOOL = {
    "name": "look",
    "description": "Looks.",
    "input_schema": {"type": "object", "properties": {"b": {}, "a": {}}},
}
MARK = {"type": "ephemeral"}
MESSAGES: dict[str, Any] = {
    "tools": [TOOL, {**TOOL, "name": "see", "cache_control": MARK}],
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
    "messages": [
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Wait."},
                {"type": "tool_use", "id": "t", "name": "look", "input": {"z": 1, "a": 2}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t",
                    "content": [{"type": "text", "text": "42", "cache_control": MARK}],
                }
            ],
        },
    ],
}
CHAT: dict[str, Any] = {
    "tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}],
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "In English."}]},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Wait.", "tool_calls": [{"id": "a"}, {"id": "b"}]},
        {"role": "tool", "tool_call_id": "a", "content": "42"},
        {"role": "system", "content": "Now in French."},
    ],
}


def test_messages_form_in_the_provider_s_order() -> None:
    found = segments_of(MESSAGES, "messages")
    assert [one.name for one in found] == [
        "tools[0]",
        "tools[1]",
        "system[0]",
        "messages[0].content[0]",
        "messages[1].content[0]",
        "messages[1].content[1]",
        "messages[2].content[0]",
    ]
    assert [one.mark for one in found] == [
        None,
        MARK,
        {"type": "ephemeral", "ttl": "1h"},
        None,
        None,
        None,
        MARK,
    ]


def test_chat_form_system_messages_first_and_calls_are_positions() -> None:
    found = segments_of(CHAT, "chat")
    assert [(one.name, one.role) for one in found] == [
        ("tools[0]", ""),
        ("system[0]", "system"),
        ("system[1]", "developer"),
        ("messages[2].content[0]", "user"),
        ("messages[3].content[0]", "assistant"),
        ("messages[3].content[1]", "assistant"),
        ("messages[3].content[2]", "assistant"),
        ("messages[4].content[0]", "tool"),
        ("messages[5].content[0]", "system"),
    ]


def test_content_is_without_marks_at_every_depth() -> None:
    assert all(b"cache_control" not in one.content for one in segments_of(MESSAGES, "messages"))
    bare = segments_of({"system": "Be brief.", "messages": []}, "messages")[0]
    assert segments_of(MESSAGES, "messages")[2].content == bare.content


def test_order_inside_a_schema_is_part_of_the_prompt_that_of_the_block_is_not() -> None:
    turned = dict(reversed(TOOL.items()))
    other = {**TOOL, "input_schema": {"type": "object", "properties": {"a": {}, "b": {}}}}
    first, second, third = (segments_of({"tools": [t]}, "messages")[0].content for t in (TOOL, turned, other))
    assert first == second
    assert first != third


def test_a_mark_on_a_chat_message_is_one_on_its_last_block() -> None:
    body = {
        "messages": [
            {"role": "system", "content": "S", "cache_control": MARK},
            {"role": "user", "content": "u"},
        ]
    }
    assert [one.mark for one in segments_of(body, "chat")] == [MARK, None]


def test_the_fake_provider_sees_the_same_positions() -> None:
    ours, theirs = segments_of(MESSAGES, "messages"), blocks_of(MESSAGES)
    assert [one.kind for one in ours] == [
        block.segment.removesuffix("s") if block.segment != "system" else "system" for block in theirs
    ]
    assert [one.mark is not None for one in ours] == [block.ttl is not None for block in theirs]


@pytest.mark.parametrize(
    "junk",
    [
        {},
        {"tools": 3, "system": 4, "messages": "x"},
        {"messages": [1, None, {"role": 2}]},
        {"tools": [None], "messages": [{"content": [None, 7, "s"]}]},
    ],
)
def test_what_is_malformed_is_passed_over(junk: dict[str, Any]) -> None:
    for form in ("messages", "chat"):
        assert all(isinstance(one, Segment) for one in segments_of(junk, form))  # type: ignore[arg-type]


def test_tokens_by_bytes_of_latin_and_characters_of_han() -> None:
    assert estimated_tokens("") == 1
    assert 90 <= estimated_tokens("word " * 84) <= 110
    assert 70 <= estimated_tokens("缓" * 100) <= 74
    assert estimated_tokens("Grüße") <= 3
    picture = {
        "messages": [{"role": "user", "content": [{"type": "image", "source": {"data": "A" * 10**5}}]}]
    }
    assert segments_of(picture, "messages")[0].tokens == segments.IMAGE_TOKENS


def test_a_picture_in_a_tool_result_counts_as_a_picture() -> None:
    result = {
        "type": "tool_result",
        "content": [{"type": "image", "source": {"data": "A" * 10**5}}, {"type": "text", "text": "seen"}],
    }
    (one,) = segments_of({"messages": [{"role": "user", "content": [result]}]}, "messages")
    assert segments.IMAGE_TOKENS < one.tokens < segments.IMAGE_TOKENS + 50


def test_digests_stand_for_the_whole_prefix() -> None:
    chain = Chain()
    first = segments_of(MESSAGES, "messages")
    longer = segments_of(
        {**MESSAGES, "messages": [*MESSAGES["messages"], {"role": "assistant", "content": "42"}]}, "messages"
    )
    early = segments_of({**MESSAGES, "tools": [{**TOOL, "name": "peep"}]}, "messages")
    made = chain.digests(first, b"a")
    assert chain.digests(longer, b"a")[: len(made)] == made
    assert not set(chain.digests(early, b"a")) & set(made)
    assert not set(chain.digests(first, b"b")) & set(made)
    chain.check()


def test_where_a_message_begins_is_part_of_the_prefix() -> None:
    one = {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
        ]
    }
    two = {"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]}
    chain = Chain()
    assert chain.digests(segments_of(one, "chat"))[-1] != chain.digests(segments_of(two, "chat"))[-1]


def test_over_turns_only_the_new_segments_are_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[Segment] = []
    linked = segments._linked
    monkeypatch.setattr(segments, "_linked", lambda before, one: hashed.append(one) or linked(before, one))
    chain = Chain()
    chain.digests(segments_of(MESSAGES, "messages"), b"a")
    hashed.clear()
    longer = {**MESSAGES, "messages": [*MESSAGES["messages"], {"role": "user", "content": "and?"}]}
    chain.digests(segments_of(longer, "messages"), b"a")
    assert [one.name for one in hashed] == ["messages[3].content[0]"]


@given(st.lists(st.binary(max_size=4), max_size=40))
def test_a_small_memory_changes_no_digest(contents: list[bytes]) -> None:
    row = [Segment("message", i, 0, "user", content, 1) for i, content in enumerate(contents)]
    small, fresh = Chain(most=3), Chain()
    for _ in range(2):
        assert small.digests(row) == fresh.digests(row)
        small.check()
    before, plain = hashlib.sha256(b"").digest()[:16], []
    for one in row:
        before = hashlib.sha256(before + b"message\0user\0first\0" + one.content).digest()[:16]
        plain.append(before)
    assert small.digests(row) == plain


def test_segments_are_frozen() -> None:
    with pytest.raises(AttributeError):
        segments_of(MESSAGES, "messages")[0].tokens = 3  # type: ignore[misc]
    assert msgspec.structs.replace(segments_of(MESSAGES, "messages")[0], tokens=3).tokens == 3
