"""The semantic tier for Anthropic requests: other words, the same message; and all that keeps two questions apart."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest
from tests.fakes.upstream import FakeUpstream
from tests.harness import Gateway, running_gateway
from tests.semantic_kit import Embedder, FixedBound, Verifier, models

from stratacache.testing import AnthropicFake, Message

STORED = "What is the way to bake bread?"
ASKED = "how do you bake bread at home"
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa"}}
TOOL = {"name": "f", "input_schema": {"type": "object"}}


@pytest.fixture
async def claude() -> AsyncIterator[AnthropicFake]:
    async with AnthropicFake({"sk-upstream-secret": "w"}) as server:
        server.default = Message(text="Knead, wait, bake.")
        yield server


@pytest.fixture
async def gateway(claude: AnthropicFake) -> AsyncIterator[Gateway]:
    embedder, verifier, bound = Embedder(), Verifier(), FixedBound()
    embedder.angles[ASKED] = 0.5
    verifier.table[ASKED, STORED] = 0.97
    upstream = {
        "name": "claude", "kind": "anthropic", "base_url": claude.base_url, "models": ["claude-*"],
        "api_key_env": "FAKE_KEY", "max_tokens": 50,
    }  # fmt: skip
    async with FakeUpstream() as unused:
        made = running_gateway(unused, {"upstreams": [upstream]}, models=models(embedder, verifier, bound))
        async with made as running:
            yield running


async def ask(gateway: Gateway, words: str, content: Any = None, **more: Any) -> tuple[str, str, Any]:
    """Tier, reason and the body."""
    body = {
        "model": "claude-x", "max_tokens": 50, **more,
        "messages": [*more.get("messages", ()), {"role": "user", "content": content or words}],
    }  # fmt: skip
    async with gateway.http.post(f"{gateway.base_url}/messages", json=body) as response:
        raw = await response.read()
    assert response.status == 200, raw
    await gateway.stored()
    return response.headers["x-strata-tier"], response.headers["x-strata-reason"], raw


async def test_other_words_get_the_stored_message(claude: AnthropicFake, gateway: Gateway) -> None:
    _, _, stored = await ask(gateway, STORED)
    tier, reason, body = await ask(gateway, ASKED)
    assert (tier, reason) == ("semantic", "semantic")
    assert body == stored
    assert b"message_stop" in (await ask(gateway, ASKED, stream=True))[2]
    assert claude.message_calls == 1


async def test_a_chat_client_gets_it_too(claude: AnthropicFake, gateway: Gateway) -> None:
    await ask(gateway, STORED)
    said = {"model": "claude-x", "messages": [{"role": "user", "content": ASKED}]}
    status, headers, answer = await gateway.ask(said)
    assert (status, headers["x-strata-tier"]) == (200, "semantic")
    assert answer["choices"][0]["message"]["content"] == "Knead, wait, bake."
    assert claude.message_calls == 1


@pytest.mark.parametrize(
    "more",
    [
        {"system": "You are a pirate."},
        {"system": [{"type": "text", "text": "You are a pirate."}]},
        {"model": "claude-y"},
        {"max_tokens": 51},
        {"tools": [TOOL]},
        {"content": [IMAGE, {"type": "text", "text": ASKED}]},
        {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2000},
    ],
)
async def test_another_context_is_another_question(
    claude: AnthropicFake, gateway: Gateway, more: dict[str, Any]
) -> None:
    await ask(gateway, STORED)
    assert (await ask(gateway, ASKED, **more))[0] == "none"
    assert claude.message_calls == 2


async def test_calls_of_tools_are_not_shared(claude: AnthropicFake, gateway: Gateway) -> None:
    claude.default = Message(content=[{"type": "tool_use", "id": "t", "name": "f", "input": {}}])
    await ask(gateway, STORED, tools=[TOOL])
    assert (await ask(gateway, ASKED, tools=[TOOL]))[0] == "none"
    assert claude.message_calls == 2


async def test_feedback_takes_an_answer_back(claude: AnthropicFake, gateway: Gateway) -> None:
    await ask(gateway, STORED)
    async with aiohttp.ClientSession() as http:
        body = {"model": "claude-x", "max_tokens": 50, "messages": [{"role": "user", "content": ASKED}]}
        async with http.post(f"{gateway.base_url}/messages", json=body) as response:
            entry = response.headers["x-strata-entry"]
        verdict = msgspec.json.encode({"entry": entry, "verdict": "wrong"})
        async with http.post(f"{gateway.base_url}/feedback", data=verdict) as told:
            assert told.status == 200
    assert (await ask(gateway, ASKED))[0] == "none"
