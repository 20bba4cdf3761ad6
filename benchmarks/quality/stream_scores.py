"""What the methods of the stream test see: neighbours by the packaged embedder, and the verifier's probabilities."""

from __future__ import annotations

import asyncio
import hashlib
import math
import zlib
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from benchmarks.quality.streams import Pool
from stratacache.errors import ModelError
from stratacache.models.pool import Pool as Threads
from stratacache.models.use import UseEmbedder, default_fingerprint
from stratacache.models.verifier import PairModel
from stratacache.policy.bound.scale import log_odds, probability
from stratacache.policy.calibration import Calibration
from stratacache.policy.language import language_of

NEIGHBOURS = 300
"""Of each question in the whole pool; those that a method has stored are among them."""

Scores = Callable[[int, int], float]
"""The probability that the answer to the second question of a pool serves the first."""
Vectors = NDArray[np.float32]


async def embed(pool: Pool) -> tuple[Pool, Vectors]:
    """The questions that can be embedded, and their vectors by the packaged embedder."""
    embedder = UseEmbedder(Threads(1, 4), budget=60)
    embedder.start()
    vectors: dict[int, Vectors] = {}
    at = 0
    while at < len(pool.texts):
        try:
            vectors[at] = await embedder.embed(pool.texts[at])
        except ModelError as error:
            if error.code == "model_loading":
                await asyncio.sleep(0.1)
                continue
        at += 1
    await embedder.close()
    kept = Pool(pool.name, [pool.texts[i] for i in vectors], [pool.answers[i] for i in vectors])
    return kept, np.stack(list(vectors.values()))


def neighbours(pool: Pool, vectors: Vectors) -> tuple[NDArray[np.int32], Vectors]:
    """Of each question its nearest others of its language, nearest first, and their cosines; -1 for another language,
    whose questions are in another partition."""
    languages = np.array([language_of(text) for text in pool.texts])
    count = min(NEIGHBOURS, len(vectors) - 1)
    near = np.empty((len(vectors), count), np.int32)
    cosines = np.empty((len(vectors), count), np.float32)
    for at, vector in enumerate(vectors):
        similar = np.where(languages == languages[at], vectors @ vector, -1).astype(np.float32)
        similar[at] = -2
        top = np.argpartition(-similar, count - 1)[:count]
        near[at] = top[np.argsort(-similar[top], kind="stable")]
        cosines[at] = similar[near[at]]
    return near, cosines


class Verified:
    """The verifier's probabilities, by the card's ``calibration`` or another, with the cosines of ``vectors``.

    Logits are kept in ``cache``, in a file for each stream and each model's weights.

    A question that the verifier refuses to read is never answered from another: its probability is 0.
    """

    def __init__(
        self,
        pool: Pool,
        vectors: Vectors,
        folder: Path,
        cache: Path | None,
        calibration: Calibration | None = None,
    ) -> None:
        self._texts = pool.texts
        self._vectors = vectors
        self._embedder = default_fingerprint()
        self._languages = [language_of(text) for text in pool.texts]
        self._model = PairModel(folder)
        self._calibration = calibration or self._model.calibration
        self._known: dict[str, float] = {}
        self._file: Path | None = None
        if cache is not None:
            cache.mkdir(parents=True, exist_ok=True)
            self._file = cache / f"{pool.name}-{weights_hash(folder)[:16]}.txt"
            self._known = _read(self._file)

    def __call__(self, asked: int, stored: int) -> float:
        one, other = self._texts[asked], self._texts[stored]
        pair = "\0".join(sorted((one, other))).encode("utf-8", "surrogatepass")
        name = hashlib.blake2b(pair, digest_size=12).hexdigest()
        logit = self._known.get(name)
        if logit is None:
            logit = self._known[name] = self._logit(one, other)
            if self._file is not None:
                with self._file.open("a", encoding="ascii") as file:
                    file.write(f"{name} {logit!r}\n")
        if logit == -math.inf:
            return 0.0
        languages = self._languages[asked], self._languages[stored]
        cosine = float(self._vectors[asked] @ self._vectors[stored])
        return self._calibration.probability(logit, *languages, cosine, self._embedder)

    def _logit(self, one: str, other: str) -> float:
        try:
            return self._model.logit(one, other)
        except ModelError:
            return -math.inf


def weights_hash(folder: Path) -> str:
    """Of what decides the logits: the network and its tokenizer. A new calibration needs no new logits."""
    contents = [(folder / name).read_bytes() for name in ("model.onnx", "tokenizer.json")]
    return hashlib.sha256(b"".join(hashlib.sha256(content).digest() for content in contents)).hexdigest()


def _read(file: Path) -> dict[str, float]:
    if not file.exists():
        return {}
    rows = (line.split() for line in file.read_text("ascii").splitlines())
    return {row[0]: float(row[1]) for row in rows if len(row) == 2}


def simulated(pool: Pool, auc: float, sharpness: float) -> Scores:
    """Log-odds N(±m, 2m), whose difference has that AUC and which are their own log-likelihood ratio; prior 1/4."""
    mean = NormalDist().inv_cdf(auc) ** 2
    prior = log_odds(0.25)

    def score(asked: int, stored: int) -> float:
        pair = f"{min(asked, stored)} {max(asked, stored)}".encode()
        noise = NormalDist().inv_cdf((zlib.crc32(pair) + 0.5) / 2**32)
        sign = 1 if pool.answers[asked] == pool.answers[stored] else -1
        return probability(sharpness * (prior + sign * mean + math.sqrt(2 * mean) * noise))

    return score
