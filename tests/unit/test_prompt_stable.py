"""What is volatile in a prompt, and where it goes."""

from __future__ import annotations

from typing import Any

import pytest

from stratacache.policy.prompt.stable import Options, canonical_schema, canonical_tools, stabilise
from stratacache.policy.prompt.volatile import volatile_in

MOVE = Options(relocate_volatile=True)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Current Date & Time: 2026-12-03T14:05:12.919Z. Hi", [("clock", "2026-12-03T14:05:12.919Z")]),
        ("Today is Thursday, December 3, 2026.", [("clock", "Thursday, December 3, 2026")]),
        ("The current time is 2024-05-15 15:00:00 EST.", [("clock", "2024-05-15 15:00:00 EST")]),
        ("It is now 3:05 PM", [("clock", "3:05 PM")]),
        ("As of 1764770000", [("clock", "1764770000")]),
        ("今天是2026年12月3日。", [("clock", "2026年12月3日")]),
        (
            "当前时间：2026年12月3日 星期四 下午3点20分，请回答",
            [("clock", "2026年12月3日 星期四 下午3点20分")],
        ),
        ("二〇二六年十二月三日下午三点", [("clock", "二〇二六年十二月三日下午三点")]),
        ("现在是下午3点", [("clock", "下午3点")]),
        (
            "x-anthropic-billing-header: session_id=0f8fad5b-d9cb-469f-a165-70867728950e",
            [("id", "0f8fad5b-d9cb-469f-a165-70867728950e")],
        ),
        ("Request ID: abc-99187", [("id", "abc-99187")]),
        ("trace-8f14e45fceea", [("id", "trace-8f14e45fceea")]),
        ("请求编号：A-2231", [("id", "A-2231")]),
        ("User: Anna Smith\nBe kind", [("name", "Anna Smith")]),
        ("You are talking to Bob Jones today.", [("name", "Bob Jones")]),
        ("用户：张三\n客服", [("name", "张三")]),
        ("Open 9:00-17:00 daily. The policy of 2024-05-15 stands.", []),
        ("User: {name}\nsteps: version 1.2.3 of 12.5.2024, may 5 be", []),
        ("Each user can pay with at most 3 cards. Call 18001234567.", []),
        ("退货政策自2024年5月15日起生效", []),
    ],
)
def test_what_is_volatile(text: str, found: list[tuple[str, str]]) -> None:
    assert [(one.kind, one.text) for one in volatile_in(text)] == found
    assert all(text[one.start : one.end] == one.text for one in volatile_in(text))


def test_the_moved_text_is_told_at_the_end_of_the_users_last_message() -> None:
    body = {
        "system": "Now: 2026-12-03 14:05:12. You help User.",
        "messages": [{"role": "user", "content": "Hi"}],
    }
    made, _ = stabilise(body, "messages", MOVE)
    assert made["system"] == "Now: [value 1, see the end of the user's last message]. You help User."
    assert made["messages"][0]["content"] == [
        {"type": "text", "text": "Hi"},
        {"type": "text", "text": "(For the system prompt:\nvalue 1: 2026-12-03 14:05:12)"},
    ]


def test_the_note_is_chinese_where_the_prompt_is() -> None:
    body = {
        "messages": [
            {"role": "system", "content": "现在是2026年12月3日下午3点。"},
            {"role": "user", "content": "你好"},
        ]
    }
    made, _ = stabilise(body, "chat", MOVE)
    assert made["messages"][0]["content"] == "现在是[值1，见最后一条用户消息末尾]。"
    assert made["messages"][1]["content"][-1]["text"] == "（系统提示中的值：\n值1：2026年12月3日下午3点）"


def test_no_text_is_put_behind_tool_results() -> None:
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "42"}]}
    asked = {"role": "user", "content": "Hi"}
    body: dict[str, Any] = {"system": "Now: 2026-12-03 14:05:12", "messages": [asked, result]}
    made, _ = stabilise(body, "messages", MOVE)
    assert made["messages"][1] == result
    assert "2026-12-03 14:05:12" in made["messages"][0]["content"][-1]["text"]
    assert stabilise({**body, "messages": [result]}, "messages", MOVE)[0]["system"] == body["system"]


def test_a_schema_in_one_order_with_what_an_order_means_something_to_kept() -> None:
    schema = {
        "type": "object",
        "required": ["z", "a"],
        "properties": {
            "z": {"enum": ["b", "a"], "type": "string"},
            "enum": {"type": "object", "default": {"y": 1, "x": 2}, "properties": {"b": {}, "a": {}}},
            "a": {"anyOf": [{"type": "null"}, {"type": "array", "prefixItems": [{"z": 1}, {"a": 1}]}]},
        },
    }
    made = canonical_schema(schema)
    assert list(made) == ["properties", "required", "type"]
    assert made["required"] == ["a", "z"]
    assert list(made["properties"]) == ["a", "enum", "z"]
    assert made["properties"]["z"]["enum"] == ["b", "a"]
    assert list(made["properties"]["enum"]["default"]) == ["y", "x"]
    assert list(made["properties"]["enum"]["properties"]) == ["a", "b"]
    assert made["properties"]["a"]["anyOf"][1]["prefixItems"] == [{"z": 1}, {"a": 1}]


def test_a_strict_tool_keeps_the_order_that_it_answers_in() -> None:
    schema = {"type": "object", "properties": {"thought": {}, "answer": {}}}
    (made,) = canonical_tools(
        [{"type": "function", "function": {"strict": True, "name": "f", "parameters": schema}}]
    )
    assert list(made["function"]["parameters"]["properties"]) == ["thought", "answer"]


def test_marks_stay_at_their_positions() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    made = canonical_tools([{"name": "b"}, {"name": "a", **mark}])
    assert made == [{"name": "a"}, {"name": "b", **mark}]
