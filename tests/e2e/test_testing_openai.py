"""The fake of OpenAI's API by the real SDK, synchronous and asynchronous."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from tests.prompt_kit import user, words

from stratacache.testing import ChatError, Completion, OpenAIFake, in_thread

SYSTEM = {"role": "system", "content": words(2000, "policy")}
CALLS = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]


def test_answers_usage_and_errors() -> None:
    with in_thread(OpenAIFake({"sk-a": "a", "sk-b": "b"})) as fake:
        client = openai.OpenAI(base_url=fake.base_url, api_key="sk-a", max_retries=0)
        messages: Any = [SYSTEM, user("q")]
        first = client.chat.completions.create(model="gpt-4.1", messages=messages)
        again = client.chat.completions.create(model="gpt-4.1", messages=messages)
        other = client.with_options(api_key="sk-b").chat.completions.create(
            model="gpt-4.1", messages=messages
        )
        read = [one.usage.prompt_tokens_details.cached_tokens for one in (first, again, other) if one.usage]  # type: ignore[union-attr]
        assert read[0] == read[2] == 0
        assert read[1] == fake.usages[1].read > 1024
        assert first.choices[0].message.content == "Hello from the fake."
        with pytest.raises(openai.BadRequestError, match="not supported with this model"):
            client.chat.completions.create(
                model="gpt-4.1", messages=messages, prompt_cache_options={"mode": "explicit"}
            )
        with pytest.raises(openai.AuthenticationError):
            client.with_options(api_key="sk-c").chat.completions.create(model="gpt-4.1", messages=messages)
        fake.script(ChatError(429, "slow down"))
        with pytest.raises(openai.RateLimitError, match="slow down"):
            client.chat.completions.create(model="gpt-4.1", messages=messages)
        assert fake.chat_calls == 6


async def test_streams_with_usage_and_tool_calls() -> None:
    async with OpenAIFake() as fake:
        client = openai.AsyncOpenAI(base_url=fake.base_url, api_key="sk-fake", max_retries=0)
        fake.default = Completion(None, "tool_calls", {"tool_calls": CALLS})
        messages: Any = [SYSTEM, user("q")]
        stream = await client.chat.completions.create(
            model="gpt-5.6", messages=messages, stream=True, stream_options={"include_usage": True}
        )
        events = [event async for event in stream]
        await client.close()
    assert events[0].choices[0].delta.tool_calls is not None
    assert events[1].choices[0].finish_reason == "tool_calls"
    usage = events[-1].usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cache_write_tokens == usage.prompt_tokens == fake.usages[0].written
