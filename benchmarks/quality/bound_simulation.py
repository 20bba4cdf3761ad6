"""The error bound against simulated traffic: calibrated, over- and underconfident verifiers, drift, hostile order.

    python -m benchmarks.quality.bound_simulation [--seeds N] [--requests N]

First the variance of the boundary between separate classes, by the number of observations, for vCache's table
(scores and boundary uniform, truth logistic, draws whose classes separate), and vCache's errors beside the bound.
Then ours: a request has a candidate with probability .6, whose log-odds by the verifier are N(3.5, 2²) or N(-1, 2²);
the truth's log-odds are a line of them. "Hostile" answers are right until half-time and, from then on, wrong in half
the cases whatever the verifier says. A seed is above the bound if its errors per request ever were after the warm-up.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.quality.stream import BOUNDS, warm_up
from benchmarks.report import write
from stratacache.policy.bound.pooled import Bound, Limits
from stratacache.policy.bound.scale import probability
from stratacache.policy.bound.vcache import VCache

COMMAND = "python -m benchmarks.quality.bound_simulation"
SLOPE = 5.5
"""Of the logistic truth at which the simulated table is nearest to the published one."""

Truth = Callable[[float, float], float]  # the verifier's log-odds and the share of the stream that is over

TRUTHS: Mapping[str, Truth] = {
    "calibrated": lambda odds, over: odds,
    "overconfident": lambda odds, over: 0.6 * odds,
    "overconfident, shifted": lambda odds, over: 0.8 * odds - 1,
    "underconfident": lambda odds, over: 1.3 * odds,
    "drift": lambda odds, over: odds if over < 0.5 else 0.8 * odds - 1.5,
    "hostile": lambda odds, over: 8.0 if over < 0.5 else 0.0,
}


@dataclass(frozen=True)
class Outcome:
    hits: float
    checked: float
    error: float
    worst: float
    alarms: int


def separate_variance(count: int, draws: int = 200_000) -> float:
    """The variance of the middle of the gap around the true boundary, with ``count`` - 2 uniform scores."""
    rng = np.random.default_rng(count)
    boundary = rng.uniform(size=draws)
    scores = rng.uniform(size=(draws, count - 2))
    right = rng.uniform(size=scores.shape) < 1 / (1 + np.exp(-SLOPE * (scores - boundary[:, None])))
    wrong_to = np.where(right, 0, scores).max(axis=1)
    right_from = np.where(right, scores, 1).min(axis=1)
    separate = wrong_to <= right_from
    return float((((wrong_to + right_from) / 2 - boundary)[separate] ** 2).mean())


def vcache_error(max_error: float, entries: int, requests: int, seed: int) -> tuple[float, float]:
    """Hits and errors per request of entries with uniform similarities and a logistic truth each."""
    draws = random.Random(seed)
    cache = VCache(max_error)
    hits = wrong = 0
    for number in range(entries):
        entry, boundary, slope = number.to_bytes(4, "big"), draws.uniform(0.3, 0.8), draws.uniform(15, 60)
        for _ in range(requests):
            similarity = draws.random()
            right = draws.random() < probability(slope * (similarity - boundary))
            if cache.decide(entry, similarity, draws.random()) == "serve":
                hits += 1
                wrong += not right
            else:
                cache.observe(entry, similarity, right)
    return hits / (entries * requests), wrong / (entries * requests)


def run(truth: Truth, max_error: float, requests: int, seed: int) -> Outcome:
    draws = random.Random(seed)
    bound = Bound(Limits(max_error))
    hits = wrong = checked = 0
    worst = 0.0
    for number in range(1, requests + 1):
        bound.looked("s")
        if draws.random() < 0.6:
            odds = draws.gauss(3.5 if draws.random() < 0.5 else -1.0, 2.0)
            right = draws.random() < probability(truth(odds, number / requests))
            entry, p = draws.randrange(2000).to_bytes(2, "big"), probability(odds)
            ruling = bound.decide("s", entry, p, draws.random())
            if ruling.choice == "serve":
                hits += 1
                wrong += not right
                if ruling.checked:
                    checked += 1
                    bound.observe("s", entry, p, right, source="checked", weight=ruling.checked)
            elif ruling.choice == "explore":
                bound.observe("s", entry, p, right)
        if number >= warm_up(max_error):
            worst = max(worst, wrong / number)
    return Outcome(hits / requests, checked / max(hits, 1), wrong / requests, worst, len(bound.alarms()))


def clairvoyant(truth: Truth, max_error: float, requests: int) -> float:
    """Hits of a threshold on the true probability that spends the bound exactly, with the same candidates."""
    draws = random.Random(1)
    risks = []
    for number in range(1, requests + 1):
        if draws.random() < 0.6:
            odds = draws.gauss(3.5 if draws.random() < 0.5 else -1.0, 2.0)
            risks.append(1 - probability(truth(odds, number / requests)))
    total = np.cumsum(sorted(risks))
    return int((total <= max_error * requests).sum()) / requests


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--requests", type=int, default=6000)
    args = parser.parse_args()
    figures: dict[str, Any] = {"variance": {}, "vcache": {}, "ours": {}}
    for count in (6, 10, 20, 30):
        figures["variance"][count] = separate_variance(count)
        print(f"variance of a separate boundary, {count} observations: {figures['variance'][count]:.4f}")
    for bound in BOUNDS:
        hits, error = vcache_error(bound, 100, 150, 1)
        figures["vcache"][bound] = {"hits": hits, "error_per_request": error}
        print(f"vCache {bound}: hits {hits:.3f}, error per request {error:.4f}", flush=True)
    for name, truth in TRUTHS.items():
        for bound in BOUNDS:
            outcomes = [run(truth, bound, args.requests, seed) for seed in range(args.seeds)]
            row = {
                key: float(np.median([getattr(outcome, key) for outcome in outcomes]))
                for key in ("hits", "checked", "error", "alarms")
            }
            row["never_above"] = sum(outcome.worst <= bound for outcome in outcomes) / len(outcomes)
            row["clairvoyant_hits"] = clairvoyant(truth, bound, args.requests)
            figures["ours"][f"{name} {bound}"] = row
            print(f"{name} {bound}:", "  ".join(f"{k} {v:.4f}" for k, v in row.items()), flush=True)
    figures["seeds"], figures["requests"] = args.seeds, args.requests
    write("bound_simulation", COMMAND, figures)


if __name__ == "__main__":
    main()
