"""``/v1/embeddings`` by the real SDK: cached per input, in the right order, in either form, and sent as one call."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import numpy as np
import openai
import pytest
from tests.fakes.upstream import Call, FakeUpstream, Reply
from tests.harness import Gateway, running_gateway

MODEL = "fake-model"


def vector_of(value: Any) -> list[float]:
    """Tells inputs apart; every number is a float32."""
    seed = sum(value) if isinstance(value, list) else sum(value.encode())
    return [float(np.float32(seed / 7)), float(len(value)), -0.1]


def respond(call: Call) -> Reply:
    asked = call.json["input"]
    inputs = [asked] if isinstance(asked, str) or isinstance(asked[0], int) else asked
    if "bad" in inputs:
        return Reply(status=400, text="one of them is bad")
    if "busy" in inputs:
        return Reply(status=429, text="slow down", headers={"retry-after": "7"})
    rows = []
    for index, one in enumerate(inputs):
        vector: Any = vector_of(one)
        if call.json.get("encoding_format") == "base64":
            vector = base64.b64encode(np.asarray(vector, "<f4").tobytes()).decode()
        rows.append({"object": "embedding", "index": index, "embedding": vector})
    tokens = sum(len(one) for one in inputs)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return Reply(body={"object": "list", "model": MODEL, "data": rows[::-1], "usage": usage})


@pytest.fixture
async def fake() -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream() as server:
        # Every path but chat's is answered from ``routes``; this one computes.
        choose = server._choose
        server._choose = lambda call: respond(call) if call.path == "/v1/embeddings" else choose(call)  # type: ignore[method-assign]
        yield server


@pytest.fixture
async def gateway(fake: FakeUpstream) -> AsyncIterator[Gateway]:
    async with running_gateway(fake) as running:
        yield running


class Asked:
    """One answer: its outcome, how many inputs were cached, and the vectors."""

    def __init__(self, raw: Any) -> None:
        self.headers = raw.headers
        self.outcome, self.cached = raw.headers["x-strata-cache"], raw.headers["x-strata-inputs-cached"]
        self.answer = raw.parse()
        assert [row.index for row in self.answer.data] == list(range(len(self.answer.data)))
        self.vectors = [row.embedding for row in self.answer.data]


async def embed(gateway: Gateway, value: Any, **more: Any) -> Asked:
    async with openai.AsyncOpenAI(base_url=gateway.base_url, api_key="sk", max_retries=0) as client:
        raw = await client.embeddings.with_raw_response.create(model=MODEL, input=value, **more)
    await gateway.stored()
    return Asked(raw)


def inputs_sent(fake: FakeUpstream) -> list[Any]:
    return [call.json["input"] for call in fake.calls]


@pytest.mark.parametrize("value", ["one", ["one"], ["one", "two", "three"], [1, 2, 3], [[1, 2], [3]]])
async def test_a_repetition_is_a_hit_with_the_same_vectors(
    fake: FakeUpstream, gateway: Gateway, value: Any
) -> None:
    first, second = await embed(gateway, value), await embed(gateway, value)
    inputs = [value] if isinstance(value, str) or isinstance(value[0], int) else value
    assert (first.outcome, second.outcome) == ("miss", "hit")
    assert (first.cached, second.cached) == (f"0/{len(inputs)}", f"{len(inputs)}/{len(inputs)}")
    assert first.answer == second.answer
    assert first.vectors == [pytest.approx(vector_of(one)) for one in inputs]
    assert first.answer.usage.prompt_tokens == sum(map(len, inputs))
    assert second.headers["x-strata-saved-tokens"] == str(sum(map(len, inputs)))
    assert len(fake.calls) == 1


async def test_only_what_is_missing_is_computed_and_in_its_place(
    fake: FakeUpstream, gateway: Gateway
) -> None:
    await embed(gateway, ["b", "dd"])
    mixed = await embed(gateway, ["a", "b", "ccc", "dd", "a"])
    assert (mixed.outcome, mixed.cached) == ("miss", "3/5")  # the second "a" joined the first
    assert mixed.vectors == [pytest.approx(vector_of(one)) for one in ("a", "b", "ccc", "dd", "a")]
    assert inputs_sent(fake) == [["b", "dd"], ["a", "ccc"]]
    assert mixed.answer.usage.prompt_tokens == 8


async def test_floats_and_base64_share_an_entry(fake: FakeUpstream, gateway: Gateway) -> None:
    for first, second in (("float", "base64"), ("base64", "float")):
        words = f"{first} first"
        for encoding in (first, second):
            body = {"model": MODEL, "input": words, "encoding_format": encoding}
            async with gateway.http.post(f"{gateway.base_url}/embeddings", json=body) as response:
                got = msgspec.json.decode(await response.read())["data"][0]["embedding"]
            await gateway.stored()
            if encoding == "base64":
                got = np.frombuffer(base64.b64decode(got), "<f4").tolist()
            assert got == pytest.approx(vector_of(words))
    assert len(fake.calls) == 2


@pytest.mark.parametrize("more", [{"dimensions": 2}, {"extra_body": {"input_type": "query"}}])
async def test_settings_are_in_the_key_and_labels_are_not(
    fake: FakeUpstream, gateway: Gateway, more: dict[str, Any]
) -> None:
    await embed(gateway, "one")
    assert (await embed(gateway, "one", user="ann")).outcome == "hit"
    assert (await embed(gateway, "one", **more)).outcome == "miss"
    assert (await embed(gateway, "One")).outcome == "miss"
    assert (await embed(gateway, "one ")).outcome == "miss"


async def test_clients_at_one_moment_share_calls_and_equal_inputs(
    fake: FakeUpstream, gateway: Gateway
) -> None:
    wanted = [["a", "b"], ["b", "c"], ["c", "d"]]
    answers = await asyncio.gather(*(embed(gateway, value) for value in wanted))
    for value, answer in zip(wanted, answers, strict=True):
        assert answer.vectors == [pytest.approx(vector_of(one)) for one in value]
    sent = [one for value in inputs_sent(fake) for one in ([value] if isinstance(value, str) else value)]
    assert sorted(sent) == ["a", "b", "c", "d"]


async def test_a_fault_of_one_input_costs_the_others_nothing(fake: FakeUpstream, gateway: Gateway) -> None:
    with pytest.raises(openai.BadRequestError, match="one of them is bad"):
        await embed(gateway, ["good", "bad"])
    assert (await embed(gateway, "good")).outcome == "hit"
    with pytest.raises(openai.BadRequestError):
        await embed(gateway, "bad")


async def test_an_upstream_that_is_busy_is_heard_once(fake: FakeUpstream, gateway: Gateway) -> None:
    with pytest.raises(openai.RateLimitError, match="slow down") as told:
        await embed(gateway, ["good", "busy"])
    assert told.value.response.headers["retry-after"] == "7"
    assert len(fake.calls) == 1


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{"index": 0, "embedding": [1.0]}],
        [{"index": 0, "embedding": [1.0]}, {"index": 0, "embedding": [1.0]}],
        [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": ["x"]}],
        [{"index": 0, "embedding": [1.0]}, {"index": 1}],
    ],
)
async def test_an_answer_that_is_not_one_vector_each_is_refused(
    fake: FakeUpstream, gateway: Gateway, rows: list[Any]
) -> None:
    fake._choose = lambda call: Reply(body={"object": "list", "data": rows})  # type: ignore[method-assign]
    with pytest.raises(openai.InternalServerError, match="one embedding per input"):
        await embed(gateway, ["a", "b"])


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"model": MODEL}, "input"),
        ({"model": MODEL, "input": []}, "input"),
        ({"model": MODEL, "input": [""] * 2049}, "input"),
        ({"model": MODEL, "input": ["a", 1]}, "input[1]"),
        ({"model": MODEL, "input": ["a", ["b"]]}, "input[1]"),
        ({"model": MODEL, "input": [[]]}, "input[0]"),
        ({"model": MODEL, "input": "a", "encoding_format": "int8"}, "encoding_format"),
        ({"input": "a"}, "model"),
    ],
)
async def test_what_is_refused(gateway: Gateway, body: dict[str, Any], param: str) -> None:
    async with gateway.http.post(f"{gateway.base_url}/embeddings", json=body) as response:
        assert response.status == 400
        assert msgspec.json.decode(await response.read())["error"]["param"] == param


async def test_only_if_cached_asks_nobody(fake: FakeUpstream, gateway: Gateway) -> None:
    await embed(gateway, "a")
    headers = {"cache-control": "only-if-cached"}
    assert (await embed(gateway, "a", extra_headers=headers)).outcome == "hit"
    with pytest.raises(openai.InternalServerError, match="no cached answer"):
        await embed(gateway, ["a", "b"], extra_headers=headers)
    assert len(fake.calls) == 1
