"""``/v1/completions`` by the official SDK: cached, replayed in either form, and never what is not whole."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from tests.fakes.completions import LOGPROBS, completing, said
from tests.fakes.upstream import FakeUpstream, Reply
from tests.harness import Gateway, running_gateway

ANSWER = said([" two three", " zwei drei 🙂"])
ASKED: dict[str, Any] = {"model": "fake-model", "prompt": "one", "n": 2}


async def ask(gateway: Gateway, **more: Any) -> tuple[str, Any]:
    async with openai.AsyncOpenAI(base_url=gateway.base_url, api_key="x", max_retries=0) as client:
        raw = await client.completions.with_raw_response.create(**{**ASKED, **more})
        await gateway.stored()
        return raw.headers["x-strata-reason"], raw.parse()


async def streamed(gateway: Gateway, **more: Any) -> tuple[list[str], Any]:
    """The texts of a stream, and its usage."""
    texts = ["", ""]
    usage = None
    async with openai.AsyncOpenAI(base_url=gateway.base_url, api_key="x", max_retries=0) as client:
        stream = await client.completions.create(**{**ASKED, **more}, stream=True)
        async for chunk in stream:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                texts[choice.index] += choice.text
    await gateway.stored()
    return texts, usage


@pytest.fixture
async def fake() -> Any:
    async with FakeUpstream() as made:
        made.dispatch = completing(ANSWER)
        yield made


async def test_a_second_call_is_a_hit_with_the_same_answer(fake: FakeUpstream) -> None:
    async with running_gateway(fake) as gateway:
        first, one = await ask(gateway)
        again, other = await ask(gateway, user="ann")
        assert (first, again) == ("not_found", "exact")
        assert one.to_dict() == other.to_dict() == ANSWER
        assert len(fake.calls) == 1


@pytest.mark.parametrize("begun", ["json", "stream"])
async def test_either_form_answers_either_form(fake: FakeUpstream, begun: str) -> None:
    texts = [choice["text"] for choice in ANSWER["choices"]]
    async with running_gateway(fake) as gateway:
        if begun == "json":
            await ask(gateway)
        else:
            assert await streamed(gateway) == (texts, None)
        assert (await streamed(gateway))[0] == texts
        told, usage = await streamed(gateway, stream_options={"include_usage": True})
        assert told == texts
        assert usage.to_dict() == ANSWER["usage"]
        reason, whole = await ask(gateway)
        assert reason == "exact"
        assert whole.to_dict() == ANSWER
        assert len(fake.calls) == 1


@pytest.mark.parametrize(
    "changed",
    [{"prompt": "One"}, {"prompt": ["one"]}, {"suffix": "."}, {"temperature": 0}, {"echo": True}, {"best_of": 3},
     {"logprobs": 2}, {"extra_body": {"a_field_of_next_year": 1}}],
)  # fmt: skip
async def test_whatever_can_change_the_answer_is_in_the_key(
    fake: FakeUpstream, changed: dict[str, Any]
) -> None:
    async with running_gateway(fake) as gateway:
        await ask(gateway)
        assert (await ask(gateway, **changed))[0] != "exact"
        assert len(fake.calls) == 2


@pytest.mark.parametrize(
    ("answer", "why"),
    [(said([" two"], finish_reason="length"), "truncated"), (said([" "]), "empty"),
     (said([" two"], finish_reason="content_filter"), "refused"), (said([" two"], finish_reason=None), "unfinished"),
     ({**said([" two"]), "choices": []}, "unfinished"), (said([" two"], text=None), "malformed")],
)  # fmt: skip
async def test_what_is_not_a_whole_answer_is_never_stored(
    fake: FakeUpstream, answer: dict[str, Any], why: str
) -> None:
    fake.dispatch = completing(answer)
    async with running_gateway(fake, {"tiers": {"exact": {"negative_ttl": "0s"}}}) as gateway:
        for _ in range(2):
            assert (await ask(gateway))[0] == "not_found"
        assert len(fake.calls) == 2


async def test_log_probabilities_survive_a_replay(fake: FakeUpstream) -> None:
    fake.dispatch = completing(said([" two three"], logprobs=LOGPROBS))
    async with running_gateway(fake) as gateway:
        await ask(gateway, n=1, logprobs=1)
        async with openai.AsyncOpenAI(base_url=gateway.base_url, api_key="x") as client:
            stream = await client.completions.create(**{**ASKED, "n": 1}, logprobs=1, stream=True)
            pieces = [chunk.choices[0] async for chunk in stream]
        assert "".join(piece.text for piece in pieces) == " two three"
        assert [piece.logprobs.to_dict() for piece in pieces if piece.logprobs] == [LOGPROBS]
        assert pieces[-1].finish_reason == "stop"


@pytest.mark.parametrize(
    ("prompt", "param"),
    [(None, "prompt"), (7, "prompt"), ([], "prompt"), ([None], "prompt[0]"), (["a", 1], "prompt[1]"),
     ([[1, "a"]], "prompt[0]")],
)  # fmt: skip
async def test_a_wrong_prompt_is_said_where_it_is(fake: FakeUpstream, prompt: Any, param: str) -> None:
    async with running_gateway(fake) as gateway:
        with pytest.raises(openai.BadRequestError) as caught:
            await ask(gateway, prompt=prompt)
        assert caught.value.param == param
        assert not fake.calls


async def test_an_upstream_without_it_is_heard(fake: FakeUpstream) -> None:
    fake.dispatch = lambda call: Reply(status=404, text="no such path")
    async with running_gateway(fake) as gateway:
        with pytest.raises(openai.NotFoundError, match="no such path"):
            await ask(gateway)
