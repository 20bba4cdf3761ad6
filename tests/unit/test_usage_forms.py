"""Every provider's token counts in one form: what each field means, and what is not counted."""

from __future__ import annotations

from typing import Any

import pytest

from stratacache.dialects.convert_answers import chat_usage, message_usage
from stratacache.dialects.usage import MAX_TOKENS, usage_of
from stratacache.types import Usage

FORMS: dict[str, tuple[dict[str, Any], Usage]] = {
    "openai": (
        {"usage": {"prompt_tokens": 2006, "completion_tokens": 300, "prompt_tokens_details": {"cached_tokens": 1920}}},
        Usage(2006, 300, 1920),
    ),
    "openai with writes": (
        {"usage": {"prompt_tokens": 2000, "completion_tokens": 3,
                   "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 1792}}},
        Usage(2000, 3, 0, 1792),
    ),
    "openai, nothing told of the cache": (
        {"usage": {"prompt_tokens": 7, "completion_tokens": 1, "prompt_tokens_details": None}},
        Usage(7, 1),
    ),
    "responses": (
        {"object": "response",
         "usage": {"input_tokens": 2006, "output_tokens": 9, "input_tokens_details": {"cached_tokens": 1920}}},
        Usage(2006, 9, 1920),
    ),
    "anthropic": (
        {"usage": {"input_tokens": 50, "output_tokens": 503, "cache_read_input_tokens": 100_000,
                   "cache_creation_input_tokens": 248}},
        Usage(100_298, 503, 100_000, 248),
    ),
    "anthropic, two lives": (
        {"usage": {"input_tokens": 5, "output_tokens": 1, "cache_read_input_tokens": 0,
                   "cache_creation_input_tokens": 556,
                   "cache_creation": {"ephemeral_5m_input_tokens": 456, "ephemeral_1h_input_tokens": 100}}},
        Usage(561, 1, 0, 456, 100),
    ),
    "deepseek": (
        {"usage": {"prompt_tokens": 100, "completion_tokens": 2, "prompt_cache_hit_tokens": 64,
                   "prompt_cache_miss_tokens": 36}},
        Usage(100, 2, 64),
    ),
    "qwen, explicit cache": (
        {"usage": {"prompt_tokens": 1500, "completion_tokens": 2,
                   "prompt_tokens_details": {"cached_tokens": 0, "cache_creation_input_tokens": 1494,
                                             "cache_creation": {"ephemeral_5m_input_tokens": 1494}}}},
        Usage(1500, 2, 0, 1494),
    ),
    "gemini": (
        {"usageMetadata": {"promptTokenCount": 4000, "cachedContentTokenCount": 3000, "candidatesTokenCount": 10,
                           "thoughtsTokenCount": 5}},
        Usage(4000, 15, 3000),
    ),
    "bedrock": (
        {"usage": {"inputTokens": 11, "outputTokens": 4, "totalTokens": 1515, "cacheReadInputTokens": 1000,
                   "cacheWriteInputTokens": 500, "cacheDetails": [{"ttl": "1h", "inputTokens": 200}]}},
        Usage(1511, 4, 1000, 300, 200),
    ),
    "vllm without prompt details": (
        {"usage": {"prompt_tokens": 12, "completion_tokens": 4, "prompt_tokens_details": None}}, Usage(12, 4)
    ),
    "llama.cpp": (
        {"usage": {"prompt_tokens": 300, "completion_tokens": 4},
         "timings": {"cache_n": 236, "prompt_n": 64, "prompt_ms": 30.9}},
        Usage(300, 4, 236),
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_each_provider_s_fields_mean_what_its_reference_says(form: str) -> None:
    answer, expected = FORMS[form]
    assert usage_of(answer) == expected


def test_what_is_not_reported_is_not_zero() -> None:
    assert (
        usage_of({}) == usage_of({"usage": None}) == usage_of({"usage": {"output_tokens": None}}) == Usage()
    )
    zero = {"input_tokens": 0, "output_tokens": 0, "cache_read_input_tokens": 0}
    assert usage_of({"usage": zero}) == Usage(0, 0, 0)
    assert usage_of({"usage": zero}).written is None
    assert usage_of({"usage": {"prompt_tokens": 3}}).cached_prompt is None


@pytest.mark.parametrize("odd", [-1, True, 1.0, "3", None, [], {}, MAX_TOKENS + 1, 10**40])
def test_what_is_no_count_is_not_counted(odd: object) -> None:
    assert usage_of({"usage": {"prompt_tokens": odd, "completion_tokens": odd}}) == Usage()
    part = {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": odd, "cache_write_tokens": odd}}
    assert usage_of({"usage": part}) == Usage(9)
    read = {"input_tokens": 9, "cache_read_input_tokens": odd, "cache_creation_input_tokens": odd}
    assert usage_of({"usage": read}) == Usage(9)


def test_parts_that_exceed_the_prompt_are_not_counted() -> None:
    details = {"cached_tokens": 8, "cache_write_tokens": 3}
    assert usage_of({"usage": {"prompt_tokens": 10, "prompt_tokens_details": details}}) == Usage(10)
    lives = {"ephemeral_5m_input_tokens": 1, "ephemeral_1h_input_tokens": 99}
    told = {"input_tokens": 1, "cache_creation_input_tokens": 10, "cache_creation": lives}
    assert usage_of({"usage": told}) == Usage(11, None, None, 10)


def test_conversion_carries_the_counts_both_ways_and_survives_nonsense() -> None:
    anthropic = {
        "input_tokens": 5,
        "output_tokens": 2,
        "cache_read_input_tokens": 7,
        "cache_creation_input_tokens": 11,
    }
    there = chat_usage(anthropic)
    assert there["prompt_tokens"] == 23
    assert there["prompt_tokens_details"] == {"cached_tokens": 7, "cache_write_tokens": 11}
    assert message_usage(there) == anthropic
    assert chat_usage({"input_tokens": "5", "cache_read_input_tokens": "x"})["prompt_tokens"] == 0
    assert message_usage({"prompt_tokens": "a", "prompt_tokens_details": {"cached_tokens": "b"}}) == {
        "input_tokens": 0,
        "output_tokens": 0,
    }
