"""What an index on a server costs a look-up beside the index in this process: recall@10 and time of a search.

    python -m benchmarks.vector_servers [--vectors N]

Vectors are unit vectors of 512 dimensions in clusters of twenty, queries are vectors moved a little; nine in ten of the
vectors are in the partition that is asked. Rounds are interleaved and medians reported. Milvus is not here: Milvus
Lite, which the tests run, compares every vector and says nothing of a Milvus.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.contract.vector_servers import redisearch
from tests.servers.redis import RedisServer

from benchmarks import report
from stratacache.clock import SystemClock
from stratacache.ports import VectorIndex
from stratacache.types import Question
from stratacache.vectors.local import LocalIndex
from stratacache.vectors.servers import open_vector_server

COMMAND = "python -m benchmarks.vector_servers"
DIMENSION = 512
QUERIES = 100
ROUNDS = 5
ASKED, OTHER = b"a" * 16, b"b" * 16

Vectors = NDArray[np.float32]


def clustered(count: int, seed: int) -> Vectors:
    random = np.random.default_rng(seed)
    centres = random.standard_normal((count // 20 + 1, DIMENSION))
    found = centres[random.integers(0, len(centres), count)] + 0.7 * random.standard_normal(
        (count, DIMENSION)
    )
    return unit(found)


def unit(vectors: NDArray[Any]) -> Vectors:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


async def fill(index: VectorIndex, vectors: Vectors) -> float:
    """Seconds per addition, eight at a time."""
    now = time.time()
    begun = time.perf_counter()

    async def some(first: int) -> None:
        for number in range(first, len(vectors), 8):
            partition = OTHER if number % 10 == 0 else ASKED
            question = Question(number.to_bytes(16, "big"), partition, f"question {number}", now, math.inf)
            await index.add(question, vectors[number])

    await asyncio.gather(*[some(first) for first in range(8)])
    return (time.perf_counter() - begun) / len(vectors)


async def ask(index: VectorIndex, queries: Vectors, truth: list[set[int]]) -> tuple[float, float]:
    """Recall, and the median of seconds per search, one at a time."""
    found, took = 0, []
    for query, wanted in zip(queries, truth, strict=True):
        begun = time.perf_counter()
        candidates = await index.search(ASKED, query, 10)
        took.append(time.perf_counter() - begun)
        found += len(wanted & {int.from_bytes(one.question.digest, "big") for one in candidates})
    return found / (10 * len(queries)), report.median(took)


async def measure(indexes: Mapping[str, VectorIndex], count: int) -> dict[str, dict[str, float]]:
    vectors = clustered(count, seed=1)
    random = np.random.default_rng(2)
    chosen = random.integers(0, count, QUERIES)
    queries = unit(
        vectors[chosen] + 0.3 / math.sqrt(DIMENSION) * random.standard_normal((QUERIES, DIMENSION))
    )
    theirs = np.arange(count) % 10 != 0
    truth = []
    for query in queries:
        cosines = np.where(theirs, vectors @ query, -2.0)
        truth.append(set(np.argpartition(-cosines, 10)[:10].tolist()))
    figures: dict[str, dict[str, float]] = {}
    for name, index in indexes.items():
        figures[name] = {"add_ms": 1000 * await fill(index, vectors)}
    searches: dict[str, list[float]] = {name: [] for name in indexes}
    for _ in range(ROUNDS):
        for name, index in indexes.items():
            figures[name]["recall_at_10"], took = await ask(index, queries, truth)
            searches[name].append(took)
    for name in indexes:
        figures[name]["search_ms"] = 1000 * report.median(searches[name])
        figures[name]["times_in_process"] = figures[name]["search_ms"] / figures["in process"]["search_ms"]
    return figures


async def run(count: int) -> dict[str, dict[str, float]]:
    clock = SystemClock()
    with RedisServer(options=("--loadmodule", str(redisearch()))) as redis:
        urls = {
            "redis vector sets": f"{redis.url}?method=sets",
            "redis query engine": f"{redis.url}?method=search",
        }
        indexes: dict[str, VectorIndex] = {"in process": LocalIndex(DIMENSION, "benchmark", clock)}
        for name, url in urls.items():
            indexes[name] = open_vector_server(url, DIMENSION, "benchmark", clock, budget=30.0)
        try:
            return await measure(indexes, count)
        finally:
            for index in indexes.values():
                await index.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vectors", type=int, default=10_000)
    count = parser.parse_args().vectors
    figures = asyncio.run(run(count))
    print(f"{'index':<20} {'recall@10':>9} {'search ms':>10} {'× in process':>13} {'add ms':>8}")
    for name, row in figures.items():
        print(
            f"{name:<20} {row['recall_at_10']:>9.3f} {row['search_ms']:>10.2f} {row['times_in_process']:>13.1f} "
            f"{row['add_ms']:>8.2f}"
        )
    report.write("vector_servers", COMMAND, {"vectors": count, "dimension": DIMENSION, "indexes": figures})


if __name__ == "__main__":
    main()
