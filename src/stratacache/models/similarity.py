"""Cosines of many pairs of questions, as the semantic tier would find them: for fitting and measuring."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from stratacache.errors import ModelError
from stratacache.models.memo import MemoEmbedder
from stratacache.models.pool import Pool
from stratacache.models.use import UseEmbedder
from stratacache.ports import Embedder

_MEMO_BYTES = 32 << 20  # questions recur in several pairs


async def cosines(embedder: Embedder, pairs: Iterable[tuple[str, str]]) -> NDArray[np.float64]:
    """The cosine of each pair's vectors, NaN where one of its questions is none that ``embedder`` takes.

    Raises:
        ModelError: it is down or fails.
    """
    remembered = MemoEmbedder(embedder, _MEMO_BYTES)
    found: list[float] = []
    for pair in pairs:
        try:
            one, other = [await remembered.embed(text) for text in pair]
        except ModelError as error:
            if error.code != "nothing_to_embed":
                raise
            found.append(float("nan"))
        else:
            found.append(float(one @ other))
    return np.array(found, np.float64)


def default_cosines(pairs: Iterable[tuple[str, str]]) -> NDArray[np.float64]:
    """As :func:`cosines` by the default embedder; blocks, and runs an event loop of its own."""
    return asyncio.run(_by_default(pairs))


async def _by_default(pairs: Iterable[tuple[str, str]]) -> NDArray[np.float64]:
    pool = Pool(1, 4)
    embedder = UseEmbedder(pool, budget=60.0)
    embedder.start()
    try:
        await embedder.ready()
        return await cosines(embedder, pairs)
    finally:
        await embedder.close()
        await pool.close()
