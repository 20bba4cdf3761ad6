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

from benchmarks.report import write
from stratacache.training import measures
from stratacache.training.e5 import BOS, EOS, PAD, build_tokenizer, read_base, weights_path
from stratacache.training.model import from_base, pair_input
from stratacache.training.pairs import Pair
from stratacache.training.recipe import measure
from stratacache.training.verifier import LONGEST, Data, Recipe, load_data

COMMAND = "python -m benchmarks.quality.verifier"
WORST = 50
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


def worst(pairs: Sequence[Pair], logits: NDArray[np.float32]) -> list[dict[str, Any]]:
    """The pairs whose score is furthest on the wrong side. Their texts stay out of the committed report."""
    wrong = np.where([pair.label == 1 for pair in pairs], -logits, logits)
    return [
        {
            "q1": p.q1,
            "q2": p.q2,
            "label": p.label,
            "source": p.source,
            "kind": p.kind,
            "logit": float(logits[n]),
        }
        for n in np.argsort(-wrong)[:WORST]
        for p in (pairs[n],)
    ]


def report(data: Data, folder: Path) -> dict[str, Any]:
    """Figures by set and group: for the verifier, and the cosine's AUC and recall beside."""
    languages = msgspec.json.decode((folder / "verifier.json").read_bytes())["languages"]
    sets = {"dev": data.natural.dev, "evaluate": data.evaluate, "synthetic": data.unseen}
    lines, errors = [], {}
    for name, pairs in sets.items():
        logits, cosines = verifier_logits(folder, pairs), e5_cosines(pairs)
        baseline = {line.group: line for line in measure(name, pairs, cosines, {"*": {"a": 1.0, "b": -0.9}})}
        for line in measure(name, pairs, logits, languages):
            beside = baseline[line.group]
            figures = msgspec.to_builtins(line)
            lines.append({**figures, "cosine_auc": beside.auc, "cosine_recall": beside.recall})
        errors[name] = worst(pairs, logits)
    return {"measured": lines, "worst": errors, "hard_auc": _hard_auc(data.evaluate, folder)}


def _hard_auc(pairs: Sequence[Pair], folder: Path) -> float:
    hard = [pair for pair in pairs if pair.source == "hard_slices"]
    return measures.auc(verifier_logits(folder, hard), np.array([pair.label for pair in hard]))


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
    args = parser.parse_args()
    if args.data is None:
        print("skipped: the labelled pairs are not part of the project; name them with --data")
        return
    figures = report(load_data(args.manifest, args.data, Recipe()), args.weights)
    errors = figures.pop("worst")
    if args.worst:
        args.worst.write_bytes(msgspec.json.format(msgspec.json.encode(errors)))
    for line in figures["measured"]:
        beside = f"(e5 {line['cosine_auc']:.3f})", f"(e5 {line['cosine_recall']:.2f})"
        print(
            f"{line['set']:<10} {line['group']:<45} {line['pairs']:>6}  AUC {line['auc']:.3f} {beside[0]}"
            f"  recall at 98 % {line['recall']:.2f} {beside[1]}"
            f"  accepted: same {line['accepted_same']:.2f}, different {line['accepted_different']:.2f}"
        )
    print(write("verifier", COMMAND, figures))


if __name__ == "__main__":
    main()
