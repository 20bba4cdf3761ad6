"""Stable prefixes, divergences and siblings through the gateway, before a fake that holds to Anthropic's rules."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import pytest
from tests.fakes.upstream import FakeUpstream
from tests.harness import ENVIRON, Gateway, running_gateway
from tests.prompt_kit import CLAUDE, tool, user, words

from stratacache.testing import AnthropicFake, ApiError, Message
from stratacache.testing.server import Gate

SYSTEM = words(2000, "policy")
BOTH = {"canonicalise": True, "relocate_volatile": True}


@pytest.fixture
async def claude() -> AsyncIterator[AnthropicFake]:
    async with AnthropicFake({ENVIRON["FAKE_KEY"]: "ours"}) as server:
        yield server


@asynccontextmanager
async def before(claude: AnthropicFake, **prompt: Any) -> AsyncIterator[tuple[Gateway, Any]]:
    upstream = {
        "name": "claude", "kind": "anthropic", "base_url": claude.base_url, "models": ["claude-*"], "retries": 0,
        "api_key_env": "FAKE_KEY", "provider": "anthropic",
    }  # fmt: skip
    config = {"upstreams": [upstream], "tiers": {"prompt": prompt}}
    async with (
        FakeUpstream() as unused,
        running_gateway(unused, config) as gateway,
        anthropic.AsyncAnthropic(base_url=gateway.root, api_key="sk-any", max_retries=0) as client,
    ):
        yield gateway, client
        assert gateway.system.prefixes is not None
        gateway.system.prefixes.check()
        gateway.system.siblings.check()


async def ask(
    client: Any, question: str, system: str = SYSTEM, *, conversation: str = "", **more: Any
) -> Any:
    """The raw response, which has headers."""
    headers = {"x-strata-conversation": conversation} if conversation else {}
    return await client.messages.with_raw_response.create(
        model=CLAUDE, max_tokens=50, system=system, messages=[user(question)], extra_headers=headers, **more
    )


async def streamed(client: Any, question: str) -> None:
    asked = [user(question)]
    async with client.messages.stream(model=CLAUDE, max_tokens=50, system=SYSTEM, messages=asked) as events:
        await events.get_final_message()


async def until_waiting(gateway: Gateway, count: int) -> None:
    while gateway.system.siblings.waiting < count:  # noqa: ASYNC110 - production has no use for an event
        await asyncio.sleep(0)


@pytest.mark.parametrize("stream", [False, True])
async def test_of_eight_siblings_one_writes_and_seven_read(claude: AnthropicFake, stream: bool) -> None:
    gate = Gate()
    claude.script(Message(gates={0: gate}) if stream else Message(header_gate=gate))
    async with before(claude, sibling_wait="60s") as (gateway, client):
        asked = [
            asyncio.create_task((streamed if stream else ask)(client, f"question {n}")) for n in range(8)
        ]
        await gate.reached.wait()
        await until_waiting(gateway, 7)
        assert len(claude.calls) == 1
        gate.open()
        await asyncio.gather(*asked)
        assert gateway.system.metrics.figures().counters["siblings"] == {"began": 7}
    assert sorted(usage.read > 2000 for usage in claude.usages) == [False, *[True] * 7]
    assert [usage.written > 2000 for usage in claude.usages].count(True) == 1


async def test_without_waiting_all_of_them_write(claude: AnthropicFake) -> None:
    gate = Gate()
    claude.default = Message(header_gate=gate)
    async with before(claude, sibling_wait=0) as (_, client):
        asked = [asyncio.create_task(ask(client, f"question {n}")) for n in range(8)]
        while len(claude.calls) < 8:  # noqa: ASYNC110 - the fake has no event for it
            await asyncio.sleep(0)
        gate.open()
        await asyncio.gather(*asked)
    assert [usage.written > 2000 for usage in claude.usages].count(True) == 8


async def test_when_the_first_ends_without_an_answer_another_writes(claude: AnthropicFake) -> None:
    gate = Gate()
    claude.script(Message(header_gate=gate))
    async with before(claude, sibling_wait="60s") as (gateway, client):
        asked = [asyncio.create_task(ask(client, f"question {n}")) for n in range(4)]
        await gate.reached.wait()
        await until_waiting(gateway, 3)
        asked[0].cancel()  # its client hangs up, and with it the call ends
        await asyncio.gather(*asked[1:])
    assert [usage.written > 2000 for usage in claude.usages].count(True) == 1


async def test_nobody_waits_longer_than_the_setting_says(claude: AnthropicFake) -> None:
    gate = Gate()
    claude.script(Message(header_gate=gate))
    async with before(claude, sibling_wait="10ms") as (gateway, client):
        first = asyncio.create_task(ask(client, "question 0"))
        await gate.reached.wait()
        await ask(client, "question 1")
        gate.open()
        await first
        assert gateway.system.metrics.figures().counters["siblings"] == {"expired": 1}


async def test_a_clock_is_told_in_header_metric_and_list(claude: AnthropicFake) -> None:
    async with before(claude) as (gateway, client):
        said = []
        for second in (12, 13):
            system = f"Current Date & Time: 2026-12-03T14:05:{second}.919Z {SYSTEM}"
            response = await ask(client, "question", system, conversation="c1")
            said.append(response.headers.get("x-strata-prompt-divergence"))
        assert said[0] is None
        where, offset, lost, cause = said[1].split(";")
        assert (where, cause) == ("system", "cause=clock")
        assert int(offset.removeprefix("offset=")) < 128
        assert int(lost.removeprefix("lost=")) > 2000
        assert gateway.system.metrics.figures().counters["diverged"] == {"clock": 1}
        async with gateway.http.get(f"{gateway.root}/admin/divergences") as answer:
            (told,) = (await answer.json())["divergences"]
    assert (told["segment"], told["cause"], told["model"]) == ("system[0]", "clock", CLAUDE)
    assert "14:05" not in str(told)
    assert "policy" not in str(told)


async def test_a_conversation_that_goes_on_has_no_such_header(claude: AnthropicFake) -> None:
    async with before(claude) as (_, client):
        first = await ask(client, "question 1", conversation="c1")
        again = await ask(client, "question 2", conversation="")
    assert "x-strata-prompt-divergence" not in {*first.headers, *again.headers}


def clocked(second: int, *tools: str) -> dict[str, Any]:
    system = f"Current Date & Time: 2026-12-03T14:05:{second}.919Z\nUser: Anna Smith\n{SYSTEM}"
    return {"system": system, "tools": [tool(name) for name in tools]}


async def test_stable_prefixes_are_read_though_clock_and_order_change(claude: AnthropicFake) -> None:
    async with before(claude, **BOTH) as (_, client):
        await ask(client, "question 1", **clocked(12, "a", "b"))
        response = await ask(client, "question 2", **clocked(13, "b", "a"))
        assert "x-strata-prompt-divergence" not in response.headers
    assert claude.usages[1].read > 2000
    last = claude.calls[1].json["messages"][-1]["content"]
    assert "2026-12-03T14:05:13.919Z" in str(last)
    assert "Anna Smith" in str(last)


async def test_without_the_settings_nothing_is_read(claude: AnthropicFake) -> None:
    async with before(claude) as (_, client):
        await ask(client, "question 1", **clocked(12, "a", "b"))
        await ask(client, "question 2", **clocked(13, "b", "a"))
    assert claude.usages[1].read == 0
    assert claude.calls[1].json["tools"][0]["name"] == "b"


async def test_no_answer_crosses_system_prompts_because_they_are_sent_alike(claude: AnthropicFake) -> None:
    async with before(claude, **BOTH) as (gateway, client):
        for second in (12, 13):
            response = await ask(client, "question", **clocked(second, "a"))
            await gateway.stored()
            assert response.headers["x-strata-cache"] == "miss"
    assert claude.message_calls == 2


async def test_what_a_server_refuses_when_changed_goes_again_as_it_came(claude: AnthropicFake) -> None:
    claude.responder = lambda call: (
        ApiError(400, "what value?") if "[value 1" in str(call.json["system"]) else Message()
    )
    async with before(claude, **BOTH) as (_, client):
        await ask(client, "question", **clocked(12, "b", "a"))
    assert claude.calls[1].json["system"] == clocked(12)["system"]
    assert [one["name"] for one in claude.calls[1].json["tools"]] == ["b", "a"]
