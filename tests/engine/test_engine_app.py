"""The HTTP face over a tiny model, driven as ASGI: JSON, SSE, errors, disconnects, draining, failure."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.engine.engine_kit import greedy
from tests.engine.engine_server import CHAT, Server, events_of

from stratacache.engine.asgi import MAX_BODY
from stratacache.engine.loop import Job, Progress
from stratacache.engine.tokenizer import Tokenizer


@pytest.fixture
async def server(folder: Path, tokenizer: Tokenizer) -> AsyncIterator[Server]:
    made = Server(folder, tokenizer)
    yield made
    await made.close()


async def test_an_answer_has_openais_shape(server: Server) -> None:
    status, body = await server.chat()
    assert status == 200
    assert body["id"].startswith("chatcmpl-")
    assert (body["object"], body["created"], body["model"]) == ("chat.completion", 123, "tiny")
    (choice,) = body["choices"]
    assert choice["message"]["role"] == "assistant"
    assert choice["finish_reason"] == "length"
    counts = body["usage"]
    assert counts["completion_tokens"] == 5
    assert counts["total_tokens"] == counts["prompt_tokens"] + 5
    assert counts["prompt_tokens_details"] == {"cached_tokens": 0}


async def test_a_stream_says_the_same_as_the_whole_answer(server: Server) -> None:
    _, whole = await server.chat()
    *chunks, usage, done = await server.stream(stream_options={"include_usage": True})
    assert done == "[DONE]"
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    assert text == whole["choices"][0]["message"]["content"]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + [
        "length"
    ]
    assert all(chunk["usage"] is None for chunk in chunks)
    assert usage["choices"] == []
    cached = usage["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached == (whole["usage"]["prompt_tokens"] - 1) // 4 * 4
    assert {chunk["id"] for chunk in (*chunks, usage)} == {chunks[0]["id"]}


async def test_a_stream_without_usage_has_none(server: Server) -> None:
    *chunks, _ = await server.stream()
    assert all("usage" not in chunk and len(chunk["choices"]) == 1 for chunk in chunks)


async def test_stop_strings_end_the_answer_before_them(server: Server) -> None:
    _, whole = await server.chat(max_tokens=12)
    text = whole["choices"][0]["message"]["content"]
    stop = text[len(text) // 2 :][:3]
    _, cut = await server.chat(max_tokens=12, stop=stop)
    assert cut["choices"][0]["finish_reason"] == "stop"
    assert cut["choices"][0]["message"]["content"] == text[: text.index(stop)]
    assert cut["usage"]["completion_tokens"] < 12


async def test_cache_salt_separates(server: Server) -> None:
    await server.chat(cache_salt="a")
    assert (await server.chat(cache_salt="b"))[1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    assert (await server.chat(cache_salt="a"))[1]["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


async def test_a_prompt_over_the_context_names_the_sizes(server: Server) -> None:
    status, body = await server.chat(messages=[{"role": "user", "content": "word " * 500}])
    assert status == 400
    assert body["error"]["code"] == "context_length_exceeded"
    assert "240 tokens" in body["error"]["message"]
    status, raw, _ = await server.call(
        "POST",
        "/v1/chat/completions",
        CHAT | {"stream": True, "messages": [{"role": "user", "content": "word " * 500}]},
    )
    assert (status, json.loads(raw)["error"]["code"]) == (400, "context_length_exceeded")


async def test_a_hopelessly_long_prompt_is_refused_without_tokenising_it(
    server: Server, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizer, "encode", None)
    status, body = await server.chat(messages=[{"role": "user", "content": "word " * 5000}])
    assert (status, body["error"]["code"]) == (400, "context_length_exceeded")
    assert "at least 31" in body["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/v1/chat/completions", b"{", 400, "invalid_value"),
        (
            "POST",
            "/v1/chat/completions",
            {"model": "other", "messages": CHAT["messages"]},
            404,
            "model_not_found",
        ),
        ("POST", "/v1/chat/completions", CHAT | {"n": 99}, 400, "invalid_value"),
        ("POST", "/v1/chat/completions", b" " * (MAX_BODY + 1), 413, "request_too_large"),
        ("GET", "/v1/chat/completions", None, 404, "not_found"),
        ("POST", "/v1/embeddings", {}, 404, "not_found"),
        ("GET", "/v1/models/other", None, 404, "not_found"),
    ],
)
async def test_errors_have_openais_shape(
    server: Server, method: str, path: str, body: Any, status: int, code: str
) -> None:
    got, raw, _ = await server.call(method, path, body)
    error = json.loads(raw)["error"]
    assert (got, error["code"]) == (status, code)
    assert error.keys() == {"message", "type", "param", "code"}


async def test_a_declared_size_is_refused_before_it_is_read(server: Server) -> None:
    status, _, _ = await server.call("POST", "/v1/chat/completions", b"", length=MAX_BODY + 1)
    assert status == 413


async def test_small_endpoints(server: Server) -> None:
    await server.chat()
    assert json.loads((await server.call("GET", "/healthz"))[1]) == {"status": "ok"}
    assert json.loads((await server.call("GET", "/v1/models"))[1])["data"][0]["id"] == "tiny"
    assert json.loads((await server.call("GET", "/v1/models/tiny"))[1])["object"] == "model"
    stats = json.loads((await server.call("GET", "/stats"))[1])
    assert (
        stats["blocks_free"] + stats["blocks_cached"] + stats["blocks_active"] == stats["blocks_total"] == 60
    )
    assert stats["generated_tokens"] == 5
    text = (await server.call("GET", "/metrics"))[1].decode()
    assert 'stratacache_kv_blocks{state="active"} 0' in text
    assert "stratacache_engine_generated_tokens_total 5" in text


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_goes_away_ends_its_request(server: Server, stream: bool) -> None:
    gone = asyncio.Event()
    body = CHAT | {"stream": stream, "max_tokens": 190, "ignore_eos": True}
    call = asyncio.create_task(server.call("POST", "/v1/chat/completions", body, gone))
    await server.until_running()
    gone.set()
    await call
    await server.chat()  # is behind the cancellation in the engine's inbox
    assert server.thread.stats.running == 0
    assert server.thread.stats.generated_tokens < 190


async def test_many_at_once_answer_as_alone(server: Server) -> None:
    chats = [[{"role": "user", "content": f"question {index}"}] for index in range(6)]
    together = await asyncio.gather(*(server.chat(messages=chat) for chat in chats))
    alone = [await server.chat(messages=chat) for chat in chats]
    text = [[body["choices"][0]["message"]["content"] for _, body in bodies] for bodies in (together, alone)]
    assert text[0] == text[1]


async def test_draining_refuses_new_requests_and_ends_old_ones_readably(server: Server) -> None:
    body = CHAT | {"stream": True, "max_tokens": 190, "ignore_eos": True}
    call = asyncio.create_task(server.call("POST", "/v1/chat/completions", body))
    await server.until_running()
    server.app.draining = True
    status, refused = await server.chat()
    assert (status, refused["error"]["code"]) == (503, "overloaded")
    assert (await server.call("GET", "/healthz"))[0] == 503
    await asyncio.to_thread(server.thread.stop)
    _, raw, _ = await call
    *_, last = events_of(raw)
    assert last["error"]["code"] == "overloaded"


async def test_a_failing_core_fails_its_requests_and_says_so(folder: Path, tokenizer: Tokenizer) -> None:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    server = Server(folder, tokenizer, on_failure=lambda: loop.call_soon_threadsafe(told.set))

    def broken(_: object) -> None:
        raise RuntimeError("out of luck")

    server.engine.model.forward = broken  # type: ignore[method-assign, assignment]
    status, body = await server.chat()
    assert (status, body["error"]["code"]) == (500, "engine_failed")
    await told.wait()
    status, body = await server.chat()  # and the next one does not hang
    assert status == 500
    assert json.loads((await server.call("GET", "/healthz"))[1]) == {"status": "failed"}


def test_jobs_that_come_after_the_end_are_refused(folder: Path, tokenizer: Tokenizer) -> None:
    server = Server(folder, tokenizer)
    server.thread.stop()
    reports: list[Progress] = []
    server.thread.submit(Job(greedy("x", (5, 6), 1), (), reports.append))
    assert "shutting down" in str(reports[0].error)
