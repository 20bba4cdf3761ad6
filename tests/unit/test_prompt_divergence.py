"""Each fault that breaks prefixes in practice is found, with its place, its cause and its cost."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from stratacache.policy.prompt.divergence import CAUSES, Divergence
from stratacache.policy.prompt.lineage import MOST_RECENT, Lineages, Seen
from stratacache.policy.prompt.segments import segments_of

RULES_TEXT = "Answer in one sentence and cite the page. " * 60


def tool(name: str, **properties: Any) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": properties or {"a": {"type": "string"}, "b": {"type": "integer"}},
    }
    return {
        "name": name,
        "description": f"Does {name} with care. " * 10,
        "input_schema": {**schema, "required": ["a", "b"]},
    }


def body(
    *messages: Any, system: str = RULES_TEXT, tools: list[Any] | None = None, **more: Any
) -> dict[str, Any]:
    made = {"model": "claude-sonnet-5", "system": system, "messages": list(messages) or [USER], **more}
    return made if tools is None else {**made, "tools": tools}


USER = {"role": "user", "content": "What does page 3 say?"}
NEXT = {"role": "user", "content": "And page 4?"}
CALL = {
    "role": "assistant",
    "content": [{"type": "tool_use", "id": "t1", "name": "x", "input": {"page": 3, "part": "b"}}],
}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "It says so."}]}


@pytest.fixture
def lineages() -> Iterator[Lineages]:
    made = Lineages()
    yield made
    made.check()


def second(
    lineages: Lineages, *bodies: dict[str, Any], conversation: str = "c", form: Any = "messages"
) -> Divergence | None:
    """What is found of the last of ``bodies``."""
    found = None
    for one in bodies:
        found = lineages.follow("acme", conversation, segments_of(one, form), one)
    return found


def test_a_conversation_that_goes_on_does_not_diverge(lineages: Lineages) -> None:
    assert second(lineages, body(USER), body(USER, CALL, RESULT), body(USER, CALL, RESULT, NEXT)) is None


def test_the_same_request_again_does_not_diverge(lineages: Lineages) -> None:
    assert second(lineages, body(USER, CALL, RESULT), body(USER, CALL, RESULT), body(USER)) is None


@pytest.mark.parametrize(
    ("template", "values", "cause"),
    [
        ("Current Date & Time: {} ", ("2026-12-03T14:05:12.919Z", "2026-12-03T14:05:14.120Z"), "clock"),
        ("当前时间：{}。", ("2026年12月3日 下午3点20分", "2026年12月3日 下午3点21分"), "clock"),
        (
            "x-billing: session_id={}; ",
            ("0f8fad5b-d9cb-469f-a165-70867728950e", "7c9e6679-7425-40de-944b-e07fc1f90ae7"),
            "id",
        ),
        ("Request ID: {}\n", ("ab12-cd34", "ef56-ab78"), "id"),
        ("User: {}\n", ("Anna Smith", "Bob Jones"), "name"),
        ("Notes so far: {}. ", ("likes trains", "likes trains and ships"), "system"),
    ],
)
def test_text_rewritten_first_in_the_system_prompt(
    lineages: Lineages, template: str, values: tuple[str, str], cause: str
) -> None:
    first, other = (body(USER, system=template.format(value) + RULES_TEXT) for value in values)
    found = second(lineages, first, other)
    assert found is not None
    assert (found.cause, found.segment, found.kept) == (cause, "system[0]", 0)
    assert found.lost > 550
    assert not any(value in found.excerpt for value in values)


def test_the_offset_is_right_to_within_a_piece(lineages: Lineages) -> None:
    before = "Be brief. " * 100
    found = second(
        lineages, body(USER, system=before + "Now: 14:05:12"), body(USER, system=before + "Now: 14:06:12")
    )
    assert found is not None
    assert found.cause == "clock"
    assert found.offset <= 1000 + len('{"text":"Now: 14:0') <= found.offset + 128 + 1


def test_tools_in_random_order_after_a_reconnect(lineages: Lineages) -> None:
    tools = [tool(name) for name in "abcdef"]
    found = second(lineages, body(tools=tools), body(tools=random.Random(4).sample(tools, 6)))
    assert found is not None
    assert (found.cause, found.part) == ("tool_order", "tools")


@pytest.mark.parametrize("place", ["properties", "required"])
def test_schema_members_in_another_order(lineages: Lineages, place: str) -> None:
    one, other = tool("a"), tool("a")
    schema = other["input_schema"]
    turned = schema[place]
    schema[place] = dict(reversed(turned.items())) if isinstance(turned, dict) else turned[::-1]
    found = second(lineages, body(tools=[one]), body(tools=[other]))
    assert found is not None
    assert (found.cause, found.segment) == ("schema_order", "tools[0]")


def test_another_set_of_tools(lineages: Lineages) -> None:
    found = second(lineages, body(tools=[tool("a")]), body(tools=[tool("a"), tool("b")]))
    assert found is not None
    assert (found.cause, found.segment) == ("tools", "tools[1]")


def test_arguments_serialised_again_in_another_order(lineages: Lineages) -> None:
    turned = {**CALL, "content": [{**CALL["content"][0], "input": {"part": "b", "page": 3}}]}
    found = second(lineages, body(USER, CALL, RESULT), body(USER, turned, RESULT, NEXT))
    assert found is not None
    assert (found.cause, found.segment) == ("argument_order", "messages[1].content[0]")


def test_a_template_that_drops_the_thinking_of_earlier_turns(lineages: Lineages) -> None:
    thought = {"type": "thinking", "thinking": "The page is known.", "signature": "s"}
    said = {"type": "text", "text": "It says so."}
    kept = {"role": "assistant", "content": [thought, said]}
    found = second(lineages, body(USER, kept), body(USER, {"role": "assistant", "content": [said]}, NEXT))
    assert found is not None
    assert (found.cause, found.segment) == ("thinking", "messages[1].content[0]")


def test_reasoning_dropped_in_the_chat_form(lineages: Lineages) -> None:
    said = {"role": "assistant", "content": "It says so."}
    first = {"messages": [USER, {**said, "reasoning_content": "The page is known."}, NEXT]}
    found = second(lineages, first, {"messages": [USER, said, NEXT, said, USER]}, form="chat")
    assert found is not None
    assert found.cause == "thinking"


def test_an_edited_history(lineages: Lineages) -> None:
    found = second(lineages, body(USER, CALL, RESULT), body({**USER, "content": "Summary: pages."}, RESULT))
    assert found is not None
    assert found.cause == "history"


@pytest.mark.parametrize(
    ("name", "value"), [("tool_choice", {"type": "any"}), ("thinking", {"type": "enabled"})]
)
def test_settings_void_the_messages_only(lineages: Lineages, name: str, value: Any) -> None:
    found = second(lineages, body(USER, CALL, RESULT), body(USER, CALL, RESULT, **{name: value}))
    assert found is not None
    assert (found.cause, found.segment) == ("settings", name)
    assert found.kept > found.lost > 0


def test_another_model_voids_all(lineages: Lineages) -> None:
    found = second(lineages, body(USER), {**body(USER), "model": "claude-opus-5"})
    assert found is not None
    assert (found.cause, found.kept) == ("model", 0)


def test_without_a_name_a_conversation_is_known_by_its_first_message(lineages: Lineages) -> None:
    first, other = (body(USER, system=f"Now: 14:05:{n} {RULES_TEXT}") for n in (12, 13))
    found = second(lineages, first, other, conversation="")
    assert found is not None
    assert found.cause == "clock"


def test_a_new_conversation_is_held_against_others_with_such_a_head(lineages: Lineages) -> None:
    first, other = (
        body({**USER, "content": f"Question {n}"}, system=f"Now: 14:05:{n} {RULES_TEXT}") for n in (12, 13)
    )
    found = second(lineages, first, other, conversation="")
    assert found is not None
    assert (found.cause, found.part) == ("clock", "system")


def test_conversations_that_open_alike_are_not_edits_of_each_other(lineages: Lineages) -> None:
    answers = ({"role": "assistant", "content": text} for text in ("Yes.", "No."))
    assert second(lineages, *(body(USER, one, NEXT) for one in answers), conversation="") is None


def test_no_owner_learns_from_another(lineages: Lineages) -> None:
    first, other = (body(USER, system=f"Now: 14:05:{n} {RULES_TEXT}") for n in (12, 13))
    lineages.follow("acme", "c", segments_of(first, "messages"), first)
    assert lineages.follow("zeta", "c", segments_of(other, "messages"), other) is None


def test_what_is_kept_is_bounded_and_holds_no_text() -> None:
    lineages = Lineages(most_segments=40)
    for n in range(200):
        one = body(USER, CALL, RESULT, system=f"Secret {n} {RULES_TEXT}")
        lineages.follow("acme", f"c{n}", segments_of(one, "messages"), one)
        lineages.check()
    kept = repr(vars(lineages)["_earlier"]) + repr(vars(vars(lineages)["_prints"]))
    assert "Secret" not in kept
    assert "page" not in kept


def test_only_the_last_divergences_are_listed(lineages: Lineages) -> None:
    for n in range(MOST_RECENT + 5):
        lineages.note(Seen(float(n), "m", "acme", Divergence("system[0]", 0, 0, 1, "clock")))
    assert lineages.recent[0].at == 5.0
    assert len(lineages.recent) == MOST_RECENT


def test_causes_are_a_short_list_of_words() -> None:
    assert set(CAUSES) >= {"clock", "id", "tool_order", "schema_order", "thinking", "history", "model"}
