"""What the local vector index finds and costs, beside exact search, from a thousand vectors to ``--vectors``.

    python -m benchmarks.vector_recall [--vectors N] [--kinds exact,hnsw,ivfpq]

Vectors are synthetic: unit, 512-dimensional, in clusters of about fifty (topics), each topic near one of a few hundred
themes. A query is a stored vector moved by as much as a paraphrase is (cosine about .85). One partition holds all.
Recall is the share of the true ten nearest that a search gives; latency that of one search after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import report
from stratacache.clock import SystemClock
from stratacache.types import Question
from stratacache.vectors.limits import IndexLimits
from stratacache.vectors.local import LocalIndex

COMMAND = "python -m benchmarks.vector_recall"
DIMENSION = 512
QUERIES = 300
PARTITION = b"p" * 16
Matrix = NDArray[np.float32]


def unit(matrix: Matrix) -> Matrix:
    found: Matrix = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    return found


class Corpus:
    """``count`` vectors, made in blocks so that they never lie in memory together."""

    def __init__(self, count: int) -> None:
        self.count = count
        chance = np.random.default_rng(11)
        themes = chance.standard_normal((max(8, count // 2500), DIMENSION), np.float32)
        self._topics = themes[chance.integers(0, len(themes), max(20, count // 50))]
        self._topics += 0.9 * chance.standard_normal(self._topics.shape, np.float32)

    def block(self, number: int, size: int) -> Matrix:
        chance = np.random.default_rng((12, number))
        chosen = self._topics[chance.integers(0, len(self._topics), size)]
        return unit(chosen + 0.7 * chance.standard_normal(chosen.shape, np.float32))

    def blocks(self, size: int = 10_000) -> list[tuple[int, int]]:
        """Numbers and sizes of the blocks."""
        return [(at, min(size, self.count - at * size)) for at in range(-(-self.count // size))]

    def queries(self) -> Matrix:
        chance = np.random.default_rng(13)
        asked = self.block(*self.blocks()[0])[:QUERIES]
        return unit(asked + 0.62 / DIMENSION**0.5 * chance.standard_normal(asked.shape, np.float32))

    def truth(self, queries: Matrix) -> NDArray[np.int64]:
        """Numbers of the ten nearest of each query, by float32 products with every vector."""
        best = np.full((len(queries), 10), -2, np.float32)
        names = np.full((len(queries), 10), -1, np.int64)
        for number, size in self.blocks():
            scores = np.hstack((best, queries @ self.block(number, size).T))
            ids = np.hstack((names, np.tile(np.arange(size) + number * 10_000, (len(queries), 1))))
            top = np.argpartition(-scores, 9, axis=1)[:, :10]
            best, names = np.take_along_axis(scores, top, 1), np.take_along_axis(ids, top, 1)
        return names


def resident() -> dict[str, int]:
    """Bytes in memory: private ones, and pages of files that the kernel can drop."""
    found = dict.fromkeys(("RssAnon", "RssFile"), 0)
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in found:
            found[name] = int(value.split()[0]) * 1024
    return found


def digest_of(number: int) -> bytes:
    return number.to_bytes(16, "big")


async def measure(kind: str, corpus: Corpus, queries: Matrix, truth: NDArray[np.int64]) -> dict[str, Any]:
    """Fill an index, search it, remove and re-add a part, save it, load it and search again."""
    gc.collect()
    before = resident()
    folder = Path(tempfile.mkdtemp(dir=os.environ.get("TMPDIR")))
    limits = IndexLimits(kind=kind, max_vectors=corpus.count, exact_below=500)  # type: ignore[arg-type]
    index = LocalIndex(DIMENSION, "synthetic", SystemClock(), limits, folder=folder)
    try:
        filled, built = await fill(index, corpus)
        figures = {"kind": kind, "vectors": corpus.count, "adds_per_s": corpus.count / filled}
        figures |= {"build_s": built} | await search(index, queries, truth)
        gc.collect()
        after = resident()
        figures |= {name: (after[name] - before[name]) / corpus.count for name in after}
        figures["stats_bytes"] = (await index.stats()).bytes / corpus.count
        begun = time.perf_counter()
        await index.save(b"1-0")
        figures["save_s"] = time.perf_counter() - begun
        await index.close()
        del index
        gc.collect()
        begun = time.perf_counter()
        loaded, _ = await asyncio.to_thread(
            LocalIndex.load, folder, DIMENSION, "synthetic", SystemClock(), limits
        )
        figures["load_s"] = time.perf_counter() - begun
        figures["recall_loaded"] = (await search(loaded, queries, truth))["recall"]
        await loaded.close()
        return figures
    finally:
        shutil.rmtree(folder)


def alone(kind: str, corpus: Corpus, queries: Matrix, truth: NDArray[np.int64]) -> dict[str, Any]:
    """``measure`` in a process of its own: memory that another index left behind would be counted wrong."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(measured, kind, corpus.count, queries, truth).result()


def measured(kind: str, count: int, queries: Matrix, truth: NDArray[np.int64]) -> dict[str, Any]:
    return asyncio.run(measure(kind, Corpus(count), queries, truth))


async def fill(index: LocalIndex, corpus: Corpus) -> tuple[float, float]:
    """Seconds in ``add``, and seconds until upkeep was done, making the vectors not counted in either."""
    now, filled, making = time.time(), 0.0, 0.0
    begun = time.perf_counter()
    for block, size in corpus.blocks():
        made = time.perf_counter()
        vectors = corpus.block(block, size)
        making += time.perf_counter() - made
        for at, vector in enumerate(vectors):
            number = block * 10_000 + at
            text = f"How do I change the delivery address of order {number} before it ships?"
            question = Question(digest_of(number), PARTITION, text, now, now + 86_400, "a1b2c3d4")
            start = time.perf_counter()
            await index.add(question, vector)
            filled += time.perf_counter() - start
    await index.settled()
    return filled, time.perf_counter() - begun - making


async def search(index: LocalIndex, queries: Matrix, truth: NDArray[np.int64]) -> dict[str, float]:
    times, found = [], 0
    for query in queries[:20]:
        await index.search(PARTITION, query, 10)
    for query, true in zip(queries, truth, strict=True):
        begun = time.perf_counter()
        got = await index.search(PARTITION, query, 10)
        times.append((time.perf_counter() - begun) * 1000)
        found += len({digest_of(number) for number in true.tolist()} & {one.question.digest for one in got})
    times.sort()
    return {
        "recall": found / truth.size,
        "p50_ms": times[len(times) // 2],
        "p99_ms": times[int(len(times) * 0.99)],
    }


def sizes(most: int) -> list[int]:
    return [size for size in (1000, 5000, 10_000, 20_000, 50_000, 100_000, 1_000_000) if size <= most]


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vectors", type=int, default=100_000)
    parser.add_argument("--only", action="store_true", help="this number of vectors and no smaller one")
    parser.add_argument("--kinds", default="exact,hnsw,ivfpq")
    options = parser.parse_args(arguments)
    rows = []
    load = os.getloadavg()[0]
    for size in [options.vectors] if options.only else sizes(options.vectors):
        corpus = Corpus(size)
        queries = corpus.queries()
        truth = corpus.truth(queries)
        for kind in options.kinds.split(","):
            row = alone(kind, corpus, queries, truth)
            rows.append(row)
            print(
                f"{size:9,} {kind:6} recall {row['recall']:.4f}  p50 {row['p50_ms']:7.2f} ms"
                f"  p99 {row['p99_ms']:7.2f} ms  {row['RssAnon']:6.0f} + {row['RssFile']:5.0f} B"
                f"  build {row['build_s']:6.1f} s  save {row['save_s']:5.1f} s  load {row['load_s']:5.2f} s"
                f"  recall loaded {row['recall_loaded']:.4f}",
                flush=True,
            )
    name = "vector_recall" if options.vectors <= 100_000 else "vector_recall_million"
    extra = f" --vectors {options.vectors}{' --only' if options.only else ''} --kinds {options.kinds}"
    figures = {"rows": rows, "load_average_before": load, "load_average_after": os.getloadavg()[0]}
    print(report.write(name, COMMAND + extra, figures))


if __name__ == "__main__":
    main(sys.argv[1:])
