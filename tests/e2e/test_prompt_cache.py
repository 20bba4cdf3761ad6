"""L3 through the gateway: the real SDKs before fakes that hold to the providers' rules of prompt caches."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import openai
import pytest
from tests.fakes.upstream import FakeUpstream, Reply
from tests.harness import ENVIRON, Gateway, running_gateway
from tests.prompt_kit import MARK, assistant, marks_in, tool, user, words

from stratacache.commands.explain import _prompt_in_words
from stratacache.testing import AnthropicFake, ApiError, Message, OpenAIFake

CLAUDE, GPT = "claude-sonnet-4-5", "gpt-5.6"
SYSTEM = words(2000, "policy")
KEYS = {ENVIRON["FAKE_KEY"]: "ours"}


@pytest.fixture
async def claude() -> AsyncIterator[AnthropicFake]:
    async with AnthropicFake(KEYS) as server:
        yield server


@pytest.fixture
async def gpt() -> AsyncIterator[OpenAIFake]:
    async with OpenAIFake(KEYS) as server:
        yield server


@asynccontextmanager
async def before(
    claude: AnthropicFake, *, provider: str | None = "anthropic", **prompt: Any
) -> AsyncIterator[Gateway]:
    upstream = {
        "name": "claude", "kind": "anthropic", "base_url": claude.base_url, "models": ["claude-*"], "retries": 0,
        "api_key_env": "FAKE_KEY", **({"provider": provider} if provider else {}),
    }  # fmt: skip
    config = {"upstreams": [upstream], "tiers": {"prompt": prompt}}
    async with FakeUpstream() as unused, running_gateway(unused, config) as made:
        yield made


@asynccontextmanager
async def before_gpt(gpt: OpenAIFake) -> AsyncIterator[Gateway]:
    upstream = {
        "name": "gpt", "kind": "openai", "base_url": gpt.base_url, "models": ["gpt-*"], "retries": 0,
        "api_key_env": "FAKE_KEY", "provider": "openai",
    }  # fmt: skip
    async with FakeUpstream() as unused, running_gateway(unused, {"upstreams": [upstream]}) as made:
        yield made


def by_anthropic(gateway: Gateway) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=gateway.root, api_key="sk-any", max_retries=0)


def by_openai(gateway: Gateway) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=gateway.base_url, api_key="sk-any", max_retries=0)


async def three_questions(client: openai.AsyncOpenAI, model: str) -> int | None:
    """Three conversations that share a system prompt; the tokens that the last one's usage says were read."""
    for number in range(3):
        asked: Any = [{"role": "system", "content": SYSTEM}, user(f"question {number}")]
        answer = await client.chat.completions.create(model=model, messages=asked)
    assert answer.usage is not None
    details = answer.usage.prompt_tokens_details
    return details.cached_tokens if details is not None else None


def plans(gateway: Gateway) -> dict[str, int]:
    return dict(gateway.system.metrics.figures().counters["planned"])


@pytest.mark.parametrize("stream", [False, True])
async def test_turns_of_a_conversation_are_read(claude: AnthropicFake, stream: bool) -> None:
    messages: list[Any] = []
    async with before(claude) as gateway, by_anthropic(gateway) as client:
        for turn in range(4):
            messages.append(user(f"question {turn} " + words(100)))
            asked: Any = {
                "model": CLAUDE, "max_tokens": 50, "messages": messages, "system": SYSTEM, "tools": [tool("t")]
            }  # fmt: skip
            if stream:
                async with client.messages.stream(**asked) as events:
                    answer = await events.get_final_message()
            else:
                answer = await client.messages.create(**asked)
            messages.append(assistant(answer.content[0].text))
            assert answer.usage.input_tokens == claude.usages[-1].fresh
        first, *later = claude.usages
        assert (first.read, first.fresh) == (0, 0)
        assert all(usage.read > 2000 and usage.fresh == 0 for usage in later)
        assert plans(gateway) == {"anthropic marked": 4}


async def test_an_openai_client_gets_it_too(claude: AnthropicFake) -> None:
    async with before(claude) as gateway, by_openai(gateway) as client:
        read = await three_questions(client, CLAUDE)
        assert read == claude.usages[-1].read > 2000


async def test_marks_are_not_in_the_key(claude: AnthropicFake) -> None:
    async with before(claude) as gateway, by_anthropic(gateway) as client:
        for marked in (False, True):
            system: Any = [{"type": "text", "text": SYSTEM, **({"cache_control": MARK} if marked else {})}]
            await client.messages.create(model=CLAUDE, max_tokens=50, messages=[user("q")], system=system)  # type: ignore[list-item]
            await gateway.stored()
    assert claude.message_calls == 1


@pytest.mark.parametrize(("enabled", "provider"), [(False, "anthropic"), (True, None)])
async def test_off_or_with_an_unknown_provider_the_request_is_what_it_was(
    claude: AnthropicFake, enabled: bool, provider: str | None
) -> None:
    async with before(claude, provider=provider, enabled=enabled) as gateway, by_anthropic(gateway) as client:
        await client.messages.create(model=CLAUDE, max_tokens=50, messages=[user("q")], system=SYSTEM)  # type: ignore[list-item]
    plain = {"max_tokens": 50, "messages": [user("q")], "model": CLAUDE, "system": SYSTEM}
    assert claude.calls[0].json == plain


async def test_what_a_server_refuses_with_marks_goes_again_without(claude: AnthropicFake) -> None:
    claude.responder = lambda call: (
        ApiError(400, "cache_control: what is that?") if marks_in(call.json) else Message()
    )
    async with before(claude) as gateway, by_anthropic(gateway) as client:
        for number in range(3):
            asked: Any = [user(f"question {number}")]
            answer = await client.messages.create(model=CLAUDE, max_tokens=50, messages=asked, system=SYSTEM)
            assert answer.content[0].type == "text"
        assert [bool(marks_in(call.json)) for call in claude.calls] == [True, False, False, False]
        assert plans(gateway) == {"anthropic marked": 1, "anthropic refused": 3}


async def test_an_error_of_the_clients_own_is_the_upstreams(claude: AnthropicFake) -> None:
    claude.default = ApiError(400, "no such thing")
    async with before(claude) as gateway, by_anthropic(gateway) as client:
        for _ in range(2):
            with pytest.raises(anthropic.BadRequestError, match="no such thing"):
                await client.messages.create(model=CLAUDE, max_tokens=50, messages=[user("q")], system=SYSTEM)  # type: ignore[list-item]
        assert plans(gateway) == {"anthropic marked": 2}


async def test_three_results_of_parallel_calls_make_no_fifth_mark(claude: AnthropicFake) -> None:
    """An OpenAI client's three tool messages become one message with three blocks at Anthropic."""
    names = ("one", "two", "three")
    calls = [{"id": f"c_{n}", "type": "function", "function": {"name": n, "arguments": "{}"}} for n in names]
    tools = [{"type": "function", "function": {"name": n, "description": words(600)}} for n in names]
    results = [{"role": "tool", "tool_call_id": f"c_{n}", "content": words(300, n)} for n in names]
    messages: Any = [{"role": "system", "content": SYSTEM}, user("start " + words(300))]
    async with before(claude) as gateway, by_openai(gateway) as client:
        for turn in range(3):
            asked: Any = {"model": CLAUDE, "messages": messages, "tools": tools}
            await client.chat.completions.create(**asked)
            messages = [*messages, {"role": "assistant", "tool_calls": calls}, *results, user(f"turn {turn}")]
    assert claude.message_calls == 3
    assert all(1 <= len(marks_in(call.json)) <= 4 for call in claude.calls)
    assert claude.usages[-1].read > 5000


async def test_marks_of_the_client_that_the_api_refuses_are_the_clients_error(claude: AnthropicFake) -> None:
    """A bare mark on the tools is of five minutes, and an hour must not come after it."""
    system: Any = [{"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
    asked: Any = [user("q")]
    tools: Any = [{**tool("t"), "cache_control": MARK}]
    async with before(claude) as gateway, by_anthropic(gateway) as client:
        with pytest.raises(anthropic.BadRequestError, match="must not come after"):
            await client.messages.create(
                model=CLAUDE, max_tokens=50, messages=asked, system=system, tools=tools
            )
        assert plans(gateway) == {"anthropic own_marks": 1}
    assert claude.message_calls == 1


async def test_explain_tells_the_plan_and_calls_nobody(claude: AnthropicFake) -> None:
    async with before(claude) as gateway:
        asked = {"model": CLAUDE, "messages": [{"role": "system", "content": SYSTEM}, user("q " + words(50))]}
        async with gateway.http.post(f"{gateway.root}/admin/explain", json=asked) as response:
            told = (await response.json())["tiers"]["prompt"]
        assert (told["outcome"], told["provider"]) == ("marked", "anthropic")
        assert [mark["at"] for mark in told["marks"]] == ["system[0]", "messages[0].content[0]"]
        assert told["expected_gain_tokens"] > 500
        assert claude.calls == []
        assert plans(gateway) == {}
        lines = _prompt_in_words(told)
        assert lines[0].startswith("prompt     marked (saves about ")
        assert lines[1].startswith("  mark     system[0] for 5m: ")


async def test_newer_models_get_breakpoints_and_a_key(gpt: OpenAIFake) -> None:
    async with before_gpt(gpt) as gateway, by_openai(gateway) as client:
        read = await three_questions(client, GPT)
        assert read == gpt.usages[-1].read > 2000
    bare = [user("q")]
    assert (
        gpt.cache.serve(
            "ours", {"model": GPT, "messages": [{"role": "system", "content": SYSTEM}, *bare]}
        ).read
        == 0
    )


async def test_a_stream_tells_what_was_read(gpt: OpenAIFake) -> None:
    async with before_gpt(gpt) as gateway, by_openai(gateway) as client:
        await three_questions(client, GPT)
        asked: Any = [{"role": "system", "content": SYSTEM}, user("and streamed?")]
        stream = await client.chat.completions.create(
            model=GPT, messages=asked, stream=True, stream_options={"include_usage": True}
        )
        usages = [event.usage async for event in stream if event.usage is not None]
        assert usages[0].prompt_tokens_details is not None
        assert usages[0].prompt_tokens_details.cached_tokens == gpt.usages[-1].read > 2000
        reads = gateway.system.metrics.figures().counters["prompt_read"]
        assert reads == {"openai none": 1, "openai as_expected": 3}


async def test_older_models_get_a_key_and_no_newer_option(gpt: OpenAIFake) -> None:
    async with before_gpt(gpt) as gateway, by_openai(gateway) as client:
        await three_questions(client, "gpt-4.1")
        assert plans(gateway) == {"openai keyed": 3}
    assert gpt.chat_calls == 3
    assert len({call.json["prompt_cache_key"] for call in gpt.calls}) == 1
    assert gpt.usages[-1].read >= 2048


async def test_a_stream_options_refusal_and_marks_do_not_get_in_each_others_way() -> None:
    """A server that takes neither: one request finds out both, and no client sees an error."""

    def answer(call: Any) -> Reply:
        newer = "prompt_cache_key" in call.json or "stream_options" in call.json
        return Reply(status=400, text="unknown field") if newer else Reply(text="plain")

    async with FakeUpstream(["gpt-4.1"]) as server:
        server.responder = answer
        upstream = {
            "name": "old", "kind": "openai", "base_url": server.base_url, "models": ["*"], "provider": "openai",
            "api_key_env": "FAKE_KEY",
        }  # fmt: skip
        async with (
            running_gateway(server, {"upstreams": [upstream]}) as gateway,
            by_openai(gateway) as client,
        ):
            for number in range(3):
                stream = await client.chat.completions.create(
                    model="gpt-4.1",
                    messages=[{"role": "user", "content": f"{number} " + words(2000)}],
                    stream=True,
                )
                said = [event.choices[0].delta.content async for event in stream if event.choices]
                assert "plain" in "".join(one or "" for one in said)
        assert server.chat_calls <= 3 + 2 + 1
