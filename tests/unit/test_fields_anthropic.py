"""Every field of the Anthropic message request is classed; a new SDK field fails here until somebody decides."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest
from anthropic.types import message_create_params as params

from stratacache.policy.fields import (
    MESSAGES,
    FieldClass,
    bypass_reason,
    classify,
    dialect,
    irrelevant_fields,
)

IN_KEY, IRRELEVANT, BYPASSES = FieldClass.IN_KEY, FieldClass.IRRELEVANT, FieldClass.BYPASSES

DECIDED: dict[str, FieldClass] = {
    "cache_control": IRRELEVANT,
    "container": BYPASSES,
    "diagnostics": IN_KEY,  # the answer compares this prompt with an earlier one, which it names
    "inference_geo": IN_KEY,
    "max_tokens": IN_KEY,
    "messages": IN_KEY,
    "metadata": IRRELEVANT,
    "model": IN_KEY,
    "output_config": IN_KEY,
    "service_tier": IN_KEY,
    "speed": IN_KEY,
    "stop_sequences": IN_KEY,
    "stream": IRRELEVANT,
    "system": IN_KEY,
    "thinking": IN_KEY,
    "tool_choice": IN_KEY,
    "tools": BYPASSES,  # in the key; tools that the provider runs bypass
}
HEADERS = {"user_profile_id", "workspace_id"}  # the SDK sends them as headers, which are in the key
EXTRAS: dict[str, FieldClass] = {
    "temperature": IN_KEY,
    "top_p": IN_KEY,
    "top_k": IN_KEY,
    "context_management": IN_KEY,
    "mcp_servers": BYPASSES,
    "a_field_of_next_year": IN_KEY,
}


def sdk_fields() -> set[str]:
    variants: list[Any] = [params.MessageCreateParamsNonStreaming, params.MessageCreateParamsStreaming]
    return {name for variant in variants for name in get_type_hints(variant)} - HEADERS


def test_every_field_of_the_sdk_is_decided() -> None:
    assert sdk_fields() - DECIDED.keys() == set(), "class these in policy/fields.py and here"


@pytest.mark.parametrize(("field", "expected"), [*DECIDED.items(), *EXTRAS.items()])
def test_the_class_is_the_one_decided(field: str, expected: FieldClass) -> None:
    assert classify(MESSAGES, field) is expected


def test_nothing_is_left_out_of_the_key_but_what_is_decided() -> None:
    decided = {**DECIDED, **EXTRAS}
    assert irrelevant_fields(MESSAGES) == {f for f, c in decided.items() if c is IRRELEVANT}


def test_every_exception_has_its_reason() -> None:
    classes = dialect(MESSAGES)
    assert all(len(proof) > 20 and "\n" not in proof for proof in classes.irrelevant.values())
    assert all(len(rule.why) > 20 and "\n" not in rule.why for rule in classes.bypasses.values())


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("tools", [{"name": "f", "input_schema": {}}], None),
        ("tools", [{"type": "custom", "name": "f", "input_schema": {}}], None),
        ("tools", [{"type": "bash_20250124", "name": "bash"}], None),
        ("tools", [{"type": "text_editor_20250728", "name": "e"}], None),
        ("tools", [{"type": "computer_20250124", "name": "c"}], None),
        ("tools", [{"type": "web_search_20250305", "name": "web_search"}], "hosted_tool"),
        ("tools", [{"type": "web_fetch_20250910", "name": "web_fetch"}], "hosted_tool"),
        ("tools", [{"type": "code_execution_20250825", "name": "x"}], "hosted_tool"),
        ("tools", [{"type": "a_tool_of_next_year", "name": "x"}], "hosted_tool"),
        ("tools", "f", "hosted_tool"),
        ("tools", None, None),
        ("container", {"id": "c"}, "engine_state"),
        ("container", None, None),
        ("mcp_servers", [{"url": "https://mcp.example"}], "hosted_tool"),
    ],
)
def test_what_must_not_be_cached(field: str, value: Any, reason: str | None) -> None:
    assert bypass_reason(MESSAGES, {"model": "m", "messages": [], field: value}) == reason
