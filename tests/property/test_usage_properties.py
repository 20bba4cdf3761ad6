"""Of any JSON: the parts of a prompt add up to it, and nothing that is no count is counted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratacache.dialects.convert_answers import chat_usage, message_usage
from stratacache.dialects.usage import MAX_TOKENS, usage_of
from stratacache.policy.prices import bill
from stratacache.settings import Price
from stratacache.types import Usage

NAMES = (
    "prompt_tokens", "completion_tokens", "prompt_tokens_details", "cached_tokens", "cache_write_tokens",
    "cache_creation_input_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens", "cache_creation",
    "ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens", "input_tokens", "input_tokens_details", "output_tokens",
    "inputTokens", "outputTokens", "cacheReadInputTokens", "cacheWriteInputTokens", "cacheDetails", "ttl",
    "promptTokenCount", "cachedContentTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "cache_n", "usage",
    "usageMetadata", "timings",
)  # fmt: skip

leaves = (
    st.none() | st.booleans() | st.floats(allow_nan=True) | st.text(max_size=3) | st.integers()
    | st.integers(-3, 40) | st.sampled_from(["1h", MAX_TOKENS, MAX_TOKENS + 1])
)  # fmt: skip
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=8),
    max_leaves=24,
)
objects = st.dictionaries(st.sampled_from(NAMES), values, max_size=10)
answers = (
    st.builds(
        lambda usage, beside: {**beside, "usage": usage},
        objects,
        st.dictionaries(st.sampled_from(NAMES), values),
    )
    | objects
)


def counts(usage: Usage) -> list[int | None]:
    return [usage.prompt, usage.completion, usage.cached_prompt, usage.written_5m, usage.written_1h]


@given(answers)
def test_read_and_written_and_fresh_are_the_whole_prompt(answer: dict[str, Any]) -> None:
    usage = usage_of(answer)
    for count in counts(usage):
        assert count is None or (type(count) is int and 0 <= count <= MAX_TOKENS * 2)
    if usage.prompt is None:
        assert usage.fresh is usage.cached_prompt is usage.written is None
    else:
        assert usage.fresh is not None
        assert usage.fresh >= 0
        assert usage.fresh + (usage.cached_prompt or 0) + (usage.written or 0) == usage.prompt


@given(objects)
def test_conversion_neither_fails_nor_changes_the_counts(told: dict[str, Any]) -> None:
    usage = usage_of({"usage": told})
    for other in (usage_of({"usage": chat_usage(told)}), usage_of({"usage": message_usage(told)})):
        assert (other.prompt, other.completion) == (usage.prompt or 0, usage.completion or 0)
        assert (other.cached_prompt, other.written) == (usage.cached_prompt, usage.written)


prices = st.builds(
    Price,
    model=st.just("m"),
    input=st.floats(0, 100),
    output=st.floats(0, 100),
    read=st.floats(0, 1),
    write_5m=st.floats(1, 2),
    write_1h=st.floats(1, 3),
)


@given(answers, prices)
def test_a_bill_is_what_the_call_would_have_cost_uncached_less_what_reading_saved(
    answer: dict[str, Any], price: Price
) -> None:
    usage = usage_of(answer)
    charged = bill(price, usage)
    if usage.prompt is None:
        assert charged is None
        return
    assert charged is not None
    uncached = (usage.prompt * price.input + (usage.completion or 0) * price.output) / 1e6
    assert charged.spent - charged.write_premium + charged.read_saved == pytest.approx(
        uncached, rel=1e-9, abs=1e-12
    )
    assert min(charged.spent, charged.write_premium, charged.read_saved, charged.prompt_at_list) >= 0
