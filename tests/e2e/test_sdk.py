"""The official OpenAI SDK against a running gateway: sync and async, streams, tools, structured output, errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import msgspec
import openai
import pytest
from pydantic import BaseModel
from tests.fakes.upstream import Call, FakeUpstream, Gate, Reply, in_thread
from tests.gateway_process import Serving, serving, upstream_of
from tests.harness import Gateway, running_gateway
from yarl import URL

MODEL = "fake-model"
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("weather", "time")
]
CALLS = [
    {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": '{"city": "Zürich"}'}}
    for n, name in enumerate(("weather", "time"))
]


class Capital(BaseModel):
    """What structured output is parsed into."""

    city: str
    people: int


def says(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def respond(call: Call) -> Reply:
    """Answers by the question, so that one gateway process serves every sync test."""
    text = call.json["messages"][-1]["content"]
    if text.startswith("status "):
        status = int(text.split()[1])
        return Reply(status=status, text=f"refused with {status}", headers={"retry-after": "0"})
    if "tools" in call.json:
        return Reply(text=None, message={"tool_calls": CALLS}, finish_reason="tool_calls")
    if "response_format" in call.json:
        return Reply(text='{"city": "Paris", "people": 2102650}')
    return Reply(text=f"You said: {text}", usage=(12, 5, 8))


@pytest.fixture(scope="module")
def upstream() -> Iterator[FakeUpstream]:
    with in_thread() as fake:
        fake.responder = respond
        fake.routes["/v1/embeddings"] = Reply(
            body={"object": "list", "model": "e", "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}],
                  "usage": {"prompt_tokens": 1, "total_tokens": 1}}
        )  # fmt: skip
        fake.routes["/v1/files"] = Reply(
            body={"id": "file-1", "object": "file", "bytes": 3, "created_at": 1, "filename": "a.txt",
                  "purpose": "batch", "status": "processed"}
        )  # fmt: skip
        fake.routes["/v1/files/file-1"] = Reply(body={"id": "file-1", "object": "file", "deleted": True})
        fake.routes["/v1/files/file-1/content"] = Reply(
            raw=[b"\x00bin\xff"], content_type="application/x-bin"
        )
        yield fake


@pytest.fixture(scope="module")
def process(upstream: FakeUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("sdk")
    config = {"store": "memory://", "upstreams": [upstream_of(upstream, models=[MODEL, "gpt-*"])]}
    with serving(folder, config) as gateway:
        yield gateway
        assert gateway.terminate() == 0
        assert gateway.errors() == ""


@pytest.fixture
def client(process: Serving) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=process.url, api_key="sk-mine", max_retries=0) as made:
        yield made


def outcome(response: Any) -> tuple[str, str]:
    return response.headers["x-strata-cache"], response.headers["x-strata-reason"]


def test_create_misses_and_then_hits_with_the_same_answer(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response
    first = raw.create(model=MODEL, messages=says("hello"))
    second = raw.create(model=MODEL, messages=says("hello"))
    assert (outcome(first), outcome(second)) == (("miss", "not_found"), ("hit", "exact"))
    assert first.headers["x-strata-prompt-tokens-cached"] == "8"
    assert second.headers["x-strata-saved-tokens"] == "17"
    assert second.headers["x-strata-entry"] == first.headers["x-strata-entry"]
    answer = second.parse()
    assert answer == first.parse()
    assert answer.choices[0].message.content == "You said: hello"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 17


@pytest.mark.parametrize("wants_usage", [False, True])
def test_streams_are_the_same_live_and_replayed(client: openai.OpenAI, wants_usage: bool) -> None:
    options: Any = {"stream_options": {"include_usage": True}} if wants_usage else {}
    seen = []
    for expected in ("miss", "hit"):
        raw = client.chat.completions.with_raw_response.create(
            model=MODEL, messages=says(f"stream {wants_usage}"), stream=True, **options
        )
        assert raw.headers["x-strata-cache"] == expected
        chunks = list(raw.parse())
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        usage = [c.usage.total_tokens for c in chunks if c.usage]
        assert usage == ([17] if wants_usage else [])
        assert chunks[0].choices[0].delta.role == "assistant"
        assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
        seen.append((text, {c.id for c in chunks}, {c.model for c in chunks}))
    assert seen[0] == seen[1]


def test_the_stream_helper_gathers_parallel_tool_calls(client: openai.OpenAI) -> None:
    for _ in range(2):
        with client.chat.completions.stream(model=MODEL, messages=says("tools"), tools=TOOLS) as stream:
            done = [e for e in stream if e.type == "tool_calls.function.arguments.done"]
            final = stream.get_final_completion()
        assert [(e.name, e.arguments) for e in done] == [
            ("weather", '{"city": "Zürich"}'),
            ("time", '{"city": "Zürich"}'),
        ]
        calls = final.choices[0].message.tool_calls
        assert calls is not None
        assert [call.id for call in calls] == ["call_0", "call_1"]
        assert final.choices[0].finish_reason == "tool_calls"


def test_tool_calls_of_a_stored_stream_reach_a_plain_call(client: openai.OpenAI) -> None:
    messages = says("tools either way")
    list(client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS, stream=True))
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=messages, tools=TOOLS)
    assert outcome(raw) == ("hit", "exact")
    calls = raw.parse().choices[0].message.tool_calls
    assert [msgspec.convert(call.model_dump(), dict) for call in calls or ()] == CALLS


def test_structured_output_and_json_mode(client: openai.OpenAI) -> None:
    for expected in ("miss", "hit"):
        raw = client.chat.completions.with_raw_response.parse(
            model=MODEL, messages=says("capital"), response_format=Capital
        )
        assert raw.headers["x-strata-cache"] == expected
        assert raw.parse().choices[0].message.parsed == Capital(city="Paris", people=2102650)
    plain = client.chat.completions.create(
        model=MODEL, messages=says("capital"), response_format={"type": "json_object"}
    )
    assert msgspec.json.decode(plain.choices[0].message.content or "") == {"city": "Paris", "people": 2102650}


def test_a_structured_stream(client: openai.OpenAI) -> None:
    for _ in range(2):
        with client.chat.completions.stream(
            model=MODEL, messages=says("capital, live"), response_format=Capital
        ) as stream:
            assert stream.get_final_completion().choices[0].message.parsed == Capital(
                city="Paris", people=2102650
            )


def test_extra_body_controls_the_cache(client: openai.OpenAI, upstream: FakeUpstream) -> None:
    raw = client.chat.completions.with_raw_response
    got = [
        outcome(raw.create(model=MODEL, messages=says("extra"), extra_body={"cache": cache}))
        for cache in ({"no-store": True}, {}, {"no-cache": True}, {"namespace": "n"}, {})
    ]
    assert [reason for _, reason in got] == ["no_store", "not_found", "no_cache", "not_found", "exact"]
    assert "cache" not in upstream.calls[-1].json


def test_extra_headers_control_the_cache(client: openai.OpenAI) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        client.chat.completions.create(
            model=MODEL, messages=says("only"), extra_headers={"Cache-Control": "only-if-cached"}
        )
    assert (caught.value.status_code, caught.value.code) == (504, "not_cached")


def test_models(client: openai.OpenAI) -> None:
    assert MODEL in [model.id for model in client.models.list()]
    assert client.models.retrieve(MODEL).id == MODEL
    assert client.models.retrieve("gpt-4o").owned_by == "fake"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("fake-modle")
    assert "fake-model" in str(caught.value)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (403, openai.PermissionDeniedError),
        (404, openai.NotFoundError),
        (409, openai.ConflictError),
        (422, openai.UnprocessableEntityError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
        (529, openai.InternalServerError),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_the_upstreams_errors_raise_the_sdks_classes(
    client: openai.OpenAI, status: int, kind: type[openai.APIStatusError], stream: bool
) -> None:
    with pytest.raises(kind) as caught:
        client.chat.completions.create(model=MODEL, messages=says(f"status {status}"), stream=stream)
    assert caught.value.status_code == status
    assert f"refused with {status}" in str(caught.value)
    assert caught.value.response.headers["retry-after"] == "0"
    assert caught.value.response.headers["x-strata-reason"] == "upstream_error"


def test_the_gateways_own_refusals_raise_the_sdks_classes(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model=MODEL, messages=[])
    assert (bad.value.code, bad.value.param) == ("empty_array", "messages")
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="claude", messages=says("hi"))
    assert missing.value.code == "model_not_found"


def test_a_retry_after_is_obeyed_by_the_sdk(process: Serving, upstream: FakeUpstream) -> None:
    upstream.script(Reply(status=429, text="slow down", headers={"retry-after": "0"}), Reply(text="At last."))
    with openai.OpenAI(base_url=process.url, api_key="sk-mine", max_retries=1) as patient:
        answer = patient.chat.completions.create(model=MODEL, messages=says("retry"))
    assert answer.choices[0].message.content == "At last."


def test_the_callers_key_reaches_an_upstream_that_has_none(
    client: openai.OpenAI, upstream: FakeUpstream
) -> None:
    client.chat.completions.create(model=MODEL, messages=says("whose key?"))
    assert upstream.calls[-1].headers["authorization"] == "Bearer sk-mine"


def test_embeddings_are_served_and_files_pass_through(client: openai.OpenAI, upstream: FakeUpstream) -> None:
    raw = client.embeddings.with_raw_response.create(model=MODEL, input="x", encoding_format="float")
    assert outcome(raw) == ("miss", "not_found")
    assert raw.parse().data[0].embedding == [0.5]
    assert client.files.create(file=("a.txt", b"\x00\xffabc"), purpose="batch").id == "file-1"
    sent = upstream.calls[-1]
    assert sent.headers["content-type"].startswith("multipart/form-data; boundary=")
    assert b"\x00\xffabc" in sent.body
    assert client.files.delete("file-1").deleted
    assert upstream.calls[-1].method == "DELETE"
    content = client.files.content("file-1")
    assert content.content == b"\x00bin\xff"
    assert content.response.headers["content-type"] == "application/x-bin"


def test_a_server_that_is_gone_is_a_connection_error(process: Serving) -> None:
    with (
        openai.OpenAI(base_url="http://127.0.0.1:9/v1", api_key="x", max_retries=0) as nobody,
        pytest.raises(openai.APIConnectionError),
    ):
        nobody.models.list()


@pytest.fixture
async def fake() -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream() as server:
        server.responder = respond
        yield server


@pytest.fixture
async def async_client(gateway: Gateway) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=gateway.base_url, api_key="x", max_retries=0) as made:
        yield made


async def test_async_create_stream_parse_and_models(
    async_client: openai.AsyncOpenAI, gateway: Gateway, fake: FakeUpstream
) -> None:
    completions = async_client.chat.completions
    for _ in range(2):
        stream = await completions.create(model=MODEL, messages=says("hi"), stream=True)
        text = "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])
        answer = await completions.create(model=MODEL, messages=says("hi"))
        assert text == answer.choices[0].message.content == "You said: hi"
        parsed = await completions.parse(model=MODEL, messages=says("capital"), response_format=Capital)
        assert parsed.choices[0].message.parsed == Capital(city="Paris", people=2102650)
        async with completions.stream(model=MODEL, messages=says("t"), tools=TOOLS) as events:
            final = await events.get_final_completion()
        assert len(final.choices[0].message.tool_calls or ()) == 2
        await gateway.stored()
    assert fake.chat_calls == 3
    assert [model.id async for model in async_client.models.list()] == [MODEL]


async def test_async_errors(async_client: openai.AsyncOpenAI, fake: FakeUpstream) -> None:
    with pytest.raises(openai.RateLimitError):
        await async_client.chat.completions.create(model=MODEL, messages=says("status 429"))
    fake.script(Reply(text="one two three", cut_after=2))
    stream = await async_client.chat.completions.create(model=MODEL, messages=says("cut"), stream=True)
    with pytest.raises(openai.APIError, match="broke off"):
        async for _ in stream:
            pass
    await fake.stop()
    with pytest.raises(openai.InternalServerError) as gone:
        await async_client.chat.completions.create(model=MODEL, messages=says("gone"))
    assert (gone.value.status_code, gone.value.code) == (502, "upstream_unreachable")


async def test_unknown_paths_keep_method_query_status_and_type(gateway: Gateway, fake: FakeUpstream) -> None:
    fake.routes["/v1/batches/b 1"] = Reply(status=418, raw=[b"<p>"], content_type="text/html")
    url = URL(f"{gateway.base_url}/batches/b%201?after=x%26y&limit=2&limit=3", encoded=True)
    async with gateway.http.patch(url, data=b"abc") as got:
        assert (got.status, got.headers["content-type"], await got.read()) == (418, "text/html", b"<p>")
    call = fake.calls[-1]
    assert (call.method, call.body) == ("PATCH", b"abc")
    assert call.target == "/v1/batches/b%201?after=x%26y&limit=2&limit=3"
    async with gateway.http.head(f"{gateway.base_url}/anything") as head:
        assert (head.status, await head.read(), fake.calls[-1].method) == (200, b"", "HEAD")
    async with gateway.http.get(f"{gateway.base_url}/anything") as got:  # the connection is still in step
        assert (await got.json())["method"] == "GET"


async def test_a_passthrough_streams_as_it_comes(gateway: Gateway, fake: FakeUpstream) -> None:
    gate = Gate()
    fake.routes["/v1/images/edits"] = Reply(
        raw=[b"event: a\ndata: 1\n\n", b"event: b\ndata: 2\n\n"],
        content_type="text/event-stream",
        gates={1: gate},
    )
    async with gateway.http.post(f"{gateway.base_url}/images/edits", json={"model": MODEL}) as response:
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["x-strata-reason"] == "passthrough"
        assert await response.content.readany() == b"event: a\ndata: 1\n\n"
        await gate.reached.wait()
        gate.open()
        assert await response.content.read() == b"event: b\ndata: 2\n\n"


async def test_a_passthrough_that_its_client_leaves_is_aborted(gateway: Gateway, fake: FakeUpstream) -> None:
    gate = Gate()
    fake.routes["/v1/images/edits"] = Reply(raw=[b"1", b"2"], gates={1: gate})
    response = await gateway.http.post(f"{gateway.base_url}/images/edits", json={"model": MODEL})
    await gate.reached.wait()
    response.close()
    await fake.aborts(1)


async def test_a_passthrough_to_an_upstream_that_is_gone_says_so(
    gateway: Gateway, fake: FakeUpstream
) -> None:
    await fake.stop()
    async with gateway.http.get(f"{gateway.base_url}/batches") as response:
        assert response.status == 502
        assert response.headers["x-strata-cache"] == "bypass"
        assert response.headers["x-strata-reason"] == "upstream_unreachable"
        assert (await response.json())["error"]["code"] == "upstream_unreachable"


async def test_no_path_changes_the_host_that_is_called(fake: FakeUpstream) -> None:
    bare = {**upstream_of(fake), "base_url": fake.base_url.removesuffix("/v1")}
    async with running_gateway(fake, {"upstreams": [bare]}) as gateway:
        for path in ("/v1%2F@127.0.0.1:9/x", "/v1%2f:1@127.0.0.1:9/x", "/%761/x", "/v1/@127.0.0.1:9/x"):
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
            status = int((await reader.read()).split()[1])
            writer.close()
            assert status == (200 if path.startswith("/v1/") else 404)
    assert [call.target for call in fake.calls] == ["/@127.0.0.1:9/x"]


async def test_a_passthrough_that_the_upstream_cuts_is_cut(gateway: Gateway, fake: FakeUpstream) -> None:
    fake.routes["/v1/images/edits"] = Reply(raw=[b"1", b"2"], cut_after=1)
    with pytest.raises(aiohttp.ClientPayloadError):
        async with gateway.http.post(f"{gateway.base_url}/images/edits", json={"model": MODEL}) as response:
            await response.read()
