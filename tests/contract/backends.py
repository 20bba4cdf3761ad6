"""The backends that the contract suites run over: one line each in ``KINDS``."""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
import pytest
from tests.servers.certificates import Certificates
from tests.servers.memcached import shared_servers
from tests.servers.redis import RedisServer
from tests.servers.redis_cluster import ClusterDeployment
from tests.servers.redis_sentinels import SentinelDeployment

from stratacache.ports import Clock
from stratacache.stores import Backend, open_backend

Opener = Callable[[Clock, int, Path], AbstractAsyncContextManager[Backend]]


class Kind(msgspec.Struct, frozen=True):
    """A kind of backend.

    ``open``: an instance with this clock and bound in bytes; the same folder names the same data, so that a second call
    gives a second instance. It is closed at the end, unless the test did so.

    What a kind does differently, as its documentation says: ``shared``, whether a second instance is possible;
    ``durable``, whether entries outlive all instances; ``bounded``, whether it keeps to the bound itself, says what it
    evicted, and declines what is too large; ``sizes``, whether it knows how many entries it has, and their bytes;
    ``counts``, whether it knows how many entries an invalidation affects.
    """

    name: str
    open: Opener
    shared: bool = True
    durable: bool = True
    bounded: bool = True
    sizes: bool = True
    counts: bool = True
    bulletin: bool = False
    relay: bool = False
    questions: bool = False
    log: bool = False
    lists: bool = True


def named(url: str) -> Opener:
    """Opens ``url``, in which ``{folder}`` is the test's folder."""

    @contextlib.asynccontextmanager
    async def opened(clock: Clock, max_bytes: int, folder: Path) -> AsyncIterator[Backend]:
        backend = open_backend(url.format(folder=folder), max_bytes=max_bytes, clock=clock)
        try:
            yield backend
        finally:
            await close(backend)

    return opened


def on_memcached() -> Opener:
    """Two servers that the whole run shares; the folder becomes the prefix of the keys."""

    @contextlib.asynccontextmanager
    async def opened(clock: Clock, max_bytes: int, folder: Path) -> AsyncIterator[Backend]:
        hosts = ",".join(server.name for server in shared_servers())
        prefix = hashlib.sha256(bytes(folder)).hexdigest()[:16]
        async with named(f"memcached://{hosts}?prefix={prefix}")(clock, max_bytes, folder) as backend:
            yield backend

    return opened


Deployment = RedisServer | SentinelDeployment | ClusterDeployment


def master_of(servers: Deployment, key: str) -> RedisServer:
    """The server that holds ``key``."""
    if isinstance(servers, ClusterDeployment):
        return servers.node_for_slot(servers.slot_of(key))
    return servers if isinstance(servers, RedisServer) else servers.master()


def on_redis(shared: Callable[[], Deployment]) -> Opener:
    """Servers that the whole run shares; the folder becomes the prefix of the keys."""

    @contextlib.asynccontextmanager
    async def opened(clock: Clock, max_bytes: int, folder: Path) -> AsyncIterator[Backend]:
        servers, prefix = shared(), hashlib.sha256(bytes(folder)).hexdigest()[:16]
        # As if the server had run for long: else the first invalidation waits for leases that it may have forgotten.
        for key in (f"{{{prefix}}}instances", f"{{{prefix}:0}}instances"):  # the second on a cluster
            server = master_of(servers, key)
            run = re.findall(rb"run_id:(\w+)", server.command("INFO", "server"))[0]
            server.command("HSET", key, "run", run)
        url = f"{servers.url}{'&' if '?' in servers.url else '?'}prefix={prefix}"
        async with named(url)(clock, max_bytes, folder) as backend:
            yield backend

    return opened


def shared(make: Callable[[], Deployment]) -> Callable[[], Deployment]:
    """``make`` and start it once, and stop it at the end of the run."""

    @functools.cache
    def started() -> Deployment:
        servers = make()
        servers.start()
        atexit.register(servers.stop)
        return servers

    return started


def with_tls() -> RedisServer:
    folder = Path(tempfile.mkdtemp(prefix="stratacache-certificates-"))
    atexit.register(shutil.rmtree, folder)
    return RedisServer(tls=Certificates(folder))


async def close(backend: Backend) -> None:
    """What hangs on the store before the store."""
    for part in (backend.bulletin, backend.relay, backend.question_log):
        if part is not None:
            await part.close()
    await backend.store.close()


def kinds(**wanted: bool) -> pytest.MarkDecorator:
    """Run a test, or the fixture's users, over those kinds only of which all is true that it is about."""
    chosen = [kind for kind in KINDS if all(getattr(kind, name) == value for name, value in wanted.items())]
    return pytest.mark.parametrize("kind", chosen, ids=lambda kind: str(kind.name))


REDIS = {"bounded": False, "sizes": False, "bulletin": True, "relay": True, "questions": True, "log": True}

KINDS = [
    Kind("memory", named("memory://"), shared=False, durable=False),
    Kind(
        "sqlite",
        named("sqlite:///{folder}/deep/cache.db"),
        bulletin=True,
        relay=True,
        questions=True,
        log=True,
    ),
    Kind("rocksdb", named("rocksdb:///{folder}/deep/cache"), shared=False),
    Kind("redis", on_redis(shared(RedisServer)), **REDIS),
    Kind("valkey", on_redis(shared(lambda: RedisServer("valkey"))), **REDIS),
    Kind("redis-tls", on_redis(shared(with_tls)), **REDIS),
    Kind("redis-sentinel", on_redis(shared(SentinelDeployment)), **REDIS),
    Kind("redis-cluster", on_redis(shared(ClusterDeployment)), **REDIS),
    Kind("memcached", on_memcached(), bounded=False, sizes=False, counts=False, relay=True, lists=False),
]
