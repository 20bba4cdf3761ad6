"""The backends that the contract suites run over: one line each in ``KINDS``."""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
import pytest
from tests.servers.memcached import shared_servers
from tests.servers.redis import Binary, RedisServer

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


def on_redis(binary: Binary) -> Opener:
    """One server that the whole run shares; the folder becomes the prefix of the keys."""

    @contextlib.asynccontextmanager
    async def opened(clock: Clock, max_bytes: int, folder: Path) -> AsyncIterator[Backend]:
        server, prefix = shared_server(binary), hashlib.sha256(bytes(folder)).hexdigest()[:16]
        # As if the server had run for long: else the first invalidation waits for leases that it may have forgotten.
        run = re.findall(rb"run_id:(\w+)", server.command("INFO", "server"))[0]
        server.command("HSET", f"{{{prefix}}}instances", "run", run, "born", "0", "seq", "0")
        async with named(f"{server.url}?prefix={prefix}")(clock, max_bytes, folder) as backend:
            yield backend

    return opened


@functools.cache
def shared_server(binary: Binary) -> RedisServer:
    server = RedisServer(binary)
    server.start()
    atexit.register(server.stop)
    return server


async def close(backend: Backend) -> None:
    """What hangs on the store before the store."""
    for part in (backend.bulletin, backend.relay):
        if part is not None:
            await part.close()
    await backend.store.close()


def kinds(**wanted: bool) -> pytest.MarkDecorator:
    """Run a test, or the fixture's users, over those kinds only of which all is true that it is about."""
    chosen = [kind for kind in KINDS if all(getattr(kind, name) == value for name, value in wanted.items())]
    return pytest.mark.parametrize("kind", chosen, ids=lambda kind: str(kind.name))


KINDS = [
    Kind("memory", named("memory://"), shared=False, durable=False),
    Kind("sqlite", named("sqlite:///{folder}/deep/cache.db"), bulletin=True, relay=True, questions=True),
    Kind("rocksdb", named("rocksdb:///{folder}/deep/cache"), shared=False),
    Kind("redis", on_redis("redis"), bounded=False, sizes=False),
    Kind("valkey", on_redis("valkey"), bounded=False, sizes=False),
    Kind("memcached", on_memcached(), bounded=False, sizes=False, counts=False),
]
