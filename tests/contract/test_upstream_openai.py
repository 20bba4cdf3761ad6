"""The upstream port over real HTTP: answers, streams, errors, time limits, aborted and cancelled calls."""

from __future__ import annotations

import asyncio
import base64
import gzip
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.fakes.upstream import FakeUpstream, Gate, Reply

from stratacache.errors import RequestError, UpstreamError
from stratacache.settings import OpenAISettings
from stratacache.types import CacheControl, Request, Scope
from stratacache.upstream.openai import OpenAIUpstream

BODY = {"model": "m", "messages": [{"role": "user", "content": "hi 你好"}]}
STREAM = {**BODY, "stream": True}
REQUEST = Request("chat.completions", "m", "m", "fake", BODY, Scope(), CacheControl())


@pytest.fixture
async def fake() -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream() as server:
        yield server


class Client:
    """Makes upstreams for one fake and closes them."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self._made: list[OpenAIUpstream] = []

    def __call__(self, key: str | None = None, **options: Any) -> OpenAIUpstream:
        settings = OpenAISettings(**{"name": "fake", "models": ("m",), "base_url": self.base_url, **options})
        self._made.append(OpenAIUpstream(settings, key))
        return self._made[-1]

    async def close(self) -> None:
        for upstream in self._made:
            await upstream.close()


@pytest.fixture
async def client(fake: FakeUpstream) -> AsyncIterator[Client]:
    made = Client(fake.base_url)
    yield made
    await made.close()


async def test_a_call_sends_the_body_and_returns_the_answer(fake: FakeUpstream, client: Client) -> None:
    response = await client().send(REQUEST, BODY, {"openai-project": "p", "x-strata-scene": "s", "host": "h"})
    answer = await response.read()
    await response.close()
    assert (response.status, response.headers["content-type"]) == (200, "application/json")
    assert b"Hello from the fake." in answer
    (call,) = fake.calls
    assert (call.method, call.path, call.json) == ("POST", "/v1/chat/completions", BODY)
    assert call.headers["content-type"] == "application/json"
    assert call.headers["openai-project"] == "p"
    assert "x-strata-scene" not in call.headers
    assert call.headers["host"] != "h"
    assert call.headers["accept-encoding"] == "identity"


async def test_connections_are_kept(fake: FakeUpstream, client: Client) -> None:
    upstream = client()
    for _ in range(3):
        response = await upstream.send(REQUEST, BODY, {})
        await response.read()
        await response.close()
    assert fake.connections == 1


async def test_an_own_key_replaces_the_callers(fake: FakeUpstream, client: Client) -> None:
    upstream = client("sk-own")
    assert not upstream.forwards_credentials
    await (await upstream.send(REQUEST, BODY, {"authorization": "Bearer caller", "x-api-key": "k"})).read()
    assert fake.calls[0].headers["authorization"] == "Bearer sk-own"
    assert "x-api-key" not in fake.calls[0].headers


async def test_user_info_of_the_url_is_sent_as_basic(fake: FakeUpstream, client: Client) -> None:
    upstream = client(base_url=fake.base_url.replace("http://", "http://us%40er:p%3Aw@") + "/")
    await (await upstream.send(REQUEST, BODY, {"authorization": "Bearer caller"})).read()
    expected = base64.b64encode(b"us@er:p:w").decode()
    assert fake.calls[0].headers["authorization"] == f"Basic {expected}"
    assert fake.calls[0].path == "/v1/chat/completions"


async def test_without_a_key_the_callers_travels(fake: FakeUpstream, client: Client) -> None:
    upstream = client()
    assert upstream.forwards_credentials
    await (await upstream.send(REQUEST, BODY, {"authorization": "Bearer caller"})).read()
    assert fake.calls[0].headers["authorization"] == "Bearer caller"


async def test_cookies_are_neither_kept_nor_relayed(fake: FakeUpstream, client: Client) -> None:
    fake.default = Reply(headers={"set-cookie": "sid=1; Path=/"})
    # By name: a cookie jar would refuse the cookies of an address anyway.
    upstream = client(base_url=fake.base_url.replace("127.0.0.1", "localhost"))
    for _ in range(2):
        response = await upstream.send(REQUEST, BODY, {})
        await response.read()
        assert "set-cookie" not in response.headers
    assert "cookie" not in fake.calls[1].headers


async def test_proxies_of_the_environment_are_ignored(
    fake: FakeUpstream, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert (await client().send(REQUEST, BODY, {})).status == 200


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
async def test_any_status_is_a_response(fake: FakeUpstream, client: Client, status: int) -> None:
    fake.default = Reply(status=status, headers={"retry-after": "7"})
    response = await client().send(REQUEST, BODY, {})
    assert (response.status, response.headers["retry-after"]) == (status, "7")
    assert b"fake_error" in await response.read()


async def test_a_redirect_is_not_followed(fake: FakeUpstream, client: Client) -> None:
    fake.default = Reply(status=307, headers={"location": fake.base_url + "/elsewhere"}, body={})
    response = await client().send(REQUEST, BODY, {})
    assert response.status == 307
    assert len(fake.calls) == 1


async def test_a_compressed_answer_comes_decoded(fake: FakeUpstream, client: Client) -> None:
    packed = gzip.compress(b'{"a": 1}')
    fake.default = Reply(
        raw=[packed], headers={"content-encoding": "gzip", "content-length": str(len(packed))}
    )
    response = await client().send(REQUEST, BODY, {})
    assert await response.read() == b'{"a": 1}'
    assert not {"content-encoding", "content-length"} & set(response.headers)


async def test_stream_chunks_come_as_they_are_sent(fake: FakeUpstream, client: Client) -> None:
    gate = Gate()
    fake.default = Reply(text="one two", gates={2: gate})
    response = await client().send(REQUEST, STREAM, {})
    chunks = response.chunks()
    first = await anext(chunks)
    assert b'"role":"assistant"' in first  # while the fake still holds the rest back
    gate.open()
    rest = b"".join([chunk async for chunk in chunks])
    assert rest.endswith(b"data: [DONE]\n\n")
    await response.close()


async def test_closing_early_aborts_the_call(fake: FakeUpstream, client: Client) -> None:
    gate = Gate()
    fake.default = Reply(gates={1: gate})
    response = await client().send(REQUEST, STREAM, {})
    await anext(response.chunks())
    await response.close()
    await response.close()
    await fake.aborts(1)


async def test_cancelling_a_call_aborts_it(fake: FakeUpstream, client: Client) -> None:
    gate = Gate()
    fake.default = Reply(header_gate=gate)
    call = asyncio.create_task(client().send(REQUEST, BODY, {}))
    await gate.reached.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await fake.aborts(1)
    await fake.idle()


async def test_closing_the_upstream_breaks_calls_in_flight(fake: FakeUpstream, client: Client) -> None:
    gate = Gate()
    fake.default = Reply(gates={1: gate})
    upstream = client()
    response = await upstream.send(REQUEST, STREAM, {})
    await upstream.close()
    await upstream.close()
    with pytest.raises(UpstreamError) as caught:
        await response.read()
    assert caught.value.code == "upstream_cut"
    with pytest.raises(UpstreamError):
        await upstream.send(REQUEST, BODY, {})
    assert not await upstream.ready()


@pytest.mark.parametrize("body", [BODY, STREAM])
async def test_a_cut_answer_is_an_error(fake: FakeUpstream, client: Client, body: dict[str, Any]) -> None:
    fake.default = Reply(text="one two three", cut_after=0 if body is BODY else 2)
    response = await client().send(REQUEST, body, {})
    with pytest.raises(UpstreamError) as caught:
        await response.read()
    assert (caught.value.status, caught.value.code) == (502, "upstream_cut")


async def test_a_body_shorter_than_announced_is_an_error(fake: FakeUpstream, client: Client) -> None:
    fake.default = Reply(raw=[b"abc"], headers={"content-length": "10"}, cut_after=1)
    response = await client().send(REQUEST, BODY, {})
    with pytest.raises(UpstreamError) as caught:
        await response.read()
    assert caught.value.code == "upstream_cut"


async def test_a_refused_connection_is_unreachable_and_ready_says_so(
    fake: FakeUpstream, client: Client
) -> None:
    port = int(fake.base_url.split(":")[2].split("/")[0])
    upstream = client(base_url=f"http://user:hunter2@127.0.0.1:{port}/v1")
    assert await upstream.ready()
    await fake.stop()
    with pytest.raises(UpstreamError) as caught:
        await upstream.send(REQUEST, BODY, {})
    assert (caught.value.status, caught.value.code) == (502, "upstream_unreachable")
    assert "hunter2" not in caught.value.message
    assert "user" not in caught.value.message
    assert not await upstream.ready()
    await fake.start(port)
    assert await upstream.ready()


async def test_an_unknown_host_is_unreachable(client: Client) -> None:
    with pytest.raises(UpstreamError) as caught:
        await client(base_url="http://no-such-host.invalid/v1").send(REQUEST, BODY, {})
    assert caught.value.code == "upstream_unreachable"


async def test_headers_that_never_come_time_out(fake: FakeUpstream, client: Client) -> None:
    fake.default = Reply(header_gate=Gate())
    with pytest.raises(UpstreamError) as caught:
        await client(timeout=0.05).send(REQUEST, BODY, {})
    assert (caught.value.status, caught.value.code) == (504, "upstream_timeout")
    await fake.aborts(1)


async def test_a_body_that_falls_silent_times_out(fake: FakeUpstream, client: Client) -> None:
    fake.default = Reply(gates={1: Gate()})
    response = await client(idle_timeout=0.05).send(REQUEST, STREAM, {})
    with pytest.raises(UpstreamError, match="fell silent") as caught:
        await response.read()
    assert caught.value.code == "upstream_timeout"
    await response.close()
    await fake.aborts(1)


async def test_a_body_that_goes_on_too_long_times_out(fake: FakeUpstream, client: Client) -> None:
    fake.default = Reply(gates={1: Gate()})
    response = await client(timeout=0.2).send(REQUEST, STREAM, {})
    with pytest.raises(UpstreamError, match="took too long") as caught:
        await response.read()
    assert caught.value.code == "upstream_timeout"


async def test_a_server_that_accepts_nothing_times_out(client: Client) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        try:
            for one in waiting:  # fill the backlog, so that a further connection hangs
                one.setblocking(False)
                one.connect_ex(("127.0.0.1", port))
            upstream = client(base_url=f"http://127.0.0.1:{port}/v1", connect_timeout=0.05)
            with pytest.raises(UpstreamError, match="did not accept a connection") as caught:
                await upstream.send(REQUEST, BODY, {})
        finally:
            for one in waiting:
                one.close()
    assert caught.value.code == "upstream_timeout"


class RawServer:
    """Answers the n-th request on its connections with the n-th bytes; None closes instead."""

    def __init__(self, *answers: bytes | None) -> None:
        self.requests = 0
        self._answers = answers
        self._dead: set[asyncio.StreamWriter] = set()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                await reader.readexactly(size)
                answer = self._answers[self.requests]
                self.requests += 1
                if answer is None:
                    break
                writer.write(answer)
                await writer.drain()
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


async def statuses(client: Client, raw: RawServer, calls: int) -> list[int | str]:
    server = await asyncio.start_server(raw, "127.0.0.1", 0)
    upstream = client(base_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
    seen: list[int | str] = []
    for _ in range(calls):
        try:
            response = await upstream.send(REQUEST, BODY, {})
            await response.read()
            seen.append(response.status)
        except UpstreamError as error:
            seen.append(error.code)
    await upstream.close()
    server.close()
    return seen


async def test_a_kept_connection_that_the_server_closed_is_replaced(client: Client) -> None:
    assert await statuses(client, RawServer(OK, None, OK), 2) == [200, 200]


async def test_a_model_call_on_a_fresh_connection_is_never_repeated(client: Client) -> None:
    raw = RawServer(None, OK)
    assert await statuses(client, raw, 1) == ["upstream_cut"]
    assert raw.requests == 1


async def test_what_is_no_http_is_an_error(client: Client) -> None:
    assert await statuses(client, RawServer(b"SSH-2.0-x\r\n\r\n"), 1) == ["upstream_cut"]


async def test_other_paths_pass_through_unchanged(fake: FakeUpstream, client: Client) -> None:
    headers = {"content-type": "text/x", "authorization": "Bearer caller"}
    response = await client().forward("PUT", "/files/a%2Fb%20c", "q=%E4%BD%A0&x=1", b"raw", headers)
    await response.read()
    (call,) = fake.calls
    assert (call.method, call.body) == ("PUT", b"raw")
    assert call.target == "/v1/files/a%2Fb%20c?q=%E4%BD%A0&x=1"
    assert call.headers["content-type"] == "text/x"


@pytest.mark.parametrize(
    "path", ["/../admin", "/a/../../x", "/%2e%2E/admin", "/a%2f..%2fb", "/a\\..\\b", "/./x"]
)
async def test_a_path_cannot_leave_the_base_url(fake: FakeUpstream, client: Client, path: str) -> None:
    with pytest.raises(RequestError) as caught:
        await client().forward("GET", path, "", b"", {})
    assert caught.value.status == 400
    assert not fake.calls


async def test_a_path_cannot_smuggle_a_second_request(fake: FakeUpstream, client: Client) -> None:
    response = await client().forward("GET", "/x y", "a=b\r\nHost: evil#c 你", b"", {})
    await response.read()
    assert [call.target for call in fake.calls] == ["/v1/x%20y?a=b%0D%0AHost:%20evil%23c%20%E4%BD%A0"]
    assert "evil" not in fake.calls[0].headers["host"]


async def test_many_calls_run_at_once(fake: FakeUpstream, client: Client) -> None:
    gate = Gate()
    fake.default = Reply(header_gate=gate)
    upstream = client()
    calls = [asyncio.create_task(upstream.send(REQUEST, BODY, {})) for _ in range(150)]
    await fake.arrived(150)
    gate.open()
    responses = await asyncio.gather(*calls)
    assert {response.status for response in responses} == {200}
    for response in responses:
        await response.read()
