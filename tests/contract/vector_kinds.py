"""The vector indexes that the contract suite runs over: one line each in ``INDEX_KINDS``."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
from tests.contract.vector_servers import on_milvus, on_redis

from stratacache.ports import Clock, VectorIndex
from stratacache.vectors.limits import IndexKind, IndexLimits
from stratacache.vectors.local import LocalIndex

DIMENSION = 16
FINGERPRINT = "test-embedder"
IndexOpener = Callable[[Clock, Path], AbstractAsyncContextManager[VectorIndex]]


class VectorKind(msgspec.Struct, frozen=True):
    """A kind of index.

    ``open``: an empty index of ``DIMENSION``, ``FINGERPRINT`` and this clock; the folder is the test's own. It is
    closed at the end, unless the test did so.

    What a kind does differently: ``exact``, whether a search finds the nearest without fail; ``many``, how many
    questions bring its way of searching many into play.
    """

    name: str
    open: IndexOpener
    exact: bool = False
    many: int = 300


def local(kind: IndexKind, exact_below: int) -> IndexOpener:
    @contextlib.asynccontextmanager
    async def opened(clock: Clock, folder: Path) -> AsyncIterator[VectorIndex]:
        limits = IndexLimits(kind=kind, max_vectors=5000, exact_below=exact_below)
        index = LocalIndex(DIMENSION, FINGERPRINT, clock, limits, folder=folder / "index")
        try:
            yield index
        finally:
            await index.close()

    return opened


INDEX_KINDS = [
    VectorKind("exact", local("exact", 32), exact=True),
    VectorKind("hnsw", local("hnsw", 32)),
    VectorKind("ivfpq", local("ivfpq", 650), many=900),
    VectorKind("redis-sets", on_redis("sets")),
    VectorKind("redis-search", on_redis("search")),
    VectorKind("milvus", on_milvus()),
]
