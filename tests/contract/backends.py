"""The backends that the contract suites run over: one line each in ``KINDS``."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
from tests.servers.memcached import shared_servers

from stratacache.ports import Clock
from stratacache.stores import Backend, open_backend

Opener = Callable[[Clock, int, Path], AbstractAsyncContextManager[Backend]]


class Kind(msgspec.Struct, frozen=True):
    """A kind of backend.

    ``open``: an instance with this clock and bound in bytes; the same folder names the same data, so that a second call
    gives a second instance. It is closed at the end, unless the test did so.

    What a kind does differently, as its documentation says: ``shared``, whether a second instance is possible;
    ``durable``, whether entries outlive all instances; ``bounded``, whether it keeps to the bound itself, says what it
    evicted, and declines what is too large; ``counts``, whether it knows how many entries it has and how many an
    invalidation affects.
    """

    name: str
    open: Opener
    shared: bool = True
    durable: bool = True
    bounded: bool = True
    counts: bool = True


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


async def close(backend: Backend) -> None:
    """What hangs on the store before the store."""
    for part in (backend.bulletin, backend.relay):
        if part is not None:
            await part.close()
    await backend.store.close()


KINDS = [
    Kind("memory", named("memory://"), shared=False, durable=False),
    Kind("sqlite", named("sqlite:///{folder}/deep/cache.db")),
    Kind("rocksdb", named("rocksdb:///{folder}/deep/cache"), shared=False),
    Kind("memcached", on_memcached(), bounded=False, counts=False),
]
