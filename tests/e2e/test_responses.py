"""``/v1/responses`` by the official SDK: cached, replayed in either form, tools, structured output."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import openai
import pytest
from pydantic import BaseModel
from tests.fakes.responses import (
    CALL,
    OTHER_CALL,
    THOUGHT,
    encoded,
    events,
    responding,
    response,
    text_item,
)
from tests.fakes.upstream import Call, FakeUpstream, Reply
from tests.harness import Gateway, running_gateway

TEXT = "Paris has 2,102,650 people, says the census. 巴黎 🇫🇷"
WHOLE = response(THOUGHT, text_item(TEXT))
ASKED: dict[str, Any] = {"model": "fake-model", "input": "How many people live in Paris?", "store": False}
TOOLS: Any = [
    {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}, "strict": False}
    for name in ("weather", "time")
]


@pytest.fixture
async def fake() -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream() as made:
        made.dispatch = responding(WHOLE)
        yield made


@pytest.fixture
async def gateway(fake: FakeUpstream) -> AsyncIterator[Gateway]:
    async with running_gateway(fake) as made:
        yield made


def sdk(gateway: Gateway) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=gateway.base_url, api_key="x", max_retries=0)


async def ask(gateway: Gateway, **more: Any) -> tuple[str, Any]:
    async with sdk(gateway) as client:
        raw = await client.responses.with_raw_response.create(**{**ASKED, **more})
        await gateway.stored()
        return raw.headers["x-strata-reason"], raw.parse()


async def streamed(gateway: Gateway, **more: Any) -> tuple[list[str], Any]:
    """The types of the events, and the answer that the SDK makes of them."""
    asked = {**ASKED, **more}
    async with sdk(gateway) as client, client.responses.stream(**asked) as stream:
        seen = [event async for event in stream]
        final = await stream.get_final_response()
    await gateway.stored()
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    return [event.type for event in seen], final


async def test_a_second_call_is_a_hit_with_the_same_answer(fake: FakeUpstream, gateway: Gateway) -> None:
    first, one = await ask(gateway)
    again, other = await ask(gateway, input="  How many people live in Paris ?")
    assert (first, again) == ("not_found", "exact")
    assert one.output_text == other.output_text == TEXT
    assert msgspec.json.decode(other.to_json()) == msgspec.json.decode(one.to_json())
    assert len(fake.calls) == 1


@pytest.mark.parametrize("begun", ["json", "stream"])
async def test_either_form_answers_either_form(fake: FakeUpstream, gateway: Gateway, begun: str) -> None:
    if begun == "json":
        await ask(gateway)
    else:
        kinds, final = await streamed(gateway)
        assert final.output_text == TEXT
    kinds, final = await streamed(gateway)
    assert final.output[0].to_dict() == THOUGHT
    assert final.output_text == TEXT
    assert final.usage.input_tokens_details.cached_tokens == 8
    assert kinds[:3] == ["response.created", "response.in_progress", "response.output_item.added"]
    assert "response.reasoning_summary_text.delta" in kinds
    assert kinds.count("response.output_text.delta") >= 2
    assert kinds[-2:] == ["response.output_item.done", "response.completed"]
    reason, whole = await ask(gateway)
    assert reason == "exact"
    assert whole.to_dict(mode="json") == WHOLE
    assert len(fake.calls) == 1


async def test_a_live_stream_is_passed_on_as_it_came(gateway: Gateway) -> None:
    status, _, body = await gateway.ask({**ASKED, "stream": True}, path="/responses")
    assert status == 200
    assert body == b"".join(encoded(events(WHOLE)))


async def test_a_loop_of_parallel_tool_calls(fake: FakeUpstream, gateway: Gateway) -> None:
    def answer(call: Call) -> dict[str, Any]:
        done = any(item.get("type") == "function_call_output" for item in call.json["input"])
        return response(text_item("Sunny, noon.")) if done else response(CALL, OTHER_CALL)

    fake.dispatch = responding(answer)
    question: list[Any] = [{"role": "user", "content": "Weather and time in Zürich?"}]
    for expected in ("not_found", "exact"):
        reason, first = await ask(gateway, input=question, tools=TOOLS)
        assert reason == expected
        calls = [item for item in first.output if item.type == "function_call"]
        assert [(c.name, c.arguments) for c in calls] == [("weather", '{"city":"Zürich"}'), ("time", "{}")]
        results = [{"type": "function_call_output", "call_id": c.call_id, "output": "ok"} for c in calls]
        reason, last = await ask(
            gateway, input=[*question, *(c.to_dict() for c in calls), *results], tools=TOOLS
        )
        assert (reason, last.output_text) == (expected, "Sunny, noon.")
    kinds, final = await streamed(gateway, input=question, tools=TOOLS)
    assert kinds.count("response.function_call_arguments.done") == 2
    assert [item.arguments for item in final.output] == ['{"city":"Zürich"}', "{}"]
    assert len(fake.calls) == 2


class Capital(BaseModel):
    city: str
    people: int


async def test_structured_output_is_parsed(fake: FakeUpstream, gateway: Gateway) -> None:
    fake.dispatch = responding(response(text_item('{"city": "Paris", "people": 2102650}')))
    for _ in range(2):
        async with sdk(gateway) as client:
            parsed = await client.responses.parse(**ASKED, text_format=Capital)
        await gateway.stored()
        assert parsed.output_parsed == Capital(city="Paris", people=2102650)
    assert len(fake.calls) == 1


@pytest.mark.parametrize(
    "changed",
    [{"instructions": "Be brief."}, {"temperature": 0}, {"max_output_tokens": 9}, {"tools": TOOLS}, {"user": "ann"},
     {"metadata": {"a": "b"}}, {"reasoning": {"effort": "low"}}, {"text": {"verbosity": "low"}},
     {"include": ["reasoning.encrypted_content"]}, {"input": "How many people live in Rome?"},
     {"input": [{"role": "developer", "content": ASKED["input"]}]}, {"extra_body": {"a_field_of_next_year": 1}},
     {"input": [{"role": "user", "content": [{"type": "input_text", "text": ASKED["input"]},
                                             {"type": "input_image", "image_url": "https://x/y.png"}]}]}],
)  # fmt: skip
async def test_whatever_can_change_the_answer_is_in_the_key(
    fake: FakeUpstream, gateway: Gateway, changed: dict[str, Any]
) -> None:
    """Also what the answer repeats of its request: whose ``user`` it names is nobody else's business."""
    await ask(gateway)
    assert (await ask(gateway, **changed))[0] != "exact"
    assert len(fake.calls) == 2


@pytest.mark.parametrize(
    ("told", "reason"),
    [({"store": True}, "stored_upstream"), ({"store": openai.omit}, "stored_upstream"),
     ({"store": None}, "stored_upstream"),
     ({"previous_response_id": "resp_0"}, "kept_upstream"), ({"conversation": "conv_1"}, "kept_upstream"),
     ({"prompt": {"id": "pmpt_1"}}, "kept_upstream"), ({"background": True}, "stored_upstream"),
     ({"input": [{"type": "item_reference", "id": "msg_1"}, {"role": "user", "content": "And?"}]}, "kept_upstream"),
     ({"tools": [{"type": "web_search"}]}, "hosted_tool"),
     ({"tools": [{"type": "mcp", "server_label": "x"}]}, "hosted_tool")],
)  # fmt: skip
async def test_what_the_provider_keeps_or_does_is_never_cached(
    fake: FakeUpstream, gateway: Gateway, told: dict[str, Any], reason: str
) -> None:
    for _ in range(2):
        assert (await ask(gateway, **told))[0] == reason
    assert len(fake.calls) == 2


@pytest.mark.parametrize(
    "answer",
    [response(text_item("Par"), status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
     response(status="failed", error={"code": "server_error", "message": "no"}), response(),
     response(text_item("Hm"), status="queued"), response(text_item(" ")),
     response({**text_item(""), "content": [{"type": "refusal", "refusal": "I cannot."}]}),
     response({**CALL, "arguments": "{"}), response({"id": "ws_1", "type": "web_search_call", "status": "completed"}),
     response({**text_item("Par"), "status": "incomplete"})],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
async def test_what_is_not_a_whole_answer_is_never_stored(
    fake: FakeUpstream, answer: dict[str, Any], stream: bool
) -> None:
    known = answer["status"] in ("completed", "incomplete", "failed")
    fake.dispatch = responding(answer)
    async with running_gateway(fake, {"tiers": {"exact": {"negative_ttl": "0s"}}}) as gateway:
        for _ in range(2):
            status, headers, _ = await gateway.ask({**ASKED, "stream": stream and known}, path="/responses")
            assert (status, headers["x-strata-reason"]) == (200, "not_found")
            await gateway.stored()
        assert len(fake.calls) == 2


@pytest.mark.parametrize("fault", ["cut", "other text", "error event"])
async def test_a_stream_that_does_not_end_as_it_should_is_never_stored(
    fake: FakeUpstream, gateway: Gateway, fault: str
) -> None:
    told = list(events(WHOLE))
    if fault == "cut":
        told = told[:-1]
    elif fault == "other text":
        told[-1] = {"type": "response.completed", "response": response(THOUGHT, text_item("Rome."))}
    else:
        told.insert(-1, {"type": "error", "code": "server_error", "message": "no", "param": None})
    fake.dispatch = lambda call: Reply(raw=encoded(iter(told)), content_type="text/event-stream")
    for _ in range(2):
        status, headers, _ = await gateway.ask({**ASKED, "stream": True}, path="/responses")
        assert (status, headers["x-strata-reason"]) == (200, "not_found")
        await gateway.stored()
    assert len(fake.calls) == 2


async def test_followers_of_a_stream_share_one_call(fake: FakeUpstream, gateway: Gateway) -> None:
    finals = await asyncio.gather(*[streamed(gateway) for _ in range(8)])
    assert {final.output_text for _, final in finals} == {TEXT}
    assert len(fake.calls) == 1


@pytest.mark.parametrize(
    ("wrong", "param"),
    [({"input": None}, "input"), ({"input": []}, "input"), ({"input": ["a"]}, "input[0]"), ({"input": 3}, "input"),
     ({"input": [{"role": "user", "content": [{"text": "a"}]}]}, "input[0].content[0].type"),
     ({"instructions": 3}, "instructions"), ({"extra_body": {"messages": []}}, "messages")],
)  # fmt: skip
async def test_a_wrong_field_is_said_where_it_is(
    fake: FakeUpstream, gateway: Gateway, wrong: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await ask(gateway, **wrong)
    assert caught.value.param == param
    assert not fake.calls
