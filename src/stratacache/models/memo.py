"""Remembers the vectors of recent texts, and lets equal texts that are asked for at once share one embedding."""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict

import msgspec

from stratacache.ports import Embedder, Vector

_OVERHEAD = 400  # bytes of an array's and a dict item's objects besides their data
_LARGEST = 1 / 16  # of all the bytes, for one text: a pasted book must not push everything out


class MemoCounts(msgspec.Struct, frozen=True):
    """``texts`` and ``bytes`` (estimated) are kept as of now. Since the start: texts that were found (``hits``), that
    joined an embedding under way (``joined``), and the others (``misses``)."""

    texts: int
    bytes: int
    hits: int
    joined: int
    misses: int


class MemoEmbedder:
    """A ``ports.Embedder`` before another one, least recently used out first. Errors are not remembered.

    Args:
        max_bytes: of texts and vectors together; 0 remembers nothing but still joins equal texts.
    """

    def __init__(self, inner: Embedder, max_bytes: int) -> None:
        self._inner = inner
        self._max_bytes = max_bytes
        self._vectors: OrderedDict[str, Vector] = OrderedDict()
        self._bytes = 0
        self._under_way: dict[str, _Shared] = {}
        self._hits = 0
        self._joined = 0
        self._misses = 0

    @property
    def fingerprint(self) -> str:
        return self._inner.fingerprint

    @property
    def dimension(self) -> int:
        return self._inner.dimension

    @property
    def counts(self) -> MemoCounts:
        return MemoCounts(len(self._vectors), self._bytes, self._hits, self._joined, self._misses)

    async def embed(self, text: str) -> Vector:
        vector = self._vectors.get(text)
        if vector is not None:
            self._hits += 1
            self._vectors.move_to_end(text)
            return vector
        shared = self._under_way.get(text)
        if shared is None:
            self._misses += 1
            shared = self._under_way[text] = _Shared(asyncio.create_task(self._ask(text), name="embedding"))
        else:
            self._joined += 1
        return await self._await(text, shared)

    async def close(self) -> None:
        await self._inner.close()

    def check(self) -> None:
        """Raise AssertionError when the bytes are miscounted or over their bound."""
        counted = sum(_cost(text, vector) for text, vector in self._vectors.items())
        assert counted == self._bytes <= self._max_bytes, f"{self._bytes} bytes noted, {counted} counted"
        assert all(shared.callers > 0 for shared in self._under_way.values()), (
            "an embedding that nobody awaits"
        )

    async def _await(self, text: str, shared: _Shared) -> Vector:
        """Cancelled with the last of the callers, and only then."""
        shared.callers += 1
        try:
            return await asyncio.shield(shared.task)
        finally:
            shared.callers -= 1
            if not shared.callers and self._under_way.get(text) is shared:
                del self._under_way[text]
                shared.task.cancel()

    async def _ask(self, text: str) -> Vector:
        vector = await self._inner.embed(text)
        self._remember(text, vector)
        return vector

    def _remember(self, text: str, vector: Vector) -> None:
        cost = _cost(text, vector)
        if cost > self._max_bytes * _LARGEST:
            return
        replaced = self._vectors.pop(text, None)
        if replaced is not None:
            self._bytes -= _cost(text, replaced)
        self._vectors[text] = vector
        self._bytes += cost
        while self._bytes > self._max_bytes:
            self._bytes -= _cost(*self._vectors.popitem(last=False))


class _Shared:
    """One embedding under way and how many await it."""

    __slots__ = ("callers", "task")

    def __init__(self, task: asyncio.Task[Vector]) -> None:
        self.task = task
        self.callers = 0


def _cost(text: str, vector: Vector) -> int:
    return sys.getsizeof(text) + vector.nbytes + _OVERHEAD
