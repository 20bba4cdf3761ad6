"""The verifier against plain cosines, per set, slice and language, with the worst errors: the quality report.

    python -m benchmarks.quality.verifier --data shared/data/pairs

Scores are those of the shipped int8 model, alone and with the default embedder's cosine as the card has it; the
baseline is the cosine of multilingual-e5-small, the model that the verifier was trained from. Development pairs share
no question with those that it was trained on; the sets under "evaluate" were not trained on either. Needs the extra
``train``.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from benchmarks.quality.verifier_page import page, plots
from benchmarks.report import write
from stratacache.models.similarity import default_cosines
from stratacache.models.use import default_fingerprint
from stratacache.models.verifier import Card
from stratacache.policy.bound.scale import log_odds
from stratacache.policy.calibration import Calibration, Sigmoid
from stratacache.policy.guards import examine
from stratacache.training.e5 import BOS, EOS, PAD, build_tokenizer, read_base, weights_path
from stratacache.training.model import from_base, pair_input
from stratacache.training.pairs import Pair
from stratacache.training.recipe import Measured, measure
from stratacache.training.verifier import LONGEST, Data, Recipe, load_data

PAGE = Path("docs/quality/verifier.md")
COMMAND = "python -m benchmarks.quality.verifier"
WORST = 50
LOWEST = -30.0  # the score of a vetoed pair: below any log-odds
ODDS = {"*": Sigmoid(1.0, 0.0)}
COSINE = {"*": Sigmoid(1.0, -0.9)}  # "accepted" by a cosine: .9 and above
FLOORS = (0.7, 0.85, 0.95)
"""Probabilities below which nothing is served, without and with a guard's doubt, and one that a bound may ask for."""
BATCH = 64
MOST_TOKENS = 128  # of one question, for the cosine


def verifier_logits(folder: Path, pairs: Sequence[Pair]) -> NDArray[np.float32]:
    """What the model in ``folder`` says of each pair, its questions in canonical order."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    logits = np.empty(len(pairs), np.float32)
    for number, pair in enumerate(pairs):
        first, second = (
            tokenizer.encode(text, add_special_tokens=False).ids for text in sorted((pair.q1, pair.q2))
        )
        ids, segments = pair_input(first, second, LONGEST)
        fed = {"input_ids": np.array([ids]), "token_type_ids": np.array([segments])}
        logits[number] = session.run(None, fed)[0][0]
    return logits


@torch.no_grad()
def e5_vectors(texts: Sequence[str]) -> NDArray[np.float32]:
    """Unit vectors of multilingual-e5-small, one row a text, mean-pooled, with its prefix for queries."""
    base = read_base(weights_path())
    model = from_base(base, range(len(base.pieces))).eval()
    kind = torch.from_numpy(base.tensors["emb.type"]).view(-1, base.dimensions.hidden)[0]
    model.segments.weight.data[:] = kind
    encodings = build_tokenizer(base.pieces).encode_batch([f"query: {text}" for text in texts])
    rows = [[BOS, *encoding.ids[: MOST_TOKENS - 2], EOS] for encoding in encodings]
    order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
    vectors = np.empty((len(texts), base.dimensions.hidden), np.float32)
    for start in range(0, len(order), BATCH):
        chosen = order[start : start + BATCH]
        ids = torch.full((len(chosen), max(len(rows[number]) for number in chosen)), PAD)
        for place, number in enumerate(chosen):
            ids[place, : len(rows[number])] = torch.tensor(rows[number])
        with torch.autocast("cpu", torch.bfloat16):
            states = model.encode(ids, torch.zeros_like(ids)).float()
        weights = (ids != PAD)[:, :, None].float()
        pooled = (states * weights).sum(1) / weights.sum(1)
        vectors[chosen] = torch.nn.functional.normalize(pooled, dim=-1).numpy()
    return vectors


def e5_cosines(pairs: Sequence[Pair]) -> NDArray[np.float32]:
    """The cosine of each pair's questions."""
    texts = sorted({text for pair in pairs for text in (pair.q1, pair.q2)})
    place = {text: number for number, text in enumerate(texts)}
    vectors = e5_vectors(texts)
    products: Iterable[np.float32] = (vectors[place[p.q1]] @ vectors[place[p.q2]] for p in pairs)
    return np.fromiter(products, np.float32, len(pairs))


def worst(pairs: Sequence[Pair], scores: NDArray[np.float32]) -> list[dict[str, Any]]:
    """Those pairs of each label whose score is furthest on the wrong side. Their texts stay out of the report."""
    found = []
    for label, wrong in ((0, -scores), (1, scores)):
        ordered = [int(n) for n in np.argsort(wrong, kind="stable") if pairs[n].label == label]
        found += [(pairs[n], float(scores[n])) for n in ordered[: WORST // 2]]
    return [
        {"q1": p.q1, "q2": p.q2, "label": p.label, "source": p.source, "kind": p.kind, "score": score}
        for p, score in found
    ]


def report(data: Data, folder: Path) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """Figures by set and group: the verifier, it with the cosine, guards and both, e5's cosine; and the worst errors.

    A pair that a guard vetoes counts as the lowest score there is.
    """
    card = msgspec.json.decode((folder / "verifier.json").read_bytes(), type=Card)
    calibration = Calibration(card.languages, card.embedders)
    sets = {
        "dev": data.natural.dev,
        "evaluate": data.evaluate,
        "synthetic": [_by_domain(p) for p in data.unseen],
    }
    lines: list[dict[str, Any]] = []
    accepted: list[dict[str, Any]] = []
    curves, errors = {}, {}
    for name, pairs in sets.items():
        logits, cosines = verifier_logits(folder, pairs), e5_cosines(pairs)
        alone, combined = odds_of(pairs, logits, calibration)
        vetoed = np.array([examine(p.q1, p.q2).verdict == "veto" for p in pairs])
        decided = np.where(vetoed, LOWEST, combined)
        scores = {"verifier": logits, "combined": combined, "guarded": decided, "cosine": cosines}
        fits = {"verifier": card.languages, "combined": ODDS, "guarded": ODDS, "cosine": COSINE}
        measured = [measure(name, pairs, of, fits[kind]) for kind, of in scores.items()]
        lines += [_line(*each) for each in zip(*measured, strict=True)]
        accepted += accepted_at(
            name, pairs, {"verifier": np.where(vetoed, LOWEST, alone), "combined": decided}
        )
        curves[name] = curves_of(pairs, {kind: of for kind, of in scores.items() if kind != "combined"})
        errors[name] = worst(pairs, decided)
    return {"measured": lines, "accepted": accepted, "curves": curves}, errors


def _line(own: Measured, combined: Measured, guarded: Measured, beside: Measured) -> dict[str, Any]:
    return {
        **msgspec.to_builtins(own),
        "combined_auc": combined.auc,
        "combined_recall": combined.recall,
        "guarded_auc": guarded.auc,
        "guarded_recall": guarded.recall,
        "guarded_accepted_same": guarded.accepted_same,
        "guarded_accepted_different": guarded.accepted_different,
        "cosine_auc": beside.auc,
        "cosine_recall": beside.recall,
    }


def odds_of(
    pairs: Sequence[Pair], logits: NDArray[np.float32], calibration: Calibration
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log-odds that one answer serves, by the verifier alone and with the default embedder's cosine."""
    embedder = default_fingerprint()
    cosines = default_cosines((pair.q1, pair.q2) for pair in pairs)
    alone, combined = np.empty(len(pairs)), np.empty(len(pairs))
    for at, (pair, logit, cosine) in enumerate(zip(pairs, logits, cosines, strict=True)):
        languages = pair.language, pair.language
        alone[at] = log_odds(calibration.alone(float(logit), *languages))
        combined[at] = log_odds(calibration.probability(float(logit), *languages, float(cosine), embedder))
    return alone, combined


def accepted_at(
    name: str, pairs: Sequence[Pair], odds: Mapping[str, NDArray[np.float64]]
) -> list[dict[str, Any]]:
    """How many pairs of either label reach each of :data:`FLOORS`, by language; the near-misses by themselves."""
    labels = np.array([pair.label for pair in pairs])
    found = []
    for group in sorted({(pair.language, pair.source == "hard_slices") for pair in pairs}):
        own = np.array([(pair.language, pair.source == "hard_slices") == group for pair in pairs])
        for floor in FLOORS:
            reached = {kind: own & (of >= log_odds(floor)) for kind, of in odds.items()}
            counts = {
                kind: [int(labels[chosen].sum()), int((1 - labels[chosen]).sum())]
                for kind, chosen in reached.items()
            }
            same = int(labels[own].sum())
            about = {"set": name, "language": group[0], "hard": group[1], "floor": floor}
            found.append({**about, "same": same, "different": int(own.sum()) - same, **counts})
    return found


def _by_domain(pair: Pair) -> Pair:
    """A pair of the grammar counts by its intent's domain: of one intent there are few."""
    return msgspec.structs.replace(pair, kind=pair.kind.partition(".")[0])


def curves_of(
    pairs: Sequence[Pair], scores: dict[str, NDArray[np.float32]]
) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """By language (and the hard slices by themselves), for each score: precision at every 2 % of recall."""
    groups = {pair.language for pair in pairs} | {p.source for p in pairs if p.source == "hard_slices"}
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for group in sorted(groups):
        chosen = np.array([group in (pair.language, pair.source) for pair in pairs])
        labels = np.array([pair.label for pair in pairs])[chosen]
        found[group] = {kind: _curve(of[chosen], labels) for kind, of in scores.items()}
    return found


def _curve(scores: NDArray[np.float32], labels: NDArray[np.int64]) -> list[tuple[float, float]]:
    right = np.cumsum(labels[np.argsort(-scores, kind="stable")])
    places = [int(np.searchsorted(right, share * right[-1])) for share in np.arange(0.02, 1.001, 0.02)]
    return [
        (round(float(right[at] / right[-1]), 3), round(float(right[at] / (at + 1)), 4))
        for at in places
        if at < len(right)
    ]


def main() -> None:
    packaged = Path(str(files("stratacache.models") / "weights" / "verifier"))
    manifest = Path(str(files("stratacache.training") / "manifest.json"))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=os.environ.get("STRATACACHE_DATA"), help="the pair sets")
    parser.add_argument("--manifest", type=Path, default=manifest)
    parser.add_argument("--weights", type=Path, default=packaged, help="the verifier's folder")
    parser.add_argument("--worst", type=Path, help="write the worst errors, with their texts, to this file")
    parser.add_argument("--page", type=Path, default=PAGE, help="where the report for people goes")
    args = parser.parse_args()
    if args.data is None:
        print("skipped: the labelled pairs are not part of the project; name them with --data")
        return
    figures, errors = report(load_data(args.manifest, args.data, Recipe()), args.weights)
    if args.worst:
        args.worst.write_bytes(msgspec.json.format(msgspec.json.encode(errors)))
    args.page.parent.mkdir(parents=True, exist_ok=True)
    args.page.write_text(page(figures, f"{COMMAND} --data shared/data/pairs"))
    for name, drawn in plots(figures).items():
        (args.page.parent / name).write_text(drawn)
    print(write("verifier", COMMAND, figures))


if __name__ == "__main__":
    main()
