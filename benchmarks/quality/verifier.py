"""The verifier against plain cosines, per set, slice and language, with the worst errors: the quality report.

    python -m benchmarks.quality.verifier --data shared/data/pairs

Scores are those of the shipped int8 model; the baseline is the cosine of multilingual-e5-small, the model that the
verifier was trained from. Development pairs share no question with those that it was trained on; the sets under
"evaluate" were not trained on either. Needs the extra ``train``.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
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
from stratacache.policy.guards import examine
from stratacache.training.e5 import BOS, EOS, PAD, build_tokenizer, read_base, weights_path
from stratacache.training.model import from_base, pair_input
from stratacache.training.pairs import Pair
from stratacache.training.recipe import measure
from stratacache.training.verifier import LONGEST, Data, Recipe, load_data

PAGE = Path("docs/quality/verifier.md")
COMMAND = "python -m benchmarks.quality.verifier"
WORST = 50
LOWEST = -30.0  # the score of a vetoed pair: below any logit
COSINE = {"*": {"a": 1.0, "b": -0.9}}  # "accepted" by a cosine: .9 and above
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
    """Figures by set and group, of the verifier, of guards and verifier together, and of the cosine; the worst errors.

    A pair that a guard vetoes counts as the lowest score there is.
    """
    languages = msgspec.json.decode((folder / "verifier.json").read_bytes())["languages"]
    sets = {
        "dev": data.natural.dev,
        "evaluate": data.evaluate,
        "synthetic": [_by_domain(p) for p in data.unseen],
    }
    lines: list[dict[str, Any]] = []
    curves, errors = {}, {}
    for name, pairs in sets.items():
        logits, cosines = verifier_logits(folder, pairs), e5_cosines(pairs)
        decided = np.where([examine(p.q1, p.q2).verdict == "veto" for p in pairs], LOWEST, logits)
        scores = {"verifier": logits, "guarded": decided, "cosine": cosines}
        measured = {
            kind: measure(name, pairs, of, languages if kind != "cosine" else COSINE)
            for kind, of in scores.items()
        }
        for own, guarded, beside in zip(*measured.values(), strict=True):
            lines.append(
                {
                    **msgspec.to_builtins(own),
                    "guarded_auc": guarded.auc,
                    "guarded_recall": guarded.recall,
                    "guarded_accepted_same": guarded.accepted_same,
                    "guarded_accepted_different": guarded.accepted_different,
                    "cosine_auc": beside.auc,
                    "cosine_recall": beside.recall,
                }
            )
        curves[name] = curves_of(pairs, scores)
        errors[name] = worst(pairs, decided)
    return {"measured": lines, "curves": curves}, errors


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
