"""Exact search: every row is compared, in slices that stay in the processor's cache."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from usearch.index import search as compare

from stratacache.vectors.rows import Half, Slots

_SLICE = 512  # rows of 1 KB: gathered and compared before they fall out of the cache


def nearest(vectors: Half, slots: Slots, query: NDArray[np.float32], count: int) -> Slots:
    """The ``count`` of ``slots`` whose vectors have the largest inner product with ``query``, in no order."""
    if len(slots) <= count:
        return slots
    half = query.astype(np.float16)
    kept: list[Slots] = []
    distances: list[NDArray[np.float32]] = []
    for start in range(0, len(slots), _SLICE):
        part = slots[start : start + _SLICE]
        found = compare(vectors[part], half, min(count, len(part)), "ip", exact=True, threads=1)
        kept.append(part[found.keys.astype(np.int64)])
        distances.append(found.distances)
    merged, distance = np.concatenate(kept), np.concatenate(distances)
    return merged[np.argpartition(distance, count - 1)[:count]] if len(merged) > count else merged


def similarities(vectors: Half, slots: Slots, query: NDArray[np.float32]) -> NDArray[np.float32]:
    """Cosines of the rows' unit vectors with the unit ``query``, computed in float32."""
    found: NDArray[np.float32] = vectors[slots].astype(np.float32) @ query
    return found
