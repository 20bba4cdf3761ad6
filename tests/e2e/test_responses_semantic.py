"""The semantic tier for the Responses API: other words, the same answer; and all that keeps two questions apart."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.fakes.responses import CALL, responding, response, text_item
from tests.fakes.upstream import FakeUpstream
from tests.harness import Gateway, running_gateway
from tests.semantic_kit import Embedder, FixedBound, Verifier, models

STORED = "What is the way to bake bread?"
ASKED = "how do you bake bread at home"
IMAGE = {"type": "input_image", "image_url": "https://x.test/y.png"}
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}}
TURNS = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello!"}]


@pytest.fixture
async def fake() -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream() as made:
        made.dispatch = responding(response(text_item("Knead, wait, bake.")))
        yield made


@pytest.fixture
async def gateway(fake: FakeUpstream) -> AsyncIterator[Gateway]:
    embedder, verifier = Embedder(), Verifier()
    embedder.angles[ASKED] = 0.5
    verifier.table[ASKED, STORED] = 0.97
    async with running_gateway(fake, models=models(embedder, verifier, FixedBound())) as made:
        yield made


async def ask(gateway: Gateway, told: Any, **more: Any) -> tuple[str, Any]:
    """The tier, or the reason why there is none, and the body."""
    body = {"model": "fake-model", "input": told, "store": False, **more}
    status, headers, answer = await gateway.ask(body, path="/responses")
    assert status == 200, answer
    await gateway.stored()
    tier = headers["x-strata-tier"]
    return headers["x-strata-reason"] if tier == "none" else tier, answer


def message(*content: Any) -> list[Any]:
    return [{"type": "message", "role": "user", "content": list(content)}]


def text(words: str) -> dict[str, str]:
    return {"type": "input_text", "text": words}


async def test_other_words_get_the_stored_answer(fake: FakeUpstream, gateway: Gateway) -> None:
    _, stored = await ask(gateway, STORED)
    for told in (ASKED, [{"role": "user", "content": ASKED}]):
        assert await ask(gateway, told) == ("semantic", stored)
    _, events = await ask(gateway, ASKED, stream=True)
    assert b"event: response.completed" in events
    assert len(fake.calls) == 1


@pytest.mark.parametrize(
    ("told", "more"),
    [
        (ASKED, {"instructions": "You are a pirate."}),
        (ASKED, {"tools": [TOOL]}),
        (ASKED, {"temperature": 0}),
        (ASKED, {"user": "ann"}),
        (ASKED, {"text": {"format": {"type": "json_object"}}}),
        ([{"role": "developer", "content": "You are a pirate."}, *message(text(ASKED))], {}),
        (message(text(ASKED), IMAGE), {}),
    ],
)
async def test_nothing_leaves_its_scope(
    fake: FakeUpstream, gateway: Gateway, told: Any, more: dict[str, Any]
) -> None:
    await ask(gateway, STORED)
    assert (await ask(gateway, told, **more))[0] == "not_found"
    assert len(fake.calls) == 2


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ([*message(text("Bake!")), CALL, {"type": "function_call_output", "call_id": "call_1", "output": "ok"},
          *message(text(ASKED))], "tool_results"),
        ([*message(text(ASKED)), {"role": "assistant", "content": "Well,"}], "no_question"),
        (message(text("Mind this."), text(ASKED)), "several_texts"),
    ],
)  # fmt: skip
async def test_what_has_no_plain_question_is_left_alone(gateway: Gateway, told: Any, reason: str) -> None:
    await ask(gateway, STORED)
    assert (await ask(gateway, told))[0] == reason


async def test_after_other_turns_only_what_stands_alone(gateway: Gateway) -> None:
    await ask(gateway, STORED)
    assert (await ask(gateway, [*TURNS, {"role": "user", "content": ASKED}]))[0] == "semantic"
    leaning = [*TURNS, {"role": "user", "content": "how do you bake it"}]
    assert (await ask(gateway, leaning))[0] == "not_found"


async def test_chat_and_responses_share_nothing(fake: FakeUpstream, gateway: Gateway) -> None:
    await ask(gateway, STORED)
    status, headers, _ = await gateway.ask(
        {"model": "fake-model", "messages": [{"role": "user", "content": STORED}]}
    )
    assert (status, headers["x-strata-tier"]) == (200, "none")
    assert len(fake.calls) == 2
