"""The exact key: what shares an answer, what never does, and that the request stays as it was."""

from __future__ import annotations

import copy
import hashlib
from typing import Any

import msgspec
import pytest

from stratacache.policy.key import exact_key, windowed
from stratacache.types import CacheControl, Request, Scope

SYSTEM = {"role": "system", "content": "You are brief."}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def request(*messages: dict[str, Any], **changes: Any) -> Request:
    body: dict[str, Any] = {"model": "fast", "messages": list(messages) or [SYSTEM, user("What is entropy?")]}
    body |= changes.pop("body", {})
    return Request(
        **{
            "endpoint": "chat.completions",
            "model": "fast",
            "resolved_model": "m-1",
            "upstream": "local",
            "scope": Scope(),
            "control": CacheControl(),
            **changes,
            "body": body,
        }
    )


def form(*messages: dict[str, Any], **changes: Any) -> bytes:
    return exact_key(request(*messages, **changes)).form


def test_digest_is_128_bits_of_the_hash_of_the_form() -> None:
    key = exact_key(request())
    assert key.digest == hashlib.sha256(key.form).digest()[:16]
    assert len(key.digest) == 16


def test_the_form_is_readable_json_with_versions_first() -> None:
    parts = msgspec.json.decode(form())
    assert parts[0] == ["stratacache", 3, 1, None]
    assert parts[1:6] == ["chat.completions", ["local", ""], "m-1", ["default", "", "", ""], []]
    assert parts[6]["model"] == "m-1"


def test_the_request_is_not_changed() -> None:
    asked = request(SYSTEM, user("  What   is entropy ?"), user([{"type": "text", "text": " a  b "}]))
    before = copy.deepcopy(asked.body)
    exact_key(asked, history_window=1)
    assert asked.body == before


@pytest.mark.parametrize(
    "changes",
    [
        {
            "body": {"stream": True, "stream_options": {"include_usage": True}},
            "stream": True,
            "include_usage": True,
        },
        {"body": {"user": "u-7", "metadata": {"a": "b"}, "safety_identifier": "s", "prompt_cache_key": "k"}},
        {"body": {"model": "alias-of-m-1"}, "model": "alias-of-m-1"},
        {"control": CacheControl(max_age=5, tags=("a",))},
        {"conversation": "c-1"},
    ],
)
def test_what_cannot_change_the_answer_is_left_out(changes: dict[str, Any]) -> None:
    assert form(**changes) == form()


@pytest.mark.parametrize(
    "changes",
    [
        {"scope": Scope(tenant="acme")},
        {"scope": Scope(namespace="n")},
        {"scope": Scope(profile="gold")},
        {"scope": Scope(credential="c")},
        {"resolved_model": "m-2"},
        {"upstream": "pool"},
        {"endpoint": "completions"},
        {"headers": (("openai-organization", "o"),)},
        {"body": {"temperature": 0}},
        {"body": {"temperature": None}},
        {"body": {"seed": 1}},
        {"body": {"stop": ["x"]}},
        {"body": {"tools": []}},
        {"body": {"response_format": {"type": "json_object"}}},
        {"body": {"a_field_of_next_year": None}},
        {"body": {"cache_salt": "s"}},
    ],
)
def test_what_may_change_the_answer_is_in_the_key(changes: dict[str, Any]) -> None:
    assert form(**changes) != form()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (0, 0.5),
        (2**63, 2**63 + 1),
        (2**64, 2**64 + 1),
        (10**30, 10**30 + 1),
        (True, 1),
        (None, 0),
        ("1", 1),
        ([], {}),
        ([[1], 2], [1, [2]]),
        ("a\u0000", "a"),
        ({"a": {"b": 1}}, {"a": 1, "b": 1}),
    ],
)
def test_values_that_differ_do_not_collide(one: Any, other: Any) -> None:
    assert form(body={"seed": one}) != form(body={"seed": other})


def test_only_user_prose_is_normalised() -> None:
    assert form(user("  What is  entropy ?")) == form(user("what is entropy"))
    for role in ("system", "developer", "assistant", "tool"):
        assert form({"role": role, "content": "What is  it ?"}) != form(
            {"role": role, "content": "What is it?"}
        )


def test_text_parts_are_normalised_and_other_parts_kept() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://a.test/x  y"}}
    other = {"type": "image_url", "image_url": {"url": "https://a.test/x y"}}
    asked = form(user([{"type": "text", "text": "What is  this ?"}, image]))
    assert asked == form(user([{"type": "text", "text": "what is this"}, image]))
    assert asked != form(user([{"type": "text", "text": "what is this"}, other]))
    assert asked != form(user([image, {"type": "text", "text": "what is this"}]))


def test_a_string_and_its_one_part_list_stay_apart() -> None:
    """Chat templates may render a list of parts in another way than a string."""
    assert form(user("hi")) != form(user([{"type": "text", "text": "hi"}]))


@pytest.mark.parametrize(
    "content", [None, 5, [], ["x"], [{"type": "text", "text": 5}], [{"type": "text"}], {"a": 1}]
)
def test_odd_contents_are_kept_as_they_are(content: Any) -> None:
    assert msgspec.json.decode(form(user(content)))[6]["messages"] == [user(content)]


@pytest.mark.parametrize("messages", [None, "x", ["x", 5, None], [{"content": "x"}], [{"role": "user"}]])
def test_odd_messages_are_kept_as_they_are(messages: Any) -> None:
    assert msgspec.json.decode(form(body={"messages": messages}))[6]["messages"] == messages


def test_the_name_and_all_turns_are_in_the_key() -> None:
    turns = [user("Hi"), {"role": "assistant", "content": "Hello"}, user("Why?")]
    assert form({**user("Hi"), "name": "bob"}) != form(user("Hi"))
    assert form(*turns) != form(*turns[1:])
    assert form(*turns) != form(turns[0], {"role": "assistant", "content": "Hallo"}, turns[2])


@pytest.mark.parametrize("role", ["system", "developer"])
def test_under_a_translator_the_users_text_is_material(role: str) -> None:
    translator = {"role": role, "content": "Translate the user's message into French."}
    parts = {"role": role, "content": [{"type": "text", "text": translator["content"]}]}
    for instruction in (translator, parts):
        assert form(instruction, user("You came.")) != form(instruction, user("You came"))
        assert form(instruction, user("You came. ")) == form(instruction, user("You came."))


def test_a_question_about_form_makes_later_turns_material() -> None:
    earlier = [user("Spell-check what I send: any typos?"), {"role": "assistant", "content": "Go on."}]
    assert form(*earlier, user("You came.")) != form(*earlier, user("You came"))


@pytest.mark.parametrize("field", ["echo", "prompt_logprobs", "return_token_ids", "continue_final_message"])
def test_when_the_answer_shows_the_prompt_its_bytes_count(field: str) -> None:
    assert form(user("hi "), body={field: 1}) != form(user("hi"), body={field: 1})
    assert form(user("hi "), body={field: False}) == form(user("hi"), body={field: False})


def test_other_endpoints_are_taken_to_the_byte() -> None:
    assert form(user("hi "), endpoint="telepathy") != form(user("hi"), endpoint="telepathy")


def test_the_order_of_forwarded_headers_does_not_matter() -> None:
    pair = (("a", "1"), ("b", "2"))
    assert form(headers=pair) == form(headers=pair[::-1])


def test_lone_surrogates_have_keys_of_their_own() -> None:
    keys = {form(user(text)) for text in ("\ud800", "\udfff", "\\ud800", "?", "")}
    assert len(keys) == 5


CALL = {"role": "assistant", "tool_calls": [{"id": "t", "type": "function", "function": {"name": "f"}}]}
RESULT = {"role": "tool", "tool_call_id": "t", "content": "42"}
ANSWER = {"role": "assistant", "content": "It is 42."}
HISTORY = [SYSTEM, user("one"), ANSWER, user("two"), CALL, RESULT, ANSWER, user("three")]


@pytest.mark.parametrize(
    ("turns", "kept"),
    [(1, [0, 7]), (2, [0, 3, 4, 5, 6, 7]), (3, [0, 1, 2, 3, 4, 5, 6, 7]), (9, [0, 1, 2, 3, 4, 5, 6, 7])],
)
def test_a_window_keeps_the_system_prompt_and_whole_turns(turns: int, kept: list[int]) -> None:
    assert windowed(HISTORY, turns) == [HISTORY[i] for i in kept]


def test_a_pending_tool_result_belongs_to_its_turn() -> None:
    assert windowed(HISTORY[:6], 1) == [SYSTEM, *HISTORY[3:6]]


def test_windows_share_what_they_drop_but_not_each_other() -> None:
    other = [SYSTEM, user("zero"), *HISTORY[2:]]
    assert exact_key(request(*HISTORY), history_window=2) == exact_key(request(*other), history_window=2)
    assert exact_key(request(*HISTORY), history_window=3) != exact_key(request(*other), history_window=3)
    assert len({exact_key(request(*HISTORY), history_window=w) for w in (None, 3, 9)}) == 3


def test_a_window_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        exact_key(request(*HISTORY), history_window=0)
