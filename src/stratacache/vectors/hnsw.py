"""A graph of rows (HNSW: Malkov, Yashunin, IEEE TPAMI 42(4), 2020) by usearch, over float16 vectors in place."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from usearch.index import Index

from stratacache.vectors.core import Abandoned
from stratacache.vectors.rows import Half, Slots

_LINKS = 16
_EXPANSION_ADD = 96
_EXPANSION_SEARCH = 96, 1024  # candidates kept in a search, at least and at most
_WIDE_FROM = (
    25_000  # rows; more are searched wider by the root of their number: recall fell to .73 at a million
)
_NODE_BYTES = 220  # links, key and the vector's address, measured
_TOGETHER = 8  # rows inserted while searches wait: about 2 ms


class HnswCore:
    """A graph whose nodes refer to the rows' vectors, which must not change or move while their row is in it.

    A graph that was saved comes back mapped, read-only and at once; the first change copies it into memory.
    """

    kind = "hnsw"

    def __init__(self, vectors: Half, graph: Index, file: Path | None = None) -> None:
        self._vectors = vectors  # keeps them alive: the graph holds bare addresses
        self._graph = graph
        self._mapped = file
        self._lock = threading.Lock()  # usearch gives one thread's calls no memory of their own

    @classmethod
    def build(cls, vectors: Half, slots: Slots, abandoned: Callable[[], bool]) -> HnswCore:
        """A graph of ``slots``; minutes for a million."""
        core = cls(vectors, _graph(vectors.shape[1], len(slots)))
        for start, stop in _runs(np.sort(slots)):
            if abandoned():
                raise Abandoned
            core._insert(start, stop)
        return core

    @classmethod
    def load(cls, vectors: Half, path: Path) -> HnswCore:
        graph = _graph(vectors.shape[1])
        graph.view(str(path))
        _widen(graph)
        return cls(vectors, graph, path)

    def search(self, query: NDArray[np.float32], count: int) -> Slots:
        half = query.astype(np.float16)
        with self._lock:
            found = self._graph.search(half, count, threads=1)
            return found.keys.astype(np.uint32)

    def apply(self, added: Slots, removed: Slots) -> None:
        if self._mapped is not None:
            graph = _graph(self._vectors.shape[1])
            graph.load(str(self._mapped))
            with self._lock:
                self._graph, self._mapped = graph, None
        if len(removed):
            with self._lock:
                self._graph.remove(removed.astype(np.uint64), threads=1)
        for start, stop in _runs(np.sort(added[~self._holds(added)]), _TOGETHER):
            self._insert(start, stop)
        with self._lock:
            _widen(self._graph)

    def _holds(self, slots: Slots) -> NDArray[np.bool_]:
        """Which are in the graph: what was applied in part is applied again."""
        with self._lock:
            return np.asarray(self._graph.contains(slots.astype(np.uint64)), np.bool_).reshape(len(slots))

    def _insert(self, start: int, stop: int) -> None:
        keys = np.arange(start, stop, dtype=np.uint64)
        with self._lock:
            # copy=False needs memory that stays: a slice of the rows, never rows picked by a list of numbers.
            self._graph.add(keys, self._vectors[start:stop], copy=False, threads=1)

    def slots(self) -> Slots:
        with self._lock:
            return np.asarray(self._graph.keys[:], dtype=np.uint64).astype(np.uint32)

    def save(self, path: Path) -> None:
        self._graph.save(str(path))

    def memory(self) -> int:
        return len(self._graph) * _NODE_BYTES


def _width(rows: int) -> int:
    """Candidates to keep in a search of that many rows."""
    least, most = _EXPANSION_SEARCH
    return min(most, max(least, round(least * math.sqrt(rows / _WIDE_FROM))))


def _widen(graph: Index) -> None:
    graph.expansion_search = _width(len(graph))  # type: ignore[misc]  # its setter stands apart from its getter


def _graph(dimension: int, rows: int = 0) -> Index:
    return Index(
        ndim=dimension,
        metric="ip",
        dtype="f16",
        connectivity=_LINKS,
        expansion_add=_EXPANSION_ADD,
        expansion_search=_width(rows),
    )


def _runs(slots: Slots, longest: int = 64) -> Iterator[tuple[int, int]]:
    """Half-open ranges of consecutive numbers that cover the sorted ``slots``."""
    breaks = np.flatnonzero(np.diff(slots.astype(np.int64)) != 1) + 1
    for run in np.split(slots, breaks):
        for start in range(0, len(run), longest):
            first = int(run[start])
            yield first, first + min(longest, len(run) - start)
