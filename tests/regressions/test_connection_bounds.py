"""Connections that are hostile or broken: endless heads, heads that never end, pipelines whose client leaves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import uvicorn

from stratacache.errors import RequestError
from stratacache.gateway import http, protocol
from stratacache.gateway.http import ASGIScope, Receive, Send, read_body, send_body
from stratacache.gateway.protocol import MAX_HEAD, BoundedProtocol

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"


class App:
    """Answers ``ok`` once ``go`` is set, and notes what it hears of its client after the body."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.go.set()
        self.begun = asyncio.Event()
        self.heard: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        await read_body(receive, 1000)
        self.begun.set()
        if not self.go.is_set():
            waiting = asyncio.ensure_future(self.go.wait())
            hearing = asyncio.ensure_future(receive())
            await asyncio.wait({waiting, hearing}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if hearing.done():
                self.heard.put_nowait(hearing.result())
                return
            hearing.cancel()
        await send_body(send, 200, [], b"ok")


@asynccontextmanager
async def connected(app: App) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    config = uvicorn.Config(app, http=BoundedProtocol, lifespan="off", log_level="error", loop="none", port=0)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0)
    reader, writer = await asyncio.open_connection(*server.servers[0].sockets[0].getsockname())
    try:
        yield reader, writer
    finally:
        writer.close()
        server.should_exit = True
        await serving


async def _error(reader: asyncio.StreamReader) -> tuple[bytes, Any]:
    head = await reader.readuntil(b"\r\n\r\n")
    body = await reader.read()  # to the end: the connection is closed
    return head.split(b" ")[1], msgspec.json.decode(body)["error"]["code"]


@pytest.mark.parametrize("start", [HEAD + b"X: ", HEAD, b"GET /"], ids=["header", "headers", "line"])
async def test_an_endless_head_is_refused(start: bytes) -> None:
    more = b"a: b\r\n" if start is HEAD else b"a" * 64
    async with connected(App()) as (reader, writer):
        writer.write(start + more * (MAX_HEAD // len(more)))
        await writer.drain()
        assert await _error(reader) == (b"431", "headers_too_large")


async def test_many_requests_on_one_connection_are_not_one_long_head() -> None:
    async with connected(App()) as (reader, writer):
        for _ in range(4):
            writer.write(HEAD + b"X: " + b"a" * (MAX_HEAD // 2))
            await writer.drain()
            writer.write(b"\r\n\r\nhi")
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")


async def test_what_is_no_http_is_refused_in_the_dialects_shape() -> None:
    async with connected(App()) as (reader, writer):
        writer.write(b"\x00\x01\r\n\r\n")
        assert await _error(reader) == (b"400", "invalid_http")


@pytest.mark.parametrize("sent", [b"", b"POST / HT", HEAD])
async def test_a_head_that_never_ends_gives_up_its_connection(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD_TIMEOUT", 0)
    async with connected(App()) as (reader, writer):
        writer.write(sent)
        with contextlib.suppress(ConnectionResetError):  # it may be closed before this has arrived
            assert await reader.read() == b""


async def test_blank_lines_do_not_hold_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected(App()) as (reader, writer):
        writer.write(HEAD + b"\r\nhi")
        await reader.readuntil(b"ok")
        monkeypatch.setattr(protocol, "HEAD_TIMEOUT", 0)
        writer.write(b"\r\n")
        assert await reader.read() == b""


async def test_a_half_sent_next_request_does_not_cut_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    app = App()
    app.go.clear()
    async with connected(app) as (reader, writer):
        writer.write(HEAD + b"\r\nhi")
        await app.begun.wait()
        monkeypatch.setattr(protocol, "HEAD_TIMEOUT", 0)
        writer.write(b"POST / HT")
        await writer.drain()
        app.go.set()
        assert (await reader.read()).endswith(b"ok")


async def test_every_request_of_a_pipeline_hears_that_its_client_left() -> None:
    app = App()
    app.go.clear()
    async with connected(app) as (_, writer):
        writer.write((HEAD + b"\r\nhi") * 3)
        await app.begun.wait()
        writer.transport.abort()
        assert (await app.heard.get())["type"] == "http.disconnect"


async def test_a_body_that_never_begins_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "BODY_TIMEOUT", 0)

    async def never() -> MutableMapping[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(RequestError) as caught:
        await read_body(never, 100)
    assert (caught.value.status, caught.value.code) == (408, "body_timeout")
