"""The servers and the proxy that other tests rely on do what they say."""

from __future__ import annotations

import asyncio

import pytest
from tests.servers.proxy import Proxy
from tests.servers.redis import Binary, RedisServer
from tests.servers.resp import RedisError


@pytest.mark.parametrize("binary", ["redis", "valkey"])
def test_a_server_keeps_or_loses_its_data_as_asked(binary: Binary) -> None:
    with RedisServer(binary) as server:
        folder, port = server.folder, server.port
        server.command("SET", "a", b"\r\n\x00")
        server.restart(empty=False)
        assert server.command("GET", "a") == b"\r\n\x00"
        server.restart(empty=True)
        assert server.command("GET", "a") is None
        with pytest.raises(RedisError, match="wrong number"):
            server.command("GET")
        assert server.port == port
    assert not server.running
    assert not folder.exists()


def test_a_server_pauses_dies_and_returns() -> None:
    with RedisServer() as server, server.connect() as connection:
        server.pause()
        server.resume()
        assert connection.command("ECHO", "x") == b"x"
        server.kill()
        with pytest.raises(OSError, match=r"closed|reset"):
            connection.command("PING")
        with pytest.raises(ConnectionRefusedError):
            server.command("PING")
        server.restart()
        assert server.command("MGET", "a", "b") == [None, None]


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    writer.write(b"PING\r\n")
    return await reader.readline()


async def _first_byte(port: int) -> bytes:
    reader, _ = await asyncio.open_connection("127.0.0.1", port)
    return await reader.readexactly(1)


async def test_the_proxy_passes_delays_swallows_refuses_and_cuts() -> None:
    with RedisServer() as server:
        async with Proxy(server.port) as proxy:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            proxy.delay = 0.01
            assert await _ask(reader, writer) == b"+PONG\r\n"
            proxy.mode = "black_hole"
            writer.write(b"INCR n\r\n")
            other = await asyncio.open_connection("127.0.0.1", proxy.port)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(_ask(*other), 0.05)
            assert server.command("GET", "n") is None
            proxy.mode = "pass"
            assert await _ask(reader, writer) == b"+PONG\r\n"
            proxy.cut()
            with pytest.raises(ConnectionResetError):
                await _ask(reader, writer)
            proxy.mode = "refuse"
            with pytest.raises((ConnectionError, EOFError)):
                await _first_byte(proxy.port)
            writer.close()
            other[1].close()
