"""``/v1/messages`` before an Anthropic upstream, by the real SDK: what is stored, replayed, refused and kept apart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import msgspec
import pytest
from tests.fakes.upstream import FakeUpstream
from tests.harness import ENVIRON, Gateway, running_gateway

from stratacache.testing import AnthropicFake, ApiError, Gate, Message

MODEL = "claude-sonnet-4-5"
SAYS: Any = [{"role": "user", "content": "What is a cache?"}]
CALL = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Zürich", "days": [1, 2]}}
OTHER_CALL = {"type": "tool_use", "id": "toolu_2", "name": "time", "input": {}}
THOUGHT = {"type": "thinking", "thinking": "I should look it up.", "signature": "c2ln"}
TEXT = {"type": "text", "text": "Let me see."}
TOOLS: Any = [{"name": n, "input_schema": {"type": "object", "properties": {}}} for n in ("weather", "time")]


OLD = {"extra_headers": {"anthropic-version": "2023-06-01"}}
ONLY_IF_CACHED = {"cache-control": "only-if-cached"}


@pytest.fixture
async def claude() -> AsyncIterator[AnthropicFake]:
    async with AnthropicFake({ENVIRON["FAKE_KEY"]: "ours", "sk-mine": "mine", "sk-yours": "yours"}) as server:
        yield server


@asynccontextmanager
async def before(claude: AnthropicFake, own_key: bool = True, **config: Any) -> AsyncIterator[Gateway]:
    upstream = {
        "name": "claude", "kind": "anthropic", "base_url": claude.base_url, "models": ["claude-*"], "retries": 0,
        **({"api_key_env": "FAKE_KEY"} if own_key else {}),
    }  # fmt: skip
    async with FakeUpstream() as unused, running_gateway(unused, {"upstreams": [upstream], **config}) as made:
        yield made


@pytest.fixture
async def gateway(claude: AnthropicFake) -> AsyncIterator[Gateway]:
    async with before(claude) as made:
        yield made


def sdk(gateway: Gateway, key: str = "sk-any") -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=gateway.root, api_key=key, max_retries=0)


async def ask(gateway: Gateway, key: str = "sk-any", **more: Any) -> tuple[Mapping[str, str], Any]:
    asked: Any = {"model": MODEL, "max_tokens": 100, "messages": SAYS, **more}
    async with sdk(gateway, key) as client:
        raw = await client.messages.with_raw_response.create(**asked)
        await gateway.stored()
        return raw.headers, await raw.parse()


async def streamed(gateway: Gateway, **more: Any) -> tuple[str, anthropic.types.Message, list[str]]:
    asked: Any = {"model": MODEL, "max_tokens": 100, "messages": SAYS, **more}
    async with sdk(gateway) as client, client.messages.stream(**asked) as stream:
        kinds = [event.type async for event in stream]
        message = await stream.get_final_message()
        reason = stream.response.headers["x-strata-reason"]
    await gateway.stored()
    return reason, message, kinds


def content(message: anthropic.types.Message) -> list[Any]:
    return [block.to_dict() for block in message.content]


async def test_a_second_call_is_a_hit_with_the_same_message(claude: AnthropicFake, gateway: Gateway) -> None:
    first, one = await ask(gateway)
    second, two = await ask(gateway)
    assert (first["x-strata-cache"], second["x-strata-cache"]) == ("miss", "hit")
    assert one == two
    assert claude.message_calls == 1
    assert int(second["x-strata-saved-tokens"]) == one.usage.input_tokens + one.usage.output_tokens
    sent = claude.calls[0]
    assert (sent.headers["x-api-key"], sent.headers["anthropic-version"]) == (
        "sk-upstream-secret",
        "2026-10-21",
    )
    assert "authorization" not in sent.headers


@pytest.mark.parametrize("first_streams", [False, True])
async def test_streams_and_whole_messages_serve_each_other(
    claude: AnthropicFake, gateway: Gateway, first_streams: bool
) -> None:
    claude.default = Message(content=[THOUGHT, TEXT, CALL, OTHER_CALL])
    if first_streams:
        reason, one, live = await streamed(gateway, tools=TOOLS)
        assert reason == "not_found"
        headers, two = await ask(gateway, tools=TOOLS)
        assert headers["x-strata-cache"] == "hit"
        assert {"thinking", "signature", "text", "input_json", "message_stop"} <= set(live)
    else:
        _, one = await ask(gateway, tools=TOOLS)
        reason, two, replayed = await streamed(gateway, tools=TOOLS)
        assert reason == "exact"
        assert {"thinking", "signature", "text", "input_json", "message_stop"} <= set(replayed)
    assert content(one) == content(two) == [THOUGHT, TEXT, CALL, OTHER_CALL]
    assert (one.id, one.stop_reason) == (two.id, two.stop_reason)
    assert one.usage.output_tokens == two.usage.output_tokens
    assert claude.message_calls == 1


async def test_a_loop_with_tools_is_cached_step_by_step(claude: AnthropicFake, gateway: Gateway) -> None:
    claude.responder = lambda call: (
        Message(text="It is sunny.")
        if len(call.json["messages"]) > 1
        else Message(content=[CALL, OTHER_CALL])
    )
    for _ in range(2):
        messages = list(SAYS)
        _, asked = await ask(gateway, messages=messages, tools=TOOLS)
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": f"result of {block.name}"}
            for block in asked.content
        ]
        messages += [asked.to_param(), {"role": "user", "content": results}]
        _, answer = await ask(gateway, messages=messages, tools=TOOLS)
        assert answer.content[0].text == "It is sunny."
    assert claude.message_calls == 2


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Message(stop_reason="max_tokens"), "truncated"),
        (Message(stop_reason="refusal"), "refused"),
        (Message(stop_reason="pause_turn"), "unfinished"),
        (Message(stop_reason="model_context_window_exceeded"), "truncated"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_what_is_not_whole_is_never_stored(
    claude: AnthropicFake, gateway: Gateway, answer: Message, reason: str, stream: bool
) -> None:
    claude.default = answer
    for _ in range(2):
        if stream:
            _, message, _ = await streamed(gateway)
        else:
            _, message = await ask(gateway)
        assert message.stop_reason == answer.stop_reason
    assert claude.message_calls == 2
    assert gateway.system.metrics.summary()["withheld"] == {reason: 2}


async def test_a_stream_that_breaks_off_is_an_error_and_not_stored(
    claude: AnthropicFake, gateway: Gateway
) -> None:
    claude.script(
        Message(text="one two three", cut_after=4, stream_error="overloaded_error"),
        Message(text="one two three", cut_after=4),
    )
    for words in ("overloaded", "broke off"):
        async with sdk(gateway) as client, client.messages.stream(
            model=MODEL, max_tokens=9, messages=SAYS
        ) as stream:  # fmt: skip
            with pytest.raises(anthropic.APIStatusError, match=words):
                await stream.get_final_message()
    _, whole, _ = await streamed(gateway)
    assert content(whole) == [{"type": "text", "text": "Hello from the fake."}]
    assert claude.message_calls == 3


async def test_identical_streams_share_one_call(claude: AnthropicFake, gateway: Gateway) -> None:
    gate = Gate()
    claude.default = Message(text="one two three", gates={4: gate})
    asking = [asyncio.create_task(streamed(gateway)) for _ in range(5)]
    await gate.reached.wait()
    await gateway.listening(5)
    gate.open()
    answers = [await one for one in asking]
    assert {answer[1].content[0].text for answer in answers} == {"one two three"}  # type: ignore[union-attr]
    assert claude.message_calls == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"system": "Be brief."}, {"system": "Be long."}),
        ({"tools": TOOLS}, {"tools": TOOLS[:1]}),
        ({"extra_body": {"temperature": 0}, **OLD}, {"extra_body": {"temperature": 1}, **OLD}),
        ({"max_tokens": 100}, {"max_tokens": 101}),
        ({"extra_headers": {"anthropic-beta": "a-2025-01-01"}}, {}),
        ({"extra_headers": {"anthropic-version": "2023-01-01"}}, {}),
        ({"model": "claude-opus-4-8"}, {"model": "claude-opus-4-7"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2000}, {"max_tokens": 2000}),
    ],
)
async def test_what_differs_is_kept_apart(
    claude: AnthropicFake, gateway: Gateway, one: dict[str, Any], other: dict[str, Any]
) -> None:
    for fields in (one, other):
        assert (await ask(gateway, **fields))[0]["x-strata-cache"] == "miss"
    assert claude.message_calls == 2


async def test_marks_for_the_prompt_cache_share_an_answer(claude: AnthropicFake, gateway: Gateway) -> None:
    await ask(gateway, system="Be brief.")
    marked = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    headers, _ = await ask(gateway, system=marked, metadata={"user_id": "u"})
    assert headers["x-strata-cache"] == "hit"


async def test_callers_with_keys_of_their_own_share_nothing(claude: AnthropicFake) -> None:
    async with before(claude, own_key=False) as gateway:
        for key in ("sk-mine", "sk-yours"):
            assert (await ask(gateway, key))[0]["x-strata-cache"] == "miss"
            assert (await ask(gateway, key))[0]["x-strata-cache"] == "hit"
        assert [call.headers["authorization"] for call in claude.calls] == [
            "Bearer sk-mine",
            "Bearer sk-yours",
        ]
        body = {"model": MODEL, "max_tokens": 100, "messages": SAYS}
        await raw(gateway, body, **{"x-api-key": "sk-mine"})
        assert claude.calls[-1].headers["x-api-key"] == "sk-mine"


async def test_tenants_share_nothing_and_authenticate_by_either_header(claude: AnthropicFake) -> None:
    digest = {"a": "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb",
              "b": "3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d"}  # fmt: skip
    keys = [{"key_hash": f"sha256:{digest[t]}", "tenant": t} for t in "ab"]
    async with before(claude, auth={"keys": keys}) as gateway:
        for key in "ab":
            assert (await ask(gateway, key))[0]["x-strata-cache"] == "miss"
        async with anthropic.AsyncAnthropic(base_url=gateway.root, auth_token="a", max_retries=0) as client:
            raw = await client.messages.with_raw_response.create(model=MODEL, max_tokens=100, messages=SAYS)
        assert raw.headers["x-strata-cache"] == "hit"
        with pytest.raises(anthropic.AuthenticationError, match="authentication_error"):
            await ask(gateway, "c")
    assert claude.message_calls == 2


async def test_errors_of_the_upstream_reach_the_client_as_they_are(
    claude: AnthropicFake, gateway: Gateway
) -> None:
    claude.script(ApiError(429, "slow down", {"retry-after": "7"}), ApiError(529, "busy"))
    with pytest.raises(anthropic.RateLimitError, match="slow down") as limited:
        await ask(gateway)
    assert limited.value.response.headers["retry-after"] == "7"
    with pytest.raises(anthropic.InternalServerError, match="overloaded_error"):
        await streamed(gateway)


async def raw(gateway: Gateway, body: Any, path: str = "messages", **headers: str) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    async with gateway.http.post(f"{gateway.base_url}/{path}", data=data, headers=headers) as response:
        return response.status, msgspec.json.decode(await response.read())


@pytest.mark.parametrize(
    ("body", "headers", "status", "kind"),
    [
        (b"{", {}, 400, "invalid_request_error"),
        ({"model": MODEL, "messages": SAYS}, {}, 400, "invalid_request_error"),
        ({"model": "unknown", "max_tokens": 1, "messages": SAYS}, {}, 404, "not_found_error"),
        ({"model": MODEL, "max_tokens": 1, "messages": SAYS}, ONLY_IF_CACHED, 504, "timeout_error"),
        ({"model": MODEL, "max_tokens": 1, "messages": SAYS}, {"x-strata-ttl": "soon"}, 400, "invalid_request_error"),
    ],
)  # fmt: skip
async def test_our_own_refusals_are_in_anthropic_s_words(
    gateway: Gateway, body: Any, headers: dict[str, str], status: int, kind: str
) -> None:
    got, told = await raw(gateway, body, **headers)
    assert (got, told["type"], told["error"]["type"]) == (status, "error", kind)
    assert told.keys() == {"type", "error"}
    assert told["error"].keys() == {"type", "message"}


async def test_a_method_that_is_not_there_is_refused_in_anthropic_s_words(gateway: Gateway) -> None:
    async with gateway.http.get(f"{gateway.base_url}/messages") as response:
        assert response.status == 405
        assert msgspec.json.decode(await response.read())["type"] == "error"


async def test_an_upstream_that_is_down(claude: AnthropicFake, gateway: Gateway) -> None:
    await claude.stop()
    with pytest.raises(anthropic.InternalServerError, match="api_error"):
        await ask(gateway)


async def test_tokens_are_counted_by_the_upstream(claude: AnthropicFake) -> None:
    async with before(claude, aliases={"smart": MODEL}) as gateway, sdk(gateway) as client:
        for model in (MODEL, "smart"):
            counted = await client.messages.count_tokens(model=model, messages=SAYS, system="Be brief.")
            assert counted.input_tokens == 4 + 3
        assert claude.calls[-1].json["model"] == MODEL
        with pytest.raises(anthropic.BadRequestError, match="invalid_request_error"):
            await client.messages.count_tokens(model=MODEL, messages=[])
        with pytest.raises(anthropic.NotFoundError, match="not_found_error"):
            await client.messages.count_tokens(model="unknown", messages=SAYS)


async def test_tools_that_the_provider_runs_are_not_cached(claude: AnthropicFake, gateway: Gateway) -> None:
    tools = [{"type": "web_search_20250305", "name": "web_search"}]
    for _ in range(2):
        headers, _ = await ask(gateway, tools=tools)
        assert (headers["x-strata-cache"], headers["x-strata-reason"]) == ("bypass", "hosted_tool")
    assert claude.message_calls == 2
