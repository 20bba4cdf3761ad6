"""Token counts of every provider in one form: read + written + fresh = the whole prompt; unreported is None, not 0.

Which form it is shows in the names of the fields, so one function reads them all. Pure. Sources: the providers' API
references, as of 2026-12.

============================  ===================  ==========================================================  ========
form                          prompt               of it, read from and written to the provider's cache        includes
============================  ===================  ==========================================================  ========
OpenAI, vLLM, SGLang, Qwen,   ``prompt_tokens``    ``prompt_tokens_details``: ``cached_tokens``,               yes
Gemini's OpenAI API                                ``cache_write_tokens``, ``cache_creation_input_tokens``
DeepSeek                      ``prompt_tokens``    ``prompt_cache_hit_tokens``                                 yes
llama.cpp                     ``prompt_tokens``    ``timings.cache_n`` beside ``usage``                        yes
OpenAI's Responses            ``input_tokens``     ``input_tokens_details``: as OpenAI's                       yes
Anthropic                     ``input_tokens``     ``cache_read_input_tokens``,                                no
                                                   ``cache_creation_input_tokens``, ``cache_creation``
Bedrock's Converse            ``inputTokens``      ``cacheReadInputTokens``, ``cacheWriteInputTokens``,        no
                                                   ``cacheDetails``
Gemini                        ``promptTokenCount``  ``cachedContentTokenCount``                                yes
============================  ===================  ==========================================================  ========

"Includes" says whether the prompt's count holds what was read and written already.
"""

from __future__ import annotations

from collections.abc import Mapping

from stratacache.types import JSON, Usage

MAX_TOKENS = 100_000_000
"""Of one call. No model takes a prompt of that length: a larger count is a fault, and is not counted."""

_NOTHING: Mapping[str, JSON] = {}


def usage_of(answer: Mapping[str, JSON]) -> Usage:
    """The token counts of a whole answer, whatever provider gave it; nothing that is no count is counted."""
    usage = _object(answer, "usage")
    if "prompt_tokens" in usage:
        return _openai(usage, _object(answer, "timings"))
    if "input_tokens" in usage:
        return _responses(usage) if "input_tokens_details" in usage else _anthropic(usage)
    if "inputTokens" in usage:
        return _bedrock(usage)
    told = _object(answer, "usageMetadata")
    if "promptTokenCount" in told:
        return _gemini(told)
    completions = (usage.get(name) for name in ("completion_tokens", "output_tokens", "outputTokens"))
    return Usage(completion=_first(*completions))


def _openai(usage: Mapping[str, JSON], timings: Mapping[str, JSON]) -> Usage:
    details = _object(usage, "prompt_tokens_details")
    read = _first(
        details.get("cached_tokens"),
        usage.get("prompt_cache_hit_tokens"),
        usage.get("cache_read_input_tokens"),
        timings.get("cache_n"),
    )
    written = _first(
        details.get("cache_write_tokens"),
        details.get("cache_creation_input_tokens"),
        usage.get("cache_creation_input_tokens"),
    )
    lives = _object(details, "cache_creation") or _object(usage, "cache_creation")
    return _whole(
        _count(usage["prompt_tokens"]), _count(usage.get("completion_tokens")), read, *_lives(written, lives)
    )


def _responses(usage: Mapping[str, JSON]) -> Usage:
    details = _object(usage, "input_tokens_details")
    written = _count(details.get("cache_write_tokens"))
    return _whole(
        _count(usage["input_tokens"]),
        _count(usage.get("output_tokens")),
        _count(details.get("cached_tokens")),
        written,
        None,
    )


def _anthropic(usage: Mapping[str, JSON]) -> Usage:
    read = _count(usage.get("cache_read_input_tokens"))
    written = _count(usage.get("cache_creation_input_tokens"))
    parts = _lives(written, _object(usage, "cache_creation"))
    return _joined(_count(usage["input_tokens"]), _count(usage.get("output_tokens")), read, *parts)


def _bedrock(usage: Mapping[str, JSON]) -> Usage:
    written, lives = _count(usage.get("cacheWriteInputTokens")), usage.get("cacheDetails")
    told: dict[str, JSON] = {}
    for one in lives if type(lives) is list else ():
        if type(one) is dict and one.get("ttl") == "1h":
            told["ephemeral_1h_input_tokens"] = one.get("inputTokens")
    read = _count(usage.get("cacheReadInputTokens"))
    return _joined(
        _count(usage["inputTokens"]), _count(usage.get("outputTokens")), read, *_lives(written, told)
    )


def _gemini(told: Mapping[str, JSON]) -> Usage:
    said, thought = _count(told.get("candidatesTokenCount")), _count(told.get("thoughtsTokenCount"))
    completion = None if said is None else said + (thought or 0)
    read = _count(told.get("cachedContentTokenCount"))
    return _whole(_count(told["promptTokenCount"]), completion, read, None, None)


def _joined(
    fresh: int | None, completion: int | None, read: int | None, short: int | None, long: int | None
) -> Usage:
    """Of a provider that counts the prompt without what its cache read and wrote."""
    prompt = None if fresh is None else fresh + (read or 0) + (short or 0) + (long or 0)
    return _whole(_count(prompt), completion, read, short, long)


def _whole(
    prompt: int | None, completion: int | None, read: int | None, short: int | None, long: int | None
) -> Usage:
    """Parts that are more than the whole are not counted: nobody knows which of the numbers is wrong."""
    if prompt is None or (read or 0) + (short or 0) + (long or 0) > prompt:
        return Usage(prompt, completion)
    return Usage(prompt, completion, read, short, long)


def _lives(written: int | None, lives: Mapping[str, JSON]) -> tuple[int | None, int | None]:
    """What was written for five minutes and for an hour; all of it for five minutes where that is not told."""
    long = _count(lives.get("ephemeral_1h_input_tokens"))
    if written is None:
        return _count(lives.get("ephemeral_5m_input_tokens")), long
    if long is None or long > written:
        return written, None
    return written - long, long


def _first(*values: JSON) -> int | None:
    """The first that is a count."""
    return next((count for value in values if (count := _count(value)) is not None), None)


def _count(value: JSON) -> int | None:
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else None


def _object(value: Mapping[str, JSON], name: str) -> Mapping[str, JSON]:
    found = value.get(name)
    return found if type(found) is dict else _NOTHING
