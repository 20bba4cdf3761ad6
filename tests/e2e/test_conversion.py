"""Each SDK before the other's server: tools, images, thoughts, usage, errors; one cached answer for both clients."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anthropic
import openai
import pytest
from tests.fakes.upstream import FakeUpstream, Reply
from tests.harness import Gateway, running_gateway

from stratacache.testing import AnthropicFake, ApiError, Message

CLAUDE, GPT = "claude-sonnet-4-5", "fake-model"
PIXEL = "iVBORw0KGgo="
SAYS: Any = [{"role": "user", "content": "What is a cache?"}]
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
NAMES = ("weather", "time")
CHAT_TOOLS: Any = [
    {"type": "function", "function": {"name": n, "description": n, "parameters": PARAMETERS}} for n in NAMES
]
TOOLS: Any = [{"name": n, "description": n, "input_schema": PARAMETERS} for n in ("weather", "time")]
USES = [
    {"type": "tool_use", "id": f"toolu_{n}", "name": n, "input": {"city": "Zürich"}}
    for n in ("weather", "time")
]
CALLS = [
    {"id": f"call_{n}", "type": "function", "function": {"name": n, "arguments": '{"city":"Zürich"}'}}
    for n in ("weather", "time")
]
SMALL = {"type": "image_url", "image_url": {"url": "https://x.example", "detail": "low"}}
THOUGHT = {"type": "thinking", "thinking": "I should look it up.", "signature": "c2ln"}


class Both:
    """A gateway before both kinds of server, and both kinds of client."""

    def __init__(self, gateway: Gateway, claude: AnthropicFake, gpt: FakeUpstream) -> None:
        self.gateway, self.claude, self.gpt = gateway, claude, gpt
        self.chat = openai.AsyncOpenAI(base_url=gateway.base_url, api_key="sk", max_retries=0)
        self.messages = anthropic.AsyncAnthropic(base_url=gateway.root, api_key="sk", max_retries=0)

    async def by_chat(self, model: str = CLAUDE, **more: Any) -> tuple[str, Any]:
        asked: Any = {"model": model, "messages": SAYS, **more}
        raw = await self.chat.chat.completions.with_raw_response.create(**asked)
        await self.gateway.stored()
        return raw.headers["x-strata-cache"], raw.parse()

    async def chunks(self, model: str = CLAUDE, **more: Any) -> tuple[str, list[Any]]:
        asked: Any = {"model": model, "messages": SAYS, "stream": True, **more}
        raw = await self.chat.chat.completions.with_raw_response.create(**asked)
        chunks = [chunk async for chunk in raw.parse()]
        await self.gateway.stored()
        return raw.headers["x-strata-cache"], chunks

    async def by_messages(self, model: str = GPT, **more: Any) -> tuple[str, Any]:
        asked: Any = {"model": model, "max_tokens": 100, "messages": SAYS, **more}
        raw = await self.messages.messages.with_raw_response.create(**asked)
        await self.gateway.stored()
        return raw.headers["x-strata-cache"], await raw.parse()

    async def streamed(self, model: str = GPT, **more: Any) -> tuple[str, Any]:
        asked: Any = {"model": model, "max_tokens": 100, "messages": SAYS, **more}
        async with self.messages.messages.stream(**asked) as stream:
            message = await stream.get_final_message()
            outcome = stream.response.headers["x-strata-cache"]
        await self.gateway.stored()
        return outcome, message


@pytest.fixture
async def both() -> AsyncIterator[Both]:
    async with AnthropicFake({"sk-upstream-secret": "w"}) as claude, FakeUpstream() as gpt:
        upstreams = [
            {"name": "claude", "kind": "anthropic", "base_url": claude.base_url, "models": ["claude-*"],
             "api_key_env": "FAKE_KEY", "retries": 0, "max_tokens": 100},
            {"name": "gpt", "kind": "openai", "base_url": gpt.base_url, "models": [GPT, "gpt-*"],
             "api_key_env": "FAKE_KEY", "retries": 0},
        ]  # fmt: skip
        async with running_gateway(gpt, {"upstreams": upstreams}) as gateway:
            made = Both(gateway, claude, gpt)
            yield made
            await made.chat.close()
            await made.messages.close()


async def test_one_answer_serves_both_clients_of_an_anthropic_server(both: Both) -> None:
    both.claude.default = Message(content=[THOUGHT, {"type": "text", "text": "A store."}, *USES])
    assert (await both.by_messages(CLAUDE, system="Be brief.", tools=TOOLS))[0] == "miss"
    system = [{"role": "system", "content": "Be brief."}, *SAYS]
    outcome, answer = await both.by_chat(messages=system, tools=CHAT_TOOLS)
    assert outcome == "hit"
    said = answer.choices[0].message
    assert (said.content, answer.choices[0].finish_reason) == ("A store.", "tool_calls")
    assert [(c.id, c.function.name, c.function.arguments) for c in said.tool_calls] == [
        ("toolu_weather", "weather", '{"city":"Zürich"}'),
        ("toolu_time", "time", '{"city":"Zürich"}'),
    ]
    assert said.reasoning_content == "I should look it up."
    assert said.thinking_blocks == [THOUGHT]
    assert (await both.chunks(messages=system, tools=CHAT_TOOLS))[0] == "hit"
    assert both.claude.message_calls == 1


async def test_one_answer_serves_both_clients_of_an_openai_server(both: Both) -> None:
    both.gpt.default = Reply(
        text="A store.", message={"reasoning_content": "Hm.", "tool_calls": CALLS}, finish_reason="tool_calls",
        usage=(12, 5, 8),
    )  # fmt: skip
    system = [{"role": "system", "content": "Be brief."}, *SAYS]
    assert (await both.by_chat(GPT, messages=system, tools=CHAT_TOOLS, max_tokens=100))[0] == "miss"
    for asking in (both.by_messages, both.streamed):
        outcome, message = await asking(GPT, system="Be brief.", tools=TOOLS)
        assert outcome == "hit"
        assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
        assert message.content[1].text == "A store."
        assert [block.input for block in message.content[2:]] == [{"city": "Zürich"}] * 2
        assert message.stop_reason == "tool_use"
        usage = message.usage
        assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (4, 8, 5)
    assert both.gpt.chat_calls == 1


@pytest.mark.parametrize("wants_usage", [False, True])
async def test_a_live_stream_of_an_anthropic_server_as_chat_chunks(both: Both, wants_usage: bool) -> None:
    both.claude.default = Message(
        content=[THOUGHT, {"type": "text", "text": "Let me see."}, *USES], output_tokens=9
    )
    options = {"stream_options": {"include_usage": True}} if wants_usage else {}
    seen = []
    for expected in ("miss", "hit"):
        outcome, chunks = await both.chunks(tools=CHAT_TOOLS, **options)
        assert outcome == expected
        deltas = [c.choices[0].delta for c in chunks if c.choices]
        text = "".join(d.content or "" for d in deltas)
        thought = "".join(getattr(d, "reasoning_content", None) or "" for d in deltas)
        arguments: dict[int, str] = {}
        for call in (call for d in deltas for call in d.tool_calls or ()):
            arguments[call.index] = arguments.get(call.index, "") + (call.function.arguments or "")
        blocks = [b for d in deltas for b in getattr(d, "thinking_blocks", None) or ()]
        usage = [c.usage.completion_tokens for c in chunks if c.usage]
        finish = [c.choices[0].finish_reason for c in chunks if c.choices][-1]
        assert usage == ([9] if wants_usage else [])
        seen.append((text, thought, arguments, blocks, finish, {c.id for c in chunks}, deltas[0].role))
    assert seen[0] == seen[1]
    assert seen[0][:5] == (
        "Let me see.", "I should look it up.", dict.fromkeys(range(2), '{"city":"Zürich"}'), [THOUGHT], "tool_calls",
    )  # fmt: skip
    assert both.claude.message_calls == 1


async def test_a_live_stream_of_an_openai_server_as_events(both: Both) -> None:
    both.gpt.default = Reply(
        text="Let me see.", message={"tool_calls": CALLS}, finish_reason="tool_calls", usage=(12, 5, 8)
    )
    first, live = await both.streamed(tools=TOOLS)
    second, replayed = await both.streamed(tools=TOOLS)
    third, whole = await both.by_messages(tools=TOOLS)
    assert (first, second, third) == ("miss", "hit", "hit")
    for message in (live, replayed, whole):
        assert sorted(block.type for block in message.content) == ["text", "tool_use", "tool_use"]
        assert (message.id, message.stop_reason) == (whole.id, "tool_use")
        assert (message.usage.input_tokens, message.usage.output_tokens) == (4, 5)
    assert both.gpt.calls[0].json["stream_options"] == {"include_usage": True}


async def test_a_loop_with_parallel_tools_of_a_chat_client(both: Both) -> None:
    both.claude.responder = lambda call: (
        Message(text="Sunny.") if len(call.json["messages"]) > 1 else Message(content=[THOUGHT, *USES])
    )
    for outcome in ("miss", "hit"):
        first, asked = await both.by_chat(tools=CHAT_TOOLS, parallel_tool_calls=True)
        said = asked.choices[0].message
        results = [
            {"role": "tool", "tool_call_id": c.id, "content": c.function.name} for c in said.tool_calls
        ]
        messages = [*SAYS, said.model_dump(exclude_none=True), *results]
        second, answer = await both.by_chat(messages=messages, tools=CHAT_TOOLS)
        assert (first, second, answer.choices[0].message.content) == (outcome, outcome, "Sunny.")
    sent = both.claude.calls[-1].json["messages"]
    assert [m["role"] for m in sent] == ["user", "assistant", "user"]
    assert sent[1]["content"] == [THOUGHT, *USES]
    assert [r["tool_use_id"] for r in sent[2]["content"]] == ["toolu_weather", "toolu_time"]


async def test_a_loop_with_parallel_tools_of_an_anthropic_client(both: Both) -> None:
    both.gpt.responder = lambda call: (
        Reply(text="Sunny.")
        if len(call.json["messages"]) > 1
        else Reply(
            text=None, message={"tool_calls": CALLS, "reasoning_content": "Hm."}, finish_reason="tool_calls"
        )
    )
    for outcome in ("miss", "hit"):
        first, asked = await both.by_messages(tools=TOOLS)
        results: list[Any] = [
            {"type": "tool_result", "tool_use_id": block.id, "content": block.name}
            for block in asked.content
            if block.type == "tool_use"
        ]
        results[1]["is_error"] = True
        said = {"role": "user", "content": [*results, {"type": "text", "text": "Well?"}]}
        second, answer = await both.by_messages(messages=[*SAYS, asked.to_param(), said], tools=TOOLS)
        assert (first, second, answer.content[0].text) == (outcome, outcome, "Sunny.")
    sent = both.gpt.calls[-1].json["messages"]
    assert [m["role"] for m in sent] == ["user", "assistant", "tool", "tool", "user"]
    assert sent[1]["tool_calls"] == CALLS
    assert [m.get("content") for m in sent[2:]] == ["weather", "Error: time", "Well?"]


async def test_images_and_settings_reach_an_anthropic_server(both: Both) -> None:
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        {"type": "image_url", "image_url": {"url": "https://images.example/a.png", "detail": "auto"}},
    ]
    await both.by_chat(
        messages=[{"role": "user", "content": parts}], max_completion_tokens=77, stop=["END"], temperature=0.5,
        user="u", tools=CHAT_TOOLS, tool_choice="required", parallel_tool_calls=False, reasoning_effort="high",
    )  # fmt: skip
    sent = both.claude.calls[-1]
    assert sent.headers["anthropic-version"] == "2023-06-01"  # the newest has no temperature
    assert sent.json == {
        "model": CLAUDE, "max_tokens": 77, "stop_sequences": ["END"], "temperature": 0.5,
        "metadata": {"user_id": "u"}, "output_config": {"effort": "high"}, "tools": TOOLS,
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "messages": [{"role": "user", "content": [
            {"type": "text", "text": "What is this?"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
            {"type": "image", "source": {"type": "url", "url": "https://images.example/a.png"}},
        ]}],
    }  # fmt: skip


async def test_images_and_settings_reach_an_openai_server(both: Both) -> None:
    parts: Any = [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
        {"type": "text", "text": "What is this?", "cache_control": {"type": "ephemeral"}},
    ]
    await both.by_messages(
        messages=[{"role": "user", "content": parts}], stop_sequences=["END"], metadata={"user_id": "u"},
        tools=TOOLS, tool_choice={"type": "tool", "name": "time"}, system=[{"type": "text", "text": "Be brief."}],
        extra_body={"temperature": 0.5},
    )  # fmt: skip
    assert both.gpt.calls[-1].json == {
        "model": GPT, "max_tokens": 100, "stop": ["END"], "temperature": 0.5, "user": "u", "tools": CHAT_TOOLS,
        "tool_choice": {"type": "function", "function": {"name": "time"}},
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
                {"type": "text", "text": "What is this?"},
            ]},
        ],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("stop", "finish"),
    [
        ("end_turn", "stop"),
        ("max_tokens", "length"),
        ("refusal", "content_filter"),
        ("stop_sequence", "stop"),
    ],
)
async def test_why_a_message_ended(both: Both, stop: str, finish: str) -> None:
    both.claude.default = Message(stop_reason=stop, stop_sequence="END" if stop == "stop_sequence" else None)
    _, answer = await both.by_chat()
    _, chunks = await both.chunks(messages=[{"role": "user", "content": "Again"}])
    assert answer.choices[0].finish_reason == finish
    assert [c.choices[0].finish_reason for c in chunks][-1] == finish


@pytest.mark.parametrize(
    ("finish", "stop"), [("stop", "end_turn"), ("length", "max_tokens"), ("content_filter", "refusal")]
)
async def test_why_a_completion_ended(both: Both, finish: str, stop: str) -> None:
    both.gpt.default = Reply(finish_reason=finish)
    assert (await both.by_messages())[1].stop_reason == stop
    assert (await both.streamed(messages=[{"role": "user", "content": "Again"}]))[1].stop_reason == stop


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"n": 2}, "n"),
        ({"seed": 7}, "seed"),
        ({"logprobs": True}, "logprobs"),
        ({"temperature": 1.5}, "temperature"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"reasoning_effort": "minimal"}, "reasoning_effort"),
        ({"tools": [{"type": "custom", "custom": {"name": "c"}}]}, "tools[0].type"),
        ({"messages": [{"role": "user", "content": "x", "name": "Ann"}]}, "messages[0].name"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]},
         "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [SMALL]}]}, "messages[0].content[0].image_url.detail"),
        ({"extra_body": {"guided_json": {}}}, "guided_json"),
    ],
)  # fmt: skip
async def test_what_an_anthropic_server_cannot_be_told_is_refused_by_name(
    both: Both, more: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError, match="cannot be carried") as told:
        await both.by_chat(**more)
    assert (told.value.param, told.value.code) == (param, "unsupported_field")
    assert both.claude.calls == []


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking"),
        ({"inference_geo": "us"}, "inference_geo"),
        ({"container": "c"}, "container"),
        ({"speed": "fast"}, "speed"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, r"tools\[0\].type"),
        ({"tools": [{**TOOLS[0], "defer_loading": True}]}, r"tools\[0\].defer_loading"),
        ({"messages": [*SAYS, {"role": "assistant", "content": "It is"}]}, r"messages\[1\].role"),
        ({"messages": [*SAYS, {"role": "assistant", "content": [THOUGHT]}, *SAYS]}, r"messages\[1\].content\[0\].type"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "file", "file_id": "f"}}]}]},
         r"messages\[0\].content\[0\].source.type"),
    ],
)  # fmt: skip
async def test_what_an_openai_server_cannot_be_told_is_refused_by_name(
    both: Both, more: dict[str, Any], param: str
) -> None:
    with pytest.raises(anthropic.BadRequestError, match=f"'{param}' cannot be carried"):
        await both.by_messages(**more)
    assert both.gpt.calls == []


async def test_errors_are_in_the_client_s_dialect(both: Both) -> None:
    both.claude.script(ApiError(429, "slow down", {"retry-after": "7"}), ApiError(529, "busy"))
    with pytest.raises(openai.RateLimitError, match="slow down") as limited:
        await both.by_chat()
    assert limited.value.response.headers["retry-after"] == "7"
    assert limited.value.type == "rate_limit_error"
    with pytest.raises(openai.InternalServerError, match="busy"):
        await both.chunks()
    both.gpt.default = Reply(status=429, text="slow down")
    with pytest.raises(anthropic.RateLimitError, match=r"rate_limit_error.*slow down"):
        await both.by_messages()
    with pytest.raises(anthropic.RateLimitError, match="slow down"):
        await both.streamed()


async def test_a_break_amid_a_stream_is_in_the_client_s_dialect(both: Both) -> None:
    both.claude.default = Message(text="one two three", cut_after=4)
    with pytest.raises(openai.APIError, match="broke off"):
        await both.chunks()
    both.claude.default = Message(text="one two three", cut_after=4, stream_error="overloaded_error")
    with pytest.raises(openai.APIError, match="broken off by the fake"):
        await both.chunks()
    both.gpt.default = Reply(text="one two three", cut_after=3)
    with pytest.raises(anthropic.APIStatusError, match="broke off"):
        await both.streamed()
    assert both.gateway.system.metrics.summary()["withheld"] in ({}, {"malformed": 1}, {"cut": 1})


async def test_a_system_prompt_a_model_or_a_tool_keeps_converted_requests_apart(both: Both) -> None:
    for more in (
        {},
        {"messages": [{"role": "system", "content": "Be brief."}, *SAYS]},
        {"tools": CHAT_TOOLS},
        {"tools": CHAT_TOOLS[:1]},
        {"model": "claude-opus-4-8"},
        {"max_tokens": 101},
    ):
        assert (await both.by_chat(**more))[0] == "miss"
    assert (await both.by_chat())[0] == "hit"
