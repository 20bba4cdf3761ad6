"""The stream test: hits and errors of thresholds, vCache and our bound on the same questions in random order.

    python -m benchmarks.quality.stream --data DIR [--cache DIR] [--streams en,zh,intents] [--seeds N] [--jobs N]

Every method sees the same embedder's neighbours among the questions that it stored itself. Static thresholds and vCache
decide by the cosine of the nearest; ours as the semantic tier does: guards, verifier, bound. A hit is right when both
questions have the same answer. Questions that the exact tier takes for one occur once, so every hit is a semantic one.

The streams ``en`` and ``zh`` are built from labelled pairs that share no question with those that the shipped verifier
was trained on, ``intents`` from a set that it never saw. ``--model`` names another verifier's folder, ``--simulated``
takes one with calibrated log-odds and the given AUC between right and wrong neighbours. ``--cache`` keeps logits by the
weights' hash; a run with all of them takes two minutes a stream, one without about as long again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.quality.stream_methods import BOUNDS, Examined, Method, methods
from benchmarks.quality.stream_scores import (
    Scores,
    Vectors,
    Verified,
    embed,
    neighbours,
    simulated,
    weights_hash,
)
from benchmarks.quality.streams import Labelled, Pool, from_intents, from_pairs
from benchmarks.report import RESULTS, write
from stratacache.models.verifier import WEIGHTS
from stratacache.training.pairs import read_manifest, read_pairs, split

COMMAND = "python -m benchmarks.quality.stream"
PAIR_SETS = {"en": ("qqp_gptcache",), "zh": ("lcqmc", "afqmc", "bq_corpus")}
INTENT_SETS = {"intents": "banking77", "intents-tuning": "clinc150"}
COUNTS = {"en": 4000, "zh": 3000, "intents": 2000, "intents-tuning": 2000}
ROLES: tuple[Literal["train", "evaluate"], ...] = ("train", "evaluate")


class Options(msgspec.Struct, frozen=True):
    """``simulated``: the AUC of a verifier that stands in for the one in ``model``."""

    data: Path
    model: Path
    cache: Path | None
    seeds: range
    count: int | None
    simulated: float | None
    only: str


@dataclass
class Result:
    """Of one method, by seed. ``worst``: the highest errors per request at any point after the warm-up."""

    hits: list[float] = field(default_factory=list)
    saved: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    worst: list[float] = field(default_factory=list)
    covered: list[bool] = field(default_factory=list)

    def figures(self, bound: float | None) -> dict[str, Any]:
        figures: dict[str, Any] = {
            "hits": float(np.median(self.hits)),
            "hits_range": [min(self.hits), max(self.hits)],
            "calls_saved": float(np.median(self.saved)),
            "error_per_request": float(np.median(self.errors)),
            "error_range": [min(self.errors), max(self.errors)],
            "highest_error_per_request": max(self.worst),
        }
        if bound is not None:
            figures["seeds_never_above"] = sum(worst <= bound for worst in self.worst) / len(self.worst)
        if self.covered:
            figures["interval_covers"] = sum(self.covered) / len(self.covered)
        names = ("hits", "errors", "worst")
        return figures | {"by_seed": {name: [round(x, 6) for x in getattr(self, name)] for name in names}}


def warm_up(bound: float | None) -> int:
    """Requests after which a bound counts: before them one wrong answer more than five is above it."""
    return max(500, math.ceil(5 / (bound or 0.01)))


def replay(
    pool: Pool,
    near: NDArray[np.int32],
    cosines: Vectors,
    method: Method,
    seed: int,
    warm: int,
    result: Result,
) -> None:
    """Ask every question of the pool once, in the seed's order."""
    draws = random.Random(seed)
    order = list(range(len(pool.texts)))
    draws.shuffle(order)
    stored = np.zeros(len(order), bool)
    hits = wrong = 0
    worst = 0.0
    for number, asked in enumerate(order, 1):
        at = np.flatnonzero(stored[near[asked]] & (cosines[asked] > -1))[:10]
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
    said = method.report()
    if said is not None:
        result.covered.append(said.low <= wrong / len(order) <= said.high)


def make_pool(data: Path, stream: str, count: int) -> Pool:
    """The questions of a stream."""
    if stream in INTENT_SETS:
        return from_intents(stream, data / "queries" / INTENT_SETS[stream] / "queries.jsonl", count, 1)
    return from_pairs(stream, unseen(data / "pairs", stream), count, 1)


def unseen(data: Path, language: str) -> list[Labelled]:
    """The development part of the verifier's training data, as ``train-verifier`` splits it."""
    sources = read_manifest(Path(str(files("stratacache.training") / "manifest.json")))
    pairs = {role: [p for s in sources if s.role == role for p in read_pairs(s, data)] for role in ROLES}
    dev = split(pairs["train"], excluded=pairs["evaluate"]).dev
    return [
        (p.q1, p.q2, bool(p.label)) for p in dev if p.language == language and p.source in PAIR_SETS[language]
    ]


def run(stream: str, options: Options) -> dict[str, Any]:
    """The figures of one stream, by method."""
    pool, vectors = asyncio.run(embed(make_pool(options.data, stream, options.count or COUNTS[stream])))
    near, cosines = neighbours(pool, vectors)
    print(f"{stream}: {len(pool.texts)} questions, {pool.repeats:.1%} could be served", flush=True)
    scores: Scores = (
        simulated(pool, options.simulated, 1.0)
        if options.simulated is not None
        else Verified(pool, vectors, options.model, options.cache)
    )
    found: dict[str, Any] = {}
    for name, (bound, make) in methods(pool, Examined(pool, scores)).items():
        if options.only in name:
            found[name] = _measure(pool, near, cosines, make, bound, options.seeds)
            shown = {key: value for key, value in found[name].items() if isinstance(value, float)}
            print(f"{stream} {name:28}", "  ".join(f"{k} {v:.4f}" for k, v in shown.items()), flush=True)
    return {"questions": len(pool.texts), "could_be_served": pool.repeats, "methods": found}


def compare(found: dict[str, Any]) -> None:
    """Add to ours how many times vCache's hits they are, as the median over the seeds."""
    for bound in BOUNDS:
        ours, floor = found.get(f"ours {bound}"), found.get(f"vCache {bound}")
        if ours and floor:
            pairs = zip(ours["by_seed"]["hits"], floor["by_seed"]["hits"], strict=True)
            ours["hits_by_vcache"] = float(np.median([mine / max(its, 1e-6) for mine, its in pairs]))


def completed(stream: str, figures: dict[str, Any], seeds: int) -> dict[str, Any]:
    """With the figures of methods that were not measured now, from a run of equal questions and orders."""
    file = RESULTS / f"stream_{stream}.json"
    if file.exists():
        before = json.loads(file.read_text("utf-8"))
        if (before["questions"], before["seeds"]) == (figures["questions"], seeds):
            figures["methods"] = before["methods"] | figures["methods"]
    return figures


def _measure(
    pool: Pool, near: NDArray[np.int32], cosines: Vectors, make: Callable[[], Method], bound: float | None,
    seeds: range,
) -> dict[str, Any]:  # fmt: skip
    result = Result()
    for seed in seeds:
        replay(pool, near, cosines, make(), seed, warm_up(bound), result)
    return result.figures(bound)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=os.environ.get("STRATACACHE_DATA"))
    parser.add_argument("--streams", default="en,zh,intents")
    parser.add_argument("--count", type=int, help="questions of a stream, at most")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument(
        "--first-seed", type=int, default=0, help="others than 0 are for tuning: nothing is kept"
    )
    parser.add_argument("--model", type=Path, default=WEIGHTS, help="folder of the verifier")
    parser.add_argument("--simulated", type=float, metavar="AUC")
    parser.add_argument("--cache", type=Path, help="folder for logits")
    parser.add_argument(
        "--only", default="", help="methods whose name contains this; the figures of the others stay"
    )
    parser.add_argument("--jobs", type=int, default=1, help="streams at a time")
    args = parser.parse_args()
    if args.data is None:
        print("skipped: the labelled pairs are not part of the project; name them with --data")
        return
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    options = Options(args.data, args.model, args.cache, seeds, args.count, args.simulated, args.only)
    streams = args.streams.split(",")
    with ProcessPoolExecutor(args.jobs) as workers:
        found = list(workers.map(run, streams, [options] * len(streams)))
    if args.first_seed:
        return
    verifier = "packaged" if args.model == WEIGHTS else "another"
    for stream, figures in zip(streams, found, strict=True):
        if args.only:
            completed(stream, figures, args.seeds)
        compare(figures["methods"])
        about = {"verifier": verifier if args.simulated is None else f"simulated, AUC {args.simulated}"}
        about["weights"] = weights_hash(args.model)[:16]
        print(write(f"stream_{stream}", COMMAND, {**about, "seeds": args.seeds, **figures}))


if __name__ == "__main__":
    main()
