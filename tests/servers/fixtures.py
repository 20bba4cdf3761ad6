"""Fixtures of real Redis servers; a test module has them by ``pytest_plugins = ["tests.servers.fixtures"]``.

The servers start when a test first asks, stay for the whole run, and are whole and empty for each test. A test that
changes a server's settings starts its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.servers.certificates import Certificates
from tests.servers.redis import RedisServer
from tests.servers.redis_cluster import ClusterDeployment
from tests.servers.redis_sentinels import SentinelDeployment


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def redis_server(_redis: RedisServer) -> RedisServer:
    return _fresh(_redis)


@pytest.fixture
def valkey_server(_valkey: RedisServer) -> RedisServer:
    return _fresh(_valkey)


@pytest.fixture
def tls_redis_server(_tls_redis: RedisServer) -> RedisServer:
    return _fresh(_tls_redis)


@pytest.fixture
def redis_cluster(_cluster: list[ClusterDeployment]) -> ClusterDeployment:
    if not _cluster[0].whole:
        _cluster[0].stop()
        _cluster[0] = ClusterDeployment()
        _cluster[0].start()
    _cluster[0].flush()
    return _cluster[0]


@pytest.fixture
def redis_sentinels(_sentinels: list[SentinelDeployment]) -> SentinelDeployment:
    if not _sentinels[0].whole:
        _sentinels[0].stop()
        _sentinels[0] = SentinelDeployment()
        _sentinels[0].start()
    _sentinels[0].flush()
    return _sentinels[0]


@pytest.fixture(scope="session")
def _redis() -> Iterator[RedisServer]:
    with RedisServer("redis") as server:
        yield server


@pytest.fixture(scope="session")
def _valkey() -> Iterator[RedisServer]:
    with RedisServer("valkey") as server:
        yield server


@pytest.fixture(scope="session")
def _tls_redis(certificates: Certificates) -> Iterator[RedisServer]:
    with RedisServer(tls=certificates) as server:
        yield server


# Lists of one: a deployment that a test broke is replaced, and the last one is stopped.
@pytest.fixture(scope="session")
def _cluster() -> Iterator[list[ClusterDeployment]]:
    kept = [ClusterDeployment()]
    yield kept
    kept[0].stop()


@pytest.fixture(scope="session")
def _sentinels() -> Iterator[list[SentinelDeployment]]:
    kept = [SentinelDeployment()]
    yield kept
    kept[0].stop()


def _fresh(server: RedisServer) -> RedisServer:
    if server.running:
        server.resume()
    else:
        server.restart()
    server.flush()
    return server
