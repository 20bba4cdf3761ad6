"""Chat over HTTP beyond one plain answer: several answers, logprobs, JSON, conversations, tenants, deadlines."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.clock import FakeClock
from tests.engine.engine_server import CHAT, Server

from stratacache.engine.tokenizer import Tokenizer

SYSTEM = "You are a patient assistant who answers every question about gardens in three short sentences. " * 2


@pytest.fixture
async def server(folder: Path, tokenizer: Tokenizer) -> AsyncIterator[Server]:
    made = Server(folder, tokenizer, num_blocks=200)
    yield made
    await made.close()


def text_of(body: Any, index: int = 0) -> str:
    return str(body["choices"][index]["message"]["content"])


def cached(body: Any) -> int:
    return int(body["usage"]["prompt_tokens_details"]["cached_tokens"])


async def test_n_answers_and_their_usage(server: Server) -> None:
    _, body = await server.chat(n=3, temperature=1, seed=4)
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    assert len({text_of(body, index) for index in range(3)}) == 3
    assert body["usage"]["completion_tokens"] == 15


async def test_a_stream_of_n_answers_says_the_same(server: Server) -> None:
    _, body = await server.chat(n=3, temperature=1, seed=4)
    *chunks, done = await server.stream(n=3, temperature=1, seed=4)
    assert done == "[DONE]"
    for index in range(3):
        own = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == index]
        assert own[0]["delta"] == {"role": "assistant", "content": ""}
        assert "".join(one["delta"].get("content", "") for one in own) == text_of(body, index)
        assert [one["finish_reason"] for one in own if one["finish_reason"]] == ["length"]


async def test_a_stop_string_ends_one_of_several_answers(server: Server) -> None:
    _, whole = await server.chat(n=3, temperature=1, seed=4, max_tokens=12)
    stop = text_of(whole, 1)[6:9]
    _, cut = await server.chat(n=3, temperature=1, seed=4, max_tokens=12, stop=stop)
    for index in range(3):
        full = text_of(whole, index)
        assert text_of(cut, index) == (full[: full.index(stop)] if stop in full else full)
    assert cut["choices"][1]["finish_reason"] == "stop"


async def test_logprobs(server: Server, tokenizer: Tokenizer) -> None:
    _, body = await server.chat(logprobs=True, top_logprobs=3)
    content = body["choices"][0]["logprobs"]["content"]
    assert len(content) == 5
    assert "".join(bytes(one["bytes"]).decode("utf-8", "replace") for one in content) == text_of(body)
    for one in content:
        assert one["token"] == bytes(one["bytes"]).decode("utf-8", "replace")
        assert len(one["top_logprobs"]) == 3
        assert one["top_logprobs"][0]["logprob"] == one["logprob"] <= 0  # greedy: the likeliest
    _, plain = await server.chat(logprobs=True)
    assert [one["top_logprobs"] for one in plain["choices"][0]["logprobs"]["content"]] == [[]] * 5
    assert (await server.chat())[1]["choices"][0]["logprobs"] is None
    *chunks, _ = await server.stream(logprobs=True, top_logprobs=3)
    streamed = [
        one for chunk in chunks for one in (chunk["choices"][0]["logprobs"] or {"content": []})["content"]
    ]
    assert streamed == content


async def test_logprobs_are_those_of_the_model_not_of_the_sampling(server: Server) -> None:
    _, one = await server.chat(logprobs=True, top_logprobs=20, max_tokens=1)
    _, other = await server.chat(logprobs=True, top_logprobs=20, max_tokens=1, temperature=2, top_k=1)
    assert one["choices"][0]["logprobs"] == other["choices"][0]["logprobs"]
    top = one["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    assert sum(math.exp(entry["logprob"]) for entry in top) <= 1.0001


@pytest.mark.parametrize("seed", range(4))
async def test_json_follows_its_schema(server: Server, seed: int) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "北京"]}, "ok": {"type": "boolean"}},
        "required": ["city", "ok"],
        "additionalProperties": False,
    }
    kind = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    status, body = await server.chat(response_format=kind, max_tokens=60, temperature=1.5, seed=seed)
    assert status == 200
    assert body["choices"][0]["finish_reason"] == "stop"
    answer = json.loads(text_of(body))
    assert answer["city"] in ("Paris", "北京")
    assert isinstance(answer["ok"], bool)


async def test_json_mode_begins_an_object_for_each_of_n_answers(server: Server) -> None:
    _, body = await server.chat(
        response_format={"type": "json_object"}, n=2, max_tokens=8, temperature=1, seed=1
    )
    for index in range(2):
        assert text_of(body, index).startswith("{")


async def test_a_schema_that_is_none_is_refused(server: Server) -> None:
    kind = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "frob"}}}
    status, body = await server.chat(response_format=kind)
    assert (status, body["error"]["param"]) == (400, "response_format")


def talk(*turns: str) -> list[dict[str, str]]:
    roles = ["user", "assistant"]
    return [{"role": "system", "content": SYSTEM}] + [
        {"role": roles[place % 2], "content": turn} for place, turn in enumerate(turns)
    ]


async def test_a_conversations_history_is_reused_to_its_last_token(server: Server) -> None:
    """The tiny model writes gibberish that no tokenizer would spell the same way: only kept ids can match."""
    fields = {"conversation": "c1", "max_tokens": 30, "ignore_eos": True, "temperature": 1, "seed": 3}
    _, first = await server.chat(messages=talk("Which rose?"), **fields)
    _, second = await server.chat(messages=talk("Which rose?", text_of(first), "And now?"), **fields)
    known = first["usage"]["prompt_tokens"] + 29  # the last token was never computed
    assert cached(second) == known // 4 * 4
    assert server.thread.stats.conversations == 1


@pytest.mark.parametrize(
    ("change", "most"),
    [
        ({"messages": "system"}, 40),  # the system prompt's: what comes before the change is the same text
        ({"topic": "weather"}, 0),
        ({"cache_salt": "another tenant"}, 0),
    ],
)
async def test_a_changed_context_never_reuses_history(
    server: Server, change: dict[str, Any], most: int
) -> None:
    fields: dict[str, Any] = {"conversation": "c1", "max_tokens": 40, "ignore_eos": True, "cache_salt": "t"}
    _, first = await server.chat(messages=talk("Which rose?"), **fields)
    messages = talk("Which rose?", text_of(first), "And now?")
    if change.get("messages"):
        messages[0]["content"] = SYSTEM + "Be brief."
        change = {}
    kept = server.thread.stats.blocks_kept
    assert kept > 0
    _, second = await server.chat(messages=messages, **fields | change)
    assert cached(second) <= most < first["usage"]["prompt_tokens"]
    if "cache_salt" not in change:  # the same conversation of the same tenant: given up
        assert server.thread.stats.given_up == {"changed": 1}


async def test_conversations_of_two_tenants_with_one_name_are_two(server: Server) -> None:
    for salt in ("a", "b"):
        _, body = await server.chat(messages=talk("x"), conversation="same", cache_salt=salt)
        assert cached(body) == 0
    assert server.thread.stats.conversations == 2


async def test_a_deadline_ends_a_request_under_way_and_one_in_line(
    folder: Path, tokenizer: Tokenizer
) -> None:
    clock = FakeClock()
    server = Server(folder, tokenizer, thread_clock=clock.monotonic, max_running=1, num_blocks=200)
    try:
        long: dict[str, Any] = {"max_tokens": 190, "ignore_eos": True}
        calls = [asyncio.create_task(server.chat(timeout=limit, **long)) for limit in (5, 9)]
        await server.until_running()
        clock.advance(10)
        for status, body in await asyncio.gather(*calls):
            assert (status, body["error"]["code"]) == (504, "deadline_exceeded")
        assert (await server.chat(timeout=5))[0] == 200
        assert server.thread.stats.blocks_active == 0
    finally:
        await server.close()


async def test_a_stream_past_its_deadline_ends_with_an_error_and_without_done(
    folder: Path, tokenizer: Tokenizer
) -> None:
    clock = FakeClock()
    server = Server(folder, tokenizer, thread_clock=clock.monotonic, request_timeout=30.0, num_blocks=200)
    try:
        call = asyncio.create_task(server.stream(max_tokens=190, ignore_eos=True, timeout=60))
        await server.until_running()
        clock.advance(31)
        *_, last = await call
        assert last["error"]["code"] == "deadline_exceeded"
    finally:
        await server.close()


@pytest.mark.parametrize("stage", ["waiting", "forked"])
async def test_a_client_that_goes_away_in_line_or_after_a_fork_leaves_nothing(
    folder: Path, tokenizer: Tokenizer, stage: str
) -> None:
    server = Server(folder, tokenizer, max_running=4, num_blocks=200)
    try:
        gone, long = asyncio.Event(), {"max_tokens": 190, "ignore_eos": True, "n": 4, "temperature": 1}
        first = asyncio.create_task(server.call("POST", "/v1/chat/completions", CHAT | long, gone))
        await server.until_running()
        if stage == "waiting":
            gone_too = asyncio.Event()
            second = asyncio.create_task(server.call("POST", "/v1/chat/completions", CHAT | long, gone_too))
            while not server.thread.stats.waiting:  # noqa: ASYNC110 - the engine's thread has no event for it
                await asyncio.sleep(0)
            gone_too.set()
            await second
        gone.set()
        await first
        await server.chat()
        stats = server.thread.stats
        assert (stats.blocks_active, stats.running, stats.waiting) == (0, 0, 0)
    finally:
        await server.close()


async def test_chinese_and_emoji_are_never_split_in_a_stream(server: Server) -> None:
    *chunks, _ = await server.stream(
        messages=[{"role": "user", "content": "😀北京"}],
        max_tokens=60,
        temperature=2,
        seed=1,
        ignore_eos=True,
    )
    pieces = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks]
    _, whole = await server.chat(
        messages=[{"role": "user", "content": "😀北京"}],
        max_tokens=60,
        temperature=2,
        seed=1,
        ignore_eos=True,
    )
    assert "".join(pieces) == text_of(whole)
    for piece in pieces:
        piece.encode()  # whole characters: no lone surrogate
