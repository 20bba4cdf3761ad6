"""The gateway over real HTTP: hits, misses, streams either way, single-flight, and what is never stored."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.fakes.upstream import FakeUpstream, Gate, Reply
from tests.harness import Gateway, question, running_gateway

TOOL_CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at": "天气"}'}}


def events(raw: bytes) -> list[Any]:
    """The payloads of a stream; asserts that it is well formed and ends with [DONE]."""
    parts = raw.decode().split("\n\n")
    assert parts.pop() == ""
    assert all(part.startswith("data: ") for part in parts)
    assert parts.pop() == "data: [DONE]"
    return [msgspec.json.decode(part.removeprefix("data: ")) for part in parts]


def text_of(chunks: list[Any]) -> str:
    return "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])


async def test_second_request_is_a_hit_with_the_same_body(fake: FakeUpstream, gateway: Gateway) -> None:
    status, headers, first = await gateway.ask(question())
    assert (status, headers["x-strata-cache"], headers["x-strata-reason"]) == (200, "miss", "not_found")
    assert headers["x-strata-upstream"] == "fake"
    assert "upstream;dur=" in headers["server-timing"]
    await gateway.stored()
    gateway.clock.advance(7)
    status, headers, second = await gateway.ask(question())
    assert (status, headers["x-strata-cache"], headers["x-strata-tier"]) == (200, "hit", "exact")
    assert headers["age"] == "7"
    assert headers["x-strata-saved-tokens"] == "17"
    assert headers["server-timing"].startswith("key;dur=")
    assert second == first
    assert fake.chat_calls == 1


async def test_a_reformatted_question_is_a_hit(fake: FakeUpstream, gateway: Gateway) -> None:
    await gateway.ask(question("What is the capital of France?"))
    await gateway.stored()
    body = b"""{ "messages" : [ { "content" : "  what is  the capital of France\xef\xbc\x9f ",
                "role" : "user" } ],  "model":"fake-model" }"""
    _, headers, _ = await gateway.ask(body)
    assert headers["x-strata-cache"] == "hit"


@pytest.mark.parametrize("stored_as_stream", [False, True])
@pytest.mark.parametrize("asked_as_stream", [False, True])
async def test_either_form_answers_either_form(
    fake: FakeUpstream, gateway: Gateway, stored_as_stream: bool, asked_as_stream: bool
) -> None:
    fake.default = Reply(
        text=None,
        message={"tool_calls": [TOOL_CALL], "reasoning_content": "Let me think."},
        finish_reason="tool_calls",
    )
    await gateway.ask(question(stream=stored_as_stream))
    await gateway.stored()
    _, headers, got = await gateway.ask(question(stream=asked_as_stream))
    assert headers["x-strata-cache"] == "hit"
    if asked_as_stream:
        chunks = events(got)
        assert all(chunk["object"] == "chat.completion.chunk" for chunk in chunks)
        assert not any("usage" in chunk for chunk in chunks)
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
        assert "".join(d.get("reasoning_content") or "" for d in deltas) == "Let me think."
        pieces = [call for d in deltas for call in d.get("tool_calls") or ()]
        assert pieces[0]["id"] == "call_1"
        assert "".join(p["function"].get("arguments") or "" for p in pieces) == '{"at": "天气"}'
        assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    else:
        message = got["choices"][0]["message"]
        assert message["tool_calls"] == [TOOL_CALL]
        assert message["reasoning_content"] == "Let me think."
        assert got["usage"]["total_tokens"] == 17
    assert fake.chat_calls == 1


@pytest.mark.parametrize("asks", [False, True])
async def test_usage_comes_in_a_stream_only_when_asked(
    fake: FakeUpstream, gateway: Gateway, asks: bool
) -> None:
    body = question(stream=True, **({"stream_options": {"include_usage": True}} if asks else {}))
    _, _, live = await gateway.ask(body)
    await gateway.stored()
    _, headers, replayed = await gateway.ask(body)
    assert headers["x-strata-cache"] == "hit"
    for raw in (live, replayed):
        assert any(chunk.get("usage") for chunk in events(raw)) == asks
    assert fake.calls[0].json["stream_options"]["include_usage"] is True


async def test_an_upstream_that_refuses_stream_options_is_asked_again_without(
    fake: FakeUpstream, gateway: Gateway
) -> None:
    fake.responder = lambda call: (
        Reply(status=400, text="unknown field stream_options") if "stream_options" in call.json else Reply()
    )
    status, _, raw = await gateway.ask(question(stream=True))
    assert status == 200
    assert text_of(events(raw)) == "Hello from the fake."
    await gateway.ask(question("Another one?", stream=True))
    assert fake.chat_calls == 3


async def test_sixteen_identical_questions_make_one_call(fake: FakeUpstream, gateway: Gateway) -> None:
    gate = Gate()
    fake.default = Reply(header_gate=gate)
    asking = [asyncio.ensure_future(gateway.ask(question(stream=n % 2 == 0))) for n in range(16)]
    await gate.reached.wait()
    await gateway.listening(16)
    gate.open()
    got = await asyncio.gather(*asking)
    assert fake.chat_calls == 1
    reasons = sorted(headers["x-strata-reason"] for _, headers, _ in got)
    assert reasons == ["coalesced"] * 15 + ["not_found"]
    texts = {
        text_of(events(b)) if isinstance(b, bytes) else b["choices"][0]["message"]["content"]
        for _, _, b in got
    }
    assert texts == {"Hello from the fake."}


async def test_followers_of_a_stream_receive_chunks_live(fake: FakeUpstream, gateway: Gateway) -> None:
    gate = Gate()
    fake.default = Reply(text="one two three", gates={3: gate})
    url = f"{gateway.base_url}/chat/completions"
    async with gateway.http.post(url, json=question(stream=True)) as leader:
        await gate.reached.wait()
        async with gateway.http.post(url, json=question(stream=True)) as follower:
            assert follower.headers["x-strata-reason"] == "coalesced"
            seen = b""
            while b"two" not in seen and b"one" not in seen:
                seen += await follower.content.readany()
            assert not gate._opened.is_set()
            gate.open()
            rest = await follower.content.read()
            assert text_of(events(seen + rest)) == "one two three"
            assert text_of(events(await leader.content.read())) == "one two three"
    assert fake.chat_calls == 1


async def test_a_leader_that_hangs_up_leaves_its_followers_the_answer(
    fake: FakeUpstream, gateway: Gateway
) -> None:
    gate = Gate()
    fake.default = Reply(text="one two three", gates={2: gate})
    url = f"{gateway.base_url}/chat/completions"
    leader = await gateway.http.post(url, json=question(stream=True))
    await gate.reached.wait()
    follower = asyncio.ensure_future(gateway.ask(question()))
    await gateway.listening(2)
    leader.close()
    gate.open()
    status, _, answer = await follower
    assert status == 200
    assert answer["choices"][0]["message"]["content"] == "one two three"
    await gateway.stored()
    assert (await gateway.ask(question()))[1]["x-strata-cache"] == "hit"


async def test_when_everybody_hangs_up_the_call_is_aborted_and_nothing_stored(
    fake: FakeUpstream, gateway: Gateway
) -> None:
    gate = Gate()
    fake.default = Reply(gates={2: gate})
    response = await gateway.http.post(f"{gateway.base_url}/chat/completions", json=question(stream=True))
    await gate.reached.wait()
    response.close()
    await fake.aborts(1)
    await gateway.stored()
    assert len(gateway.system.flights) == 0
    assert (await gateway.system.store.stats()).entries == 0
    fake.default = Reply()
    assert (await gateway.ask(question()))[1]["x-strata-cache"] == "miss"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "reply",
    [
        Reply(finish_reason="length"),
        Reply(finish_reason="content_filter"),
        Reply(finish_reason=None),
        Reply(text=None, message={"refusal": "I can't help with that."}),
        Reply(status=500, text="boom"),
        Reply(status=429, text="slow down", headers={"retry-after": "7"}),
        Reply(cut_after=3),
        Reply(raw=[b"not json"], content_type="application/json"),
        Reply(raw=[b'data: {"error": {"message": "overloaded"}}\n\n', b"data: [DONE]\n\n"],
              content_type="text/event-stream"),
    ],
    ids=["length", "filter", "no_finish", "refusal", "500", "429", "cut", "garbage", "error_event"],
)  # fmt: skip
async def test_what_is_not_a_whole_answer_is_never_stored(
    fake: FakeUpstream, gateway: Gateway, reply: Reply, stream: bool
) -> None:
    if reply.cut_after and not stream:
        reply = Reply(raw=[b'{"id": "x", "choices', b'": []}'], cut_after=1, content_type="application/json")
    fake.default = reply
    await _ask_tolerantly(gateway, question(stream=stream))
    await gateway.stored()
    assert (await gateway.system.store.stats()).entries == 0
    assert len(gateway.system.flights) == 0
    await _ask_tolerantly(gateway, question(stream=stream))
    assert fake.chat_calls == 2 + (reply.status == 400)


async def _ask_tolerantly(gateway: Gateway, body: dict[str, Any]) -> None:
    status, headers, _ = await gateway.ask(body)
    assert headers["x-strata-cache"] == "miss"
    assert status in (200, 429, 500, 502)


async def test_an_upstream_error_passes_with_its_status_body_and_retry_after(
    fake: FakeUpstream, gateway: Gateway
) -> None:
    fake.default = Reply(status=429, text="slow down", headers={"retry-after": "7"})
    for stream in (False, True):
        status, headers, body = await gateway.ask(question(stream=stream))
        assert (status, headers["retry-after"]) == (429, "7")
        assert headers["x-strata-reason"] == "upstream_error"
        assert body["error"]["message"] == "slow down"


async def test_a_stream_that_the_upstream_cuts_ends_in_an_error_event(
    fake: FakeUpstream, gateway: Gateway
) -> None:
    fake.default = Reply(text="one two three", cut_after=3)
    _, _, raw = await gateway.ask(question(stream=True))
    last = raw.decode().strip().rpartition("data: ")[2]
    assert msgspec.json.decode(last)["error"]["code"] == "upstream_cut"
    assert b"[DONE]" not in raw


async def test_an_unreachable_upstream_is_a_502_in_openai_form(fake: FakeUpstream, gateway: Gateway) -> None:
    await fake.stop()
    status, headers, body = await gateway.ask(question())
    assert status == 502
    assert headers["x-strata-reason"] == "upstream_unreachable"
    assert body["error"]["code"] == "upstream_unreachable"
    assert "sk-upstream-secret" not in str(body)


async def test_a_follower_in_another_form_does_not_inherit_a_refusal(
    fake: FakeUpstream, gateway: Gateway
) -> None:
    gate = Gate()
    fake.script(Reply(status=400, text="streams are not supported", header_gate=gate))
    fake.responder = lambda call: (
        Reply(status=400, text="streams are not supported") if call.json.get("stream") else Reply()
    )
    leader = asyncio.ensure_future(gateway.ask(question(stream=True)))
    await gate.reached.wait()
    follower = asyncio.ensure_future(gateway.ask(question()))
    await gateway.listening(2)
    gate.open()
    assert (await leader)[0] == 400
    assert (await follower)[0] == 200


@pytest.mark.parametrize(
    ("headers", "extra", "outcome", "stored"),
    [
        ({"cache-control": "no-store"}, {}, ("bypass", "no_store"), False),
        ({"cache-control": "no-cache"}, {}, ("bypass", "no_cache"), True),
        ({"x-strata-tiers": "semantic"}, {}, ("bypass", "tier_not_asked"), False),
        ({}, {"cache": {"no-store": True}}, ("bypass", "no_store"), False),
        ({}, {"cache": {"no-cache": True}}, ("bypass", "no_cache"), True),
        ({"x-strata-ttl": "0"}, {}, ("miss", "not_found"), False),
    ],
)
async def test_cache_control(
    fake: FakeUpstream,
    gateway: Gateway,
    headers: dict[str, str],
    extra: dict[str, Any],
    outcome: tuple[str, str],
    stored: bool,
) -> None:
    _, got, _ = await gateway.ask(question(**extra), headers)
    assert (got["x-strata-cache"], got["x-strata-reason"]) == outcome
    assert "cache" not in fake.calls[0].json
    assert not any(name.startswith("x-strata") for name in fake.calls[0].headers)
    await gateway.stored()
    assert (await gateway.system.store.stats()).entries == int(stored)


async def test_no_cache_asks_again_and_renews_the_entry(fake: FakeUpstream, gateway: Gateway) -> None:
    await gateway.ask(question())
    fake.default = Reply(text="A newer answer.")
    await gateway.stored()
    await gateway.ask(question(), {"cache-control": "no-cache"})
    await gateway.stored()
    _, headers, body = await gateway.ask(question())
    assert headers["x-strata-cache"] == "hit"
    assert body["choices"][0]["message"]["content"] == "A newer answer."


async def test_only_if_cached(fake: FakeUpstream, gateway: Gateway) -> None:
    only = {"cache-control": "only-if-cached"}
    status, headers, body = await gateway.ask(question(), only)
    assert (status, headers["x-strata-cache"], body["error"]["code"]) == (504, "miss", "not_cached")
    assert (headers["x-strata-tier"], headers["x-strata-reason"]) == ("none", "not_cached")
    assert headers["server-timing"].startswith("key;dur=")
    assert fake.chat_calls == 0
    await gateway.ask(question())
    await gateway.stored()
    assert (await gateway.ask(question(), only))[0] == 200


async def test_max_age_and_ttl(fake: FakeUpstream, gateway: Gateway) -> None:
    await gateway.ask(question(), {"x-strata-ttl": "100"})
    await gateway.stored()
    gateway.clock.advance(50)
    assert (await gateway.ask(question(), {"cache-control": "max-age=60"}))[1]["x-strata-cache"] == "hit"
    _, headers, _ = await gateway.ask(question(), {"cache-control": "max-age=40"})
    assert (headers["x-strata-cache"], headers["x-strata-reason"]) == ("miss", "too_old")
    await gateway.stored()
    gateway.clock.advance(120)  # past 100 s with the largest jitter
    gateway.clock.advance(5000)
    assert (await gateway.ask(question()))[1]["x-strata-cache"] == "miss"


async def test_a_caller_cannot_lengthen_the_ttl(fake: FakeUpstream) -> None:
    async with running_gateway(fake, {"scenes": {"default": {"ttl": "60s", "jitter": 0}}}) as gateway:
        await gateway.ask(question(), {"x-strata-ttl": "100000"})
        await gateway.stored()
        gateway.clock.advance(61)
        assert (await gateway.ask(question()))[1]["x-strata-cache"] == "miss"


@pytest.mark.parametrize(("window", "outcome"), [("all", "miss"), (1, "hit")])
async def test_the_history_window_decides_how_much_of_a_conversation_must_be_equal(
    fake: FakeUpstream, window: str | int, outcome: str
) -> None:
    def turns(first: str) -> dict[str, Any]:
        texts = (("user", first), ("assistant", "Yes."), ("user", "What is a cache?"))
        return {"model": "fake-model", "messages": [{"role": role, "content": text} for role, text in texts]}

    async with running_gateway(fake, {"tiers": {"exact": {"history_window": window}}}) as gateway:
        await gateway.ask(turns("Do you know Python?"))
        await gateway.stored()
        assert (await gateway.ask(turns("Do you know Rust?")))[1]["x-strata-cache"] == outcome


async def test_the_model_list_leaves_out_an_upstream_that_does_not_answer_and_says_so_in_the_log(
    fake: FakeUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    async with FakeUpstream(["gpt-there", "other"]) as there, FakeUpstream() as gone:
        named = {"name": "fake", "kind": "openai", "base_url": fake.base_url, "models": ["fake-model"]}
        listing = {**named, "name": "there", "base_url": there.base_url, "models": ["gpt-*"]}
        silent = {**named, "name": "gone", "base_url": gone.base_url, "models": ["claude-*"]}
        await gone.stop()
        async with (
            running_gateway(fake, {"upstreams": [named, listing, silent]}) as gateway,
            gateway.http.get(f"{gateway.base_url}/models") as response,
        ):
            listed = (await response.json())["data"]
    assert {row["id"]: row["owned_by"] for row in listed} == {"fake-model": "fake", "gpt-there": "there"}
    assert "upstream gone lists no models" in caplog.text
