"""Prefix blocks: prompts that begin alike have blocks that begin alike, and no others."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stratacache.policy.prefix_blocks import BLOCK_BYTES, MAX_BLOCKS, prefix_blocks

LONG = "All trains to the coast leave from platform nine. " * 20


def chat(*texts: str, **fields: Any) -> dict[str, Any]:
    roles = ("system", "user", "assistant", "user", "assistant", "user")
    return {"messages": [{"role": r, "content": t} for r, t in zip(roles, texts, strict=False)], **fields}


@given(st.lists(st.text(max_size=400), min_size=1, max_size=4), st.text(max_size=400))
def test_a_next_turn_keeps_all_blocks(texts: list[str], more: str) -> None:
    before, after = prefix_blocks(chat(*texts), "m"), prefix_blocks(chat(*texts, more), "m")
    assert after[: len(before)] == before


def test_what_differs_first_ends_what_is_shared() -> None:
    one, other = prefix_blocks(chat(LONG, LONG + "a"), "m"), prefix_blocks(chat(LONG, "b" + LONG), "m")
    shared = sum(a == b for a, b in zip(one, other, strict=False))
    assert shared == len(LONG.encode()) // BLOCK_BYTES
    assert one[shared:] != other[shared:]


def test_another_root_shares_nothing() -> None:
    assert not set(prefix_blocks(chat(LONG), "m\0salt-1")) & set(prefix_blocks(chat(LONG), "m\0salt-2"))


def test_tools_stand_before_messages_and_fields_of_other_dialects_count() -> None:
    tools = [{"type": "function", "function": {"name": "f", "description": LONG}}]
    assert prefix_blocks(chat("x", tools=tools), "m")[:2] == prefix_blocks(chat("y", tools=tools), "m")[:2]
    for body in (
        {"prompt": LONG},
        {"input": LONG},
        {"instructions": LONG},
        {"system": [{"text": LONG}], "messages": []},
    ):
        assert len(prefix_blocks(body, "m")) >= len(LONG) // BLOCK_BYTES


def test_parts_keep_their_bounds() -> None:
    assert prefix_blocks(chat(LONG + "ab", "c" + LONG), "m") != prefix_blocks(
        chat(LONG + "a", "bc" + LONG), "m"
    )


def test_the_number_of_blocks_is_bounded() -> None:
    assert len(prefix_blocks(chat("x" * (BLOCK_BYTES * MAX_BLOCKS * 2)), "m")) == MAX_BLOCKS
    assert prefix_blocks({}, "m") == []
    assert prefix_blocks(chat("short"), "m") == []
