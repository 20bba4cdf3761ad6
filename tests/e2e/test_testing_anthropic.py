"""The Anthropic fake as the official SDK sees it: messages, streams, tools, thinking, errors, the prompt cache."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest

from stratacache.testing import AnthropicFake, ApiError, Gate, Message, in_thread

MODEL = "claude-sonnet-4-5"
SAYS: Any = [{"role": "user", "content": "hello"}]
CALL = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Zürich", "days": [1, 2]}}
THOUGHT = {"type": "thinking", "thinking": "I should look it up.", "signature": "c2ln"}
TOOLS: Any = [{"name": "weather", "input_schema": {"type": "object"}}]
LONG = "word " * 1000
SHORT = {"type": "ephemeral"}
OLD = {"anthropic-version": "2023-06-01"}


@pytest.fixture
async def fake() -> AsyncIterator[AnthropicFake]:
    async with AnthropicFake({"sk-a": "a", "sk-b": "b"}) as server:
        yield server


@pytest.fixture
async def client(fake: AnthropicFake) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=fake.base_url, api_key="sk-a", max_retries=0) as made:
        yield made


async def ask(client: anthropic.AsyncAnthropic, **more: Any) -> anthropic.types.Message:
    asked: Any = {"model": MODEL, "max_tokens": 100, "messages": SAYS, **more}
    message: anthropic.types.Message = await client.messages.create(**asked)
    return message


async def test_plain_and_streamed_answers_are_the_same(
    fake: AnthropicFake, client: anthropic.AsyncAnthropic
) -> None:
    fake.default = Message(content=[THOUGHT, {"type": "text", "text": "Let me see."}, CALL])
    plain = await ask(client)
    async with client.messages.stream(model=MODEL, max_tokens=100, messages=SAYS) as stream:
        kinds = [event.type async for event in stream]
        streamed = await stream.get_final_message()
    assert plain.stop_reason == streamed.stop_reason == "tool_use"
    assert [b.to_dict() for b in plain.content] == [b.to_dict() for b in streamed.content]
    assert plain.usage.output_tokens == streamed.usage.output_tokens
    assert {"thinking", "signature", "text", "input_json", "message_stop"} <= set(kinds)


def test_the_synchronous_sdk() -> None:
    with in_thread(AnthropicFake()) as fake:
        client = anthropic.Anthropic(base_url=fake.base_url, api_key="sk-ant-fake")
        with client, client.messages.stream(model=MODEL, max_tokens=9, messages=SAYS) as stream:
            assert "".join(stream.text_stream) == "Hello from the fake."
    assert fake.message_calls == 1


async def test_tokens_are_counted_as_they_are_billed(
    fake: AnthropicFake, client: anthropic.AsyncAnthropic
) -> None:
    counted = await client.messages.count_tokens(model=MODEL, messages=SAYS, tools=TOOLS, system="Be brief.")
    asked = await ask(client, tools=TOOLS, system="Be brief.")
    assert counted.input_tokens == asked.usage.input_tokens > 0


async def test_siblings_of_a_cold_prefix_write_it_each_until_one_has_begun(
    fake: AnthropicFake, client: anthropic.AsyncAnthropic
) -> None:
    system = [{"type": "text", "text": LONG, "cache_control": {"type": "ephemeral"}}]
    gate = Gate()
    fake.default = Message(header_gate=gate)
    siblings = [asyncio.create_task(ask(client, system=system)) for _ in range(2)]
    await fake.arrived(2)
    await gate.reached.wait()
    gate.open()
    usages = [(await sibling).usage for sibling in siblings]
    assert [u.cache_creation_input_tokens for u in usages] == [1250, 1250]
    later = (await ask(client, system=system)).usage
    assert (later.cache_read_input_tokens, later.cache_creation_input_tokens) == (1250, 0)
    assert later.cache_creation is not None
    other = client.with_options(api_key="sk-b")
    assert (await ask(other, system=system)).usage.cache_read_input_tokens == 0


def marked(ttl: str | None = None) -> dict[str, Any]:
    mark = {"type": "ephemeral"} if ttl is None else {"type": "ephemeral", "ttl": ttl}
    return {"type": "text", "text": "x", "cache_control": mark}


RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"system": [marked() for _ in range(5)]}, "A maximum of 4 blocks with cache_control"),
        (
            {"system": [marked() for _ in range(4)], "cache_control": {"type": "ephemeral"}},
            "Found 5",
        ),
        ({"system": [marked("5m"), marked("1h")]}, "must not come after a ttl='5m'"),
        ({"system": [marked(), marked("1h")]}, "must not come after a ttl='5m'"),
        ({"system": [marked("1h")], "tools": [{**TOOLS[0], "cache_control": SHORT}]}, "`tools`, `system`"),
        ({"system": [marked("2h")]}, "cache_control"),
        ({"messages": []}, "at least one message"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": ""}]}]}, "non-empty"),
        ({"messages": [*SAYS, {"role": "assistant", "content": "so "}]}, "trailing whitespace"),
        ({"messages": [*SAYS, {"role": "assistant", "content": [CALL]}, *SAYS]}, "without `tool_result`"),
        ({"messages": [{"role": "user", "content": [RESULT]}]}, "unexpected `tool_use_id`"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"extra_body": {"temperature": 1.5}, "extra_headers": OLD}, "range: 0..1"),
        ({"extra_body": {"temperature": 1.0}}, "temperature: Extra inputs are not permitted"),
        ({"extra_body": {"nonsense": 1}}, "Extra inputs are not permitted"),
        ({"thinking": {"type": "enabled", "budget_tokens": 10}}, "1024"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "must be greater than"),
        ({"tool_choice": {"type": "tool", "name": "none"}, "tools": TOOLS}, "not found in provided tools"),
    ],
)  # fmt: skip
async def test_what_is_refused(client: anthropic.AsyncAnthropic, more: dict[str, Any], words: str) -> None:
    with pytest.raises(anthropic.BadRequestError, match=words.replace("(", r"\(")) as told:
        await ask(client, **more)
    assert told.value.body["error"]["type"] == "invalid_request_error"  # type: ignore[index]


async def test_errors_are_of_the_api_s_kinds(fake: AnthropicFake, client: anthropic.AsyncAnthropic) -> None:
    fake.script(ApiError(429, headers={"retry-after": "7"}), ApiError(529), ApiError(500))
    with pytest.raises(anthropic.RateLimitError) as limited:
        await ask(client)
    assert limited.value.response.headers["retry-after"] == "7"
    with pytest.raises(anthropic.InternalServerError, match="overloaded_error"):
        await ask(client)
    with pytest.raises(anthropic.InternalServerError, match="api_error"):
        await ask(client)
    with pytest.raises(anthropic.AuthenticationError):
        await ask(client.with_options(api_key="sk-wrong"))
    fake.models = [MODEL]
    with pytest.raises(anthropic.NotFoundError):
        await ask(client, model="claude-unknown")


async def test_an_error_amid_a_stream(fake: AnthropicFake, client: anthropic.AsyncAnthropic) -> None:
    fake.default = Message(text="one two three", cut_after=4, stream_error="overloaded_error")
    async with client.messages.stream(model=MODEL, max_tokens=9, messages=SAYS) as stream:
        with pytest.raises(anthropic.APIStatusError, match="overloaded"):
            await stream.get_final_message()
    snapshot = stream.current_message_snapshot
    assert snapshot.content[0].to_dict() == {"type": "text", "text": "one "}
