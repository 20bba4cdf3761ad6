"""The stream test: hits and errors of thresholds, vCache and our bound on the same questions in random order.

    python -m benchmarks.quality.stream --data DIR [--stream en|zh|intents] [--seeds N] [--held-out] [--model DIR]

Every method sees the same embedder's neighbours among the questions that it stored itself. Static thresholds and vCache
decide by the cosine of the nearest; ours by the verifier's probability of the nearest three. A hit is right when both
questions have the same answer. Questions that the exact tier takes for one occur once, so every hit is a semantic one.

``--model``: the verifier's folder. ``--scores``: its probabilities, JSON lines ``{"q1", "q2", "p"}``; pairs that are
missing count as 0. Without either it is simulated: calibrated log-odds with the AUC ``--auc`` between right and wrong
neighbours, times ``--sharpness``. ``--pairs FILE`` writes the pairs that a run asked for, to be scored.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.quality.streams import Labelled, Pool, from_intents, from_pairs, read_pairs
from benchmarks.report import write
from stratacache.errors import ModelError
from stratacache.models.pool import Pool as Threads
from stratacache.models.use import UseEmbedder
from stratacache.models.verifier import PairModel
from stratacache.policy.bound.pooled import Bound, Limits
from stratacache.policy.bound.scale import log_odds, probability
from stratacache.policy.bound.vcache import VCache
from stratacache.policy.language import language_of
from stratacache.training.pairs import read_manifest, split
from stratacache.training.pairs import read_pairs as manifest_pairs

COMMAND = "python -m benchmarks.quality.stream"
BOUNDS = (0.005, 0.01, 0.02, 0.05)
THRESHOLDS = (0.80, 0.85, 0.90, 0.92, 0.95, 0.97, 0.99)
VERIFIED = 3
FLOOR = 0.5  # cosine below which nothing is verified
NEIGHBOURS = 300  # of each question in the whole pool; those in the cache are among them
PAIR_SETS = {"en": ("qqp_gptcache",), "zh": ("lcqmc", "afqmc", "bq_corpus")}
ROLES: tuple[Literal["train", "evaluate"], ...] = ("train", "evaluate")
COUNTS = {"en": 6000, "zh": 6000, "intents": 6000}

Scores = Callable[[int, int], float]


class Method(Protocol):
    """Answers one question from what it stored, or not."""

    def ask(self, asked: int, near: Sequence[tuple[int, float]], draws: random.Random) -> int | None:
        """The stored question whose answer is served; None: a fresh answer, of which it learns. ``near`` by cosine."""
        ...

    def keeps(self) -> bool:
        """Whether the fresh answer is stored."""
        ...

    def extra(self) -> int:
        """Fresh answers that were fetched besides those that were served."""
        ...


@dataclass
class Static:
    threshold: float

    def ask(self, asked: int, near: Sequence[tuple[int, float]], draws: random.Random) -> int | None:
        return near[0][0] if near and near[0][1] >= self.threshold else None

    def keeps(self) -> bool:
        return True

    def extra(self) -> int:
        return 0


@dataclass
class Vcache:
    """``scores`` given, it decides by them instead of the cosine: what the verifier alone gains."""

    max_error: float
    answers: Sequence[int]
    scores: Scores | None = None
    keep: bool = True

    def __post_init__(self) -> None:
        self.cache = VCache(self.max_error)

    def ask(self, asked: int, near: Sequence[tuple[int, float]], draws: random.Random) -> int | None:
        self.keep = True
        if not near:
            return None
        stored, similarity = near[0]
        if self.scores is not None:
            stored, similarity = best(asked, near, self.scores)
        entry = stored.to_bytes(4, "big")
        if self.cache.decide(entry, similarity, draws.random()) == "serve":
            return stored
        right = self.answers[stored] == self.answers[asked]
        self.cache.observe(entry, similarity, right)
        self.keep = not right
        return None

    def keeps(self) -> bool:
        return self.keep

    def extra(self) -> int:
        return 0


@dataclass
class Ours:
    max_error: float
    answers: Sequence[int]
    scores: Scores
    checks: int = 0

    def __post_init__(self) -> None:
        self.bound = Bound(Limits(self.max_error))

    def ask(self, asked: int, near: Sequence[tuple[int, float]], draws: random.Random) -> int | None:
        self.bound.looked("stream")
        close = [(stored, cosine) for stored, cosine in near if cosine >= FLOOR]
        if not close:
            return None
        stored, p = best(asked, close, self.scores)
        entry = stored.to_bytes(4, "big")
        right = self.answers[stored] == self.answers[asked]
        ruling = self.bound.decide("stream", entry, p, draws.random())
        if ruling.choice == "explore":
            self.bound.observe("stream", entry, p, right)
        if ruling.choice != "serve":
            return None
        if ruling.checked:
            self.checks += 1
            self.bound.observe("stream", entry, p, right, source="checked", weight=ruling.checked)
        return stored

    def keeps(self) -> bool:
        return True

    def extra(self) -> int:
        return self.checks


def best(asked: int, near: Sequence[tuple[int, float]], scores: Scores) -> tuple[int, float]:
    return max(((stored, scores(asked, stored)) for stored, _ in near[:VERIFIED]), key=lambda pair: pair[1])


@dataclass
class Result:
    """Of one method over the seeds. ``above``: seeds whose errors were once above the bound after warm-up."""

    hits: list[float] = field(default_factory=list)
    saved: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    worst: list[float] = field(default_factory=list)

    def figures(self, bound: float | None) -> dict[str, Any]:
        figures: dict[str, Any] = {
            "hits": float(np.median(self.hits)),
            "calls_saved": float(np.median(self.saved)),
            "error_per_request": float(np.median(self.errors)),
            "highest_error_per_request": max(self.worst),
        }
        if bound is not None:
            figures["seeds_never_above"] = sum(worst <= bound for worst in self.worst) / len(self.worst)
        return figures


def warm_up(bound: float | None) -> int:
    """Requests after which a bound counts: before them one wrong answer more than five is above it."""
    return max(500, math.ceil(5 / (bound or 0.01)))


def replay(pool: Pool, near: NDArray[np.int32], cosines: NDArray[np.float32], method: Method, seed: int,
           warm: int, result: Result) -> None:  # fmt: skip
    draws = random.Random(seed)
    order = list(range(len(pool.texts)))
    draws.shuffle(order)
    stored = np.zeros(len(order), bool)
    hits = wrong = 0
    worst = 0.0
    for number, asked in enumerate(order, 1):
        at = np.flatnonzero(stored[near[asked]])[:10]
        candidates = [(int(near[asked][i]), float(cosines[asked][i])) for i in at]
        served = method.ask(asked, candidates, draws)
        if served is not None:
            hits += 1
            wrong += pool.answers[served] != pool.answers[asked]
        elif method.keeps():
            stored[asked] = True
        if number >= warm:
            worst = max(worst, wrong / number)
    result.hits.append(hits / len(order))
    result.saved.append((hits - method.extra()) / len(order))
    result.errors.append(wrong / len(order))
    result.worst.append(worst)


async def embed(pool: Pool) -> tuple[Pool, NDArray[np.float32]]:
    """The questions that can be embedded, and their vectors."""
    embedder = UseEmbedder(Threads(1, 4), budget=60)
    embedder.start()
    vectors: dict[int, NDArray[np.float32]] = {}
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


def neighbours(vectors: NDArray[np.float32]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Of each question its nearest others, nearest first, and their cosines."""
    count = min(NEIGHBOURS, len(vectors) - 1)
    near = np.empty((len(vectors), count), np.int32)
    cosines = np.empty((len(vectors), count), np.float32)
    for at, vector in enumerate(vectors):
        similar = vectors @ vector
        similar[at] = -2
        top = np.argpartition(-similar, count - 1)[:count]
        near[at] = top[np.argsort(-similar[top], kind="stable")]
        cosines[at] = similar[near[at]]
    return near, cosines


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


def from_file(pool: Pool, file: Path) -> Scores:
    known: dict[tuple[str, str], float] = {}
    with file.open(encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            known[min(row["q1"], row["q2"]), max(row["q1"], row["q2"])] = float(row["p"])

    def score(asked: int, stored: int) -> float:
        one, other = pool.texts[asked], pool.texts[stored]
        return known.get((min(one, other), max(one, other)), 0.0)

    return score


def from_model(pool: Pool, folder: Path) -> Scores:
    """A question that the verifier refuses to read is never answered from another."""
    model = PairModel(folder)

    def score(asked: int, stored: int) -> float:
        one, other = pool.texts[asked], pool.texts[stored]
        try:
            logit = model.logit(one, other)
        except ModelError:
            return 0.0
        return model.calibration.probability(logit, language_of(one), language_of(other))

    return score


def make_pool(data: Path, stream: str, count: int, held_out: bool) -> Pool:
    """``held_out``: from the pairs that the shipped verifier was not trained on."""
    if stream == "intents":
        return from_intents(stream, data / "queries" / "banking77" / "queries.jsonl", count, 1)
    if held_out:
        return from_pairs(stream, unseen(data / "pairs", stream), count, 1)
    paths = [data / "pairs" / name / "pairs.jsonl" for name in PAIR_SETS[stream]]
    return from_pairs(stream, read_pairs(paths), count, 1)


def unseen(data: Path, language: str) -> list[Labelled]:
    """The development part of the verifier's training data, as ``train-verifier`` splits it."""
    sources = read_manifest(Path(str(files("stratacache.training") / "manifest.json")))
    pairs = {role: [p for s in sources if s.role == role for p in manifest_pairs(s, data)] for role in ROLES}
    dev = split(pairs["train"], excluded=pairs["evaluate"]).dev
    return [
        (p.q1, p.q2, bool(p.label)) for p in dev if p.language == language and p.source in PAIR_SETS[language]
    ]


def methods(pool: Pool, scores: Scores) -> Mapping[str, tuple[float | None, Callable[[], Method]]]:
    """By name: the bound, and what makes the method anew for a seed."""
    found: dict[str, tuple[float | None, Callable[[], Method]]] = {}
    for threshold in THRESHOLDS:
        found[f"cosine >= {threshold}"] = None, partial(Static, threshold)
    for bound in BOUNDS:
        found[f"vCache {bound}"] = bound, partial(Vcache, bound, pool.answers)
        found[f"vCache on the verifier {bound}"] = bound, partial(Vcache, bound, pool.answers, scores)
        found[f"ours {bound}"] = bound, partial(Ours, bound, pool.answers, scores)
    return found


def make_scores(pool: Pool, args: argparse.Namespace) -> tuple[Scores, str]:
    """What was asked for, and what to call it."""
    if args.model:
        return from_model(pool, args.model), "model"
    if args.scores:
        return from_file(pool, args.scores), "scores"
    return simulated(pool, args.auc, args.sharpness), f"simulated, AUC {args.auc}, sharpness {args.sharpness}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("STRATACACHE_DATA", "data")))
    parser.add_argument("--stream", choices=sorted(COUNTS), default="en")
    parser.add_argument("--count", type=int)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument(
        "--held-out", action="store_true", help="only pairs that the verifier was not trained on"
    )
    parser.add_argument("--model", type=Path, help="folder of the verifier")
    parser.add_argument("--scores", type=Path)
    parser.add_argument("--auc", type=float, default=0.92)
    parser.add_argument("--sharpness", type=float, default=1.0)
    parser.add_argument("--pairs", type=Path, help="write the pairs that were verified")
    parser.add_argument("--only", default="", help="methods whose name contains this")
    args = parser.parse_args()

    pool = make_pool(args.data, args.stream, args.count or COUNTS[args.stream], args.held_out)
    pool, vectors = asyncio.run(embed(pool))
    near, cosines = neighbours(vectors)
    print(f"{len(pool.texts)} questions, {pool.repeats:.1%} could be served", flush=True)
    scores, verifier = make_scores(pool, args)
    asked_for: dict[tuple[int, int], float] = {}

    def remembered(asked: int, stored: int) -> float:
        pair = (min(asked, stored), max(asked, stored))
        if pair not in asked_for:
            asked_for[pair] = scores(asked, stored)
        return asked_for[pair]

    figures: dict[str, Any] = {}
    for name, (bound, make) in methods(pool, remembered).items():
        if args.only not in name:
            continue
        result = Result()
        for seed in range(args.seeds):
            replay(pool, near, cosines, make(), seed, warm_up(bound), result)
        figures[name] = result.figures(bound)
        print(
            f"{name:28}", "  ".join(f"{key} {value:.4f}" for key, value in figures[name].items()), flush=True
        )
    if args.pairs:
        with args.pairs.open("w", encoding="utf-8") as file:
            for one, other in asked_for:
                row = {"q1": pool.texts[one], "q2": pool.texts[other]}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
    if not args.only:
        write(
            f"stream_{args.stream}{'_model' if args.model else ''}",
            COMMAND,
            {"questions": len(pool.texts), "could_be_served": pool.repeats, "seeds": args.seeds,
             "verifier": verifier, "methods": figures},
        )  # fmt: skip


if __name__ == "__main__":
    main()
