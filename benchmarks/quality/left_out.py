"""How a verifier carries over to a domain that it was not trained on, beside plain cosines and with one.

    python -m benchmarks.quality.left_out --folder DIR --domain NAME --data DIR

``--folder`` has what ``stratacache train-verifier --leave-out NAME`` leaves in ``training`` below its ``--out``. The
combination is that of the tier: verifier and the default embedder's cosine, fitted for each language to development
pairs of the other domains. Measured on pairs of the left-out domain, on others of the domains trained on, and on the
near-misses that nothing is trained on. Needs the extra ``train``.
"""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.quality.verifier import e5_cosines
from benchmarks.report import write
from stratacache.models.similarity import default_cosines
from stratacache.models.use import default_fingerprint
from stratacache.policy.calibration import Calibration
from stratacache.training.measures import Floats, auc, recall_at
from stratacache.training.pairs import Pair
from stratacache.training.recipe import calibrate, combine
from stratacache.training.verifier import Data, Recipe, load, load_data, score

COMMAND = "python -m benchmarks.quality.left_out"
LEAST_PAIRS = 30  # of a set, for a line of its own
PRECISION = 0.98

Cosines = Callable[[Sequence[Pair]], Floats]


class Line(msgspec.Struct, frozen=True):
    """AUC and recall at 98 % precision of each score on one set; ``role`` is ``left_out``, ``dev`` or ``hard``."""

    role: str
    set: str
    pairs: int
    auc: dict[str, float]
    recall: dict[str, float]


def samples(data: Data, count: int) -> dict[str, list[Pair]]:
    """At most ``count`` pairs for each role, always the same."""
    hard = [pair for pair in data.evaluate if pair.source == "hard_slices"]
    roles = {"left_out": data.left_out, "dev": data.natural.dev, "hard": hard}
    return {role: random.Random(1).sample(pairs, min(count, len(pairs))) for role, pairs in roles.items()}


def lines(role: str, pairs: Sequence[Pair], scores: Mapping[str, Floats]) -> list[Line]:
    """Each set of a role, and all of them as ``all``."""
    labels = np.array([pair.label for pair in pairs])
    sources = np.array([pair.source for pair in pairs])
    found = []
    for name in [*sorted({pair.source for pair in pairs}), "all"]:
        own = (sources == name) | (name == "all")
        if own.sum() >= LEAST_PAIRS and 0 < labels[own].sum() < own.sum():
            areas = {kind: auc(of[own], labels[own]) for kind, of in scores.items()}
            recalls = {kind: recall_at(of[own], labels[own], PRECISION)[0] for kind, of in scores.items()}
            found.append(Line(role, name, int(own.sum()), areas, recalls))
    return found


def combined(pairs: Sequence[Pair], logits: Floats, cosines: Floats, calibration: Calibration) -> Floats:
    """The probability of each pair as the tier would have it."""
    embedder = default_fingerprint()
    probabilities = [
        calibration.probability(float(logit), pair.language, pair.language, float(cosine), embedder)
        for pair, logit, cosine in zip(pairs, logits, cosines, strict=True)
    ]
    return np.array(probabilities)


def measure(
    chosen: Mapping[str, Sequence[Pair]], logits_of: Cosines, e5: Cosines, default: Cosines
) -> list[Line]:
    """The lines of all roles; the combination is fitted to those of ``dev``."""
    logits = {role: logits_of(pairs) for role, pairs in chosen.items()}
    near = {role: default(pairs) for role, pairs in chosen.items()}
    fitted = calibrate(chosen["dev"], logits["dev"]), combine(chosen["dev"], logits["dev"], near["dev"])
    calibration = Calibration(fitted[0], {default_fingerprint(): fitted[1]})
    found = []
    for role, pairs in chosen.items():
        scores = {
            "verifier": logits[role],
            "combination": combined(pairs, logits[role], near[role], calibration),
            "e5 cosine": e5(pairs),
            "default cosine": np.nan_to_num(near[role], nan=-1.0),
        }
        found += lines(role, pairs, scores)
    return found


def table(found: Sequence[Line]) -> str:
    """Markdown: AUC and, after a slash, the recall."""
    kinds = list(found[0].auc)
    rows = [f"| | set | pairs | {' | '.join(kinds)} |", f"|---|---|---|{'---|' * len(kinds)}"]
    for line in found:
        cells = [f"{line.auc[kind]:.3f} / {line.recall[kind]:.3f}" for kind in kinds]
        rows.append(f"| {line.role} | {line.set} | {line.pairs:,} | {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    manifest = Path(str(files("stratacache.training") / "manifest.json"))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="with final.pt and vocabulary.json")
    parser.add_argument("--domain", required=True, help="the one that was left out, as the manifest has it")
    parser.add_argument("--data", type=Path, default=os.environ.get("STRATACACHE_DATA"), help="the pair sets")
    parser.add_argument("--manifest", type=Path, default=manifest)
    parser.add_argument("--count", type=int, default=4500, help="pairs for each role, at most")
    args = parser.parse_args()
    if args.data is None:
        print("skipped: the labelled pairs are not part of the project; name them with --data")
        return
    chosen = samples(
        load_data(args.manifest, args.data, Recipe(leave_out=args.domain, per_rule=1)), args.count
    )
    if not chosen["left_out"]:
        parser.error(f"the manifest has no set of a domain {args.domain!r}")
    model, tokenizer = load(args.folder)
    found = measure(
        chosen,
        lambda pairs: score(model, tokenizer, pairs),
        e5_cosines,
        lambda pairs: default_cosines((pair.q1, pair.q2) for pair in pairs),
    )
    print(table(found))
    figures = {"domain": args.domain, "measured": msgspec.to_builtins(found)}
    print(write(f"left_out_{args.domain}", COMMAND, figures))


if __name__ == "__main__":
    main()
