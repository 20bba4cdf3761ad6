"""The servers and the proxy that other tests rely on do what they say."""

from __future__ import annotations

import asyncio
import ssl

import pytest
from tests.servers.certificates import Certificates
from tests.servers.proxy import Proxy
from tests.servers.redis import Binary, RedisServer
from tests.servers.redis_cluster import SLOTS, ClusterDeployment
from tests.servers.redis_sentinels import SentinelDeployment
from tests.servers.resp import Connection, RedisError

pytest_plugins = ["tests.servers.fixtures"]


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


@pytest.mark.parametrize("name", ["redis_server", "valkey_server"])
@pytest.mark.parametrize("harm", ["pause", "kill", "flush"])
def test_a_shared_server_is_whole_and_empty_for_each_test(
    name: str, harm: str, request: pytest.FixtureRequest
) -> None:
    server: RedisServer = request.getfixturevalue(name)
    assert server.command("DBSIZE") == 0
    server.command("SET", "a", "b")
    getattr(server, harm)()


def test_a_server_speaks_tls_only(tls_redis_server: RedisServer, certificates: Certificates) -> None:
    assert tls_redis_server.url == f"rediss://127.0.0.1:{tls_redis_server.port}?ca={certificates.ca}"
    assert tls_redis_server.command("PING") == b"PONG"
    with pytest.raises(ssl.SSLCertVerificationError):
        Connection(tls_redis_server.port, ssl.create_default_context())
    with Connection(tls_redis_server.port) as clear, pytest.raises(OSError, match=r"closed|reset"):
        clear.command("PING")


def test_a_server_can_insist_on_the_clients_certificate(certificates: Certificates) -> None:
    with RedisServer(options=("--tls-auth-clients", "yes"), tls=certificates) as server:
        assert server.command("PING") == b"PONG"
        nameless = ssl.create_default_context(cafile=str(certificates.ca))
        with pytest.raises(OSError, match=r"closed|reset|EOF|certificate required"):
            Connection(server.port, nameless).command("PING")


def test_sentinels_name_another_master_after_a_death(redis_sentinels: SentinelDeployment) -> None:
    redis_sentinels.master().command("SET", "a", "b")
    redis_sentinels.flush()
    redis_sentinels.master().command("SET", "c", "d")
    old = redis_sentinels.kill_master()
    new = redis_sentinels.wait_for_failover()
    assert new is redis_sentinels.master()
    assert new is not old
    assert new.command("SET", "e", "f") == b"OK"
    assert new.command("GET", "a") is None


def test_broken_sentinels_are_replaced(redis_sentinels: SentinelDeployment) -> None:
    assert redis_sentinels.whole
    assert redis_sentinels.master() is redis_sentinels.servers[0]


def test_a_cluster_moves_a_slot(redis_cluster: ClusterDeployment) -> None:
    slot = redis_cluster.slot_of("{x}")
    source = redis_cluster.node_for_slot(slot)
    target = next(each for each in redis_cluster.masters if each is not source)
    keys = ["{x}1", "{x}2", "{x}3"]
    for key in keys:
        source.command("SET", key, "v")

    redis_cluster.move_slot(slot, target, half_way=True)
    assert redis_cluster.node_for_slot(slot) is source
    with pytest.raises(RedisError, match=f"^ASK {slot} {target.address}$"):
        source.command("GET", "{x}missing")
    assert source.command("CLUSTER", "COUNTKEYSINSLOT", slot) == 1
    assert target.command("CLUSTER", "COUNTKEYSINSLOT", slot) == 2

    redis_cluster.move_slot(slot, target)
    assert redis_cluster.node_for_slot(slot) is target
    assert [target.command("GET", key) for key in keys] == [b"v"] * 3
    with pytest.raises(RedisError, match=f"^MOVED {slot} {target.address}$"):
        source.command("GET", keys[0])


def test_a_replica_takes_over_from_a_dead_node(redis_cluster: ClusterDeployment) -> None:
    assert redis_cluster.whole
    old = redis_cluster.node_for_slot(SLOTS - 1)
    redis_cluster.kill(old)
    redis_cluster.wait_for_failover()
    assert redis_cluster.node_for_slot(SLOTS - 1) not in redis_cluster.masters
