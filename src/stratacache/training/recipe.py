"""From pairs to a folder that the gateway can load: train, calibrate on held-out pairs, quantise, describe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from stratacache.training import measures
from stratacache.training.e5 import read_base, weights_path
from stratacache.training.export import build, quantise, write_card
from stratacache.training.pairs import Pair
from stratacache.training.verifier import LONGEST, Data, Recipe, kept_of, load, load_data, score, train

ANY_LANGUAGE = "*"
LEAST_PAIRS = 200  # of a language, below which it shares the calibration of all


class Measured(msgspec.Struct, frozen=True):
    """One line of the report: a set, a language or a kind within it. ``recall`` is that at 98 % precision;
    ``accepted`` the share with a probability of a half or more."""

    set: str
    group: str
    pairs: int
    positives: int
    auc: float
    recall: float
    accepted_same: float
    accepted_different: float


def make_verifier(
    manifest: Path, root: Path, out: Path, recipe: Recipe, start: Path | None = None
) -> list[Measured]:
    """Train with the sets of ``manifest`` and leave model, tokenizer, card and ``measured.json`` in ``out``.

    ``start``: what an earlier call left in its ``out``, to train further.
    """
    work = out / "training"
    data = load_data(manifest, root, recipe)
    train(data, recipe, work, start and start / "training")
    return finish(data, work, out)


def finish(data: Data, work: Path, out: Path) -> list[Measured]:
    """Calibrate, quantise and describe what :func:`train` left in ``work``."""
    model, tokenizer = load(work)
    base = read_base(weights_path())
    out.mkdir(parents=True, exist_ok=True)
    quantise(build(model.state_dict(), base, kept_of(work)), out / "model.onnx")
    (out / "tokenizer.json").write_text((work / "tokenizer.json").read_text())
    sets = {
        "dev": data.natural.dev,
        "evaluate": data.evaluate,
        "synthetic": data.unseen,
        "left_out": data.left_out,
    }
    scores = {name: score(model, tokenizer, pairs) for name, pairs in sets.items() if pairs}
    calibrated = [*zip(sets["dev"], scores["dev"], strict=True)]
    languages = calibrate([pair for pair, _ in calibrated], np.array([s for _, s in calibrated]))
    write_card(out, languages, LONGEST)
    measured = [
        line for name, found in scores.items() for line in measure(name, sets[name], found, languages)
    ]
    (out / "measured.json").write_bytes(msgspec.json.format(msgspec.json.encode(measured), indent=1))
    return measured


def calibrate(pairs: Sequence[Pair], logits: measures.Floats) -> dict[str, dict[str, float]]:
    """Platt's a and b by language: probability = sigmoid(a x logit + b)."""
    labels = np.array([pair.label for pair in pairs])
    languages = np.array([pair.language for pair in pairs])
    groups = {ANY_LANGUAGE: np.ones(len(pairs), bool)}
    groups |= {language: languages == language for language in np.unique(languages)}
    fitted = {}
    for language, chosen in groups.items():
        if chosen.sum() >= LEAST_PAIRS or language == ANY_LANGUAGE:
            a, b = measures.fit_logistic(logits[chosen][:, None], labels[chosen], np.ones(chosen.sum()))
            fitted[str(language)] = {"a": round(float(a), 5), "b": round(float(b), 5)}
    return fitted


def measure(
    name: str, pairs: Sequence[Pair], logits: measures.Floats, languages: dict[str, dict[str, float]]
) -> list[Measured]:
    """Figures of one set, whole and by language, source and kind."""
    groups: dict[str, list[int]] = {}
    for number, pair in enumerate(pairs):
        for group in ("all", pair.language, pair.source, f"{pair.source}: {pair.kind}"):
            groups.setdefault(group, []).append(number)
    labels = np.array([pair.label for pair in pairs])
    used = [languages.get(pair.language, languages[ANY_LANGUAGE]) for pair in pairs]
    likely = np.array([u["a"] * x + u["b"] >= 0 for u, x in zip(used, logits, strict=True)])
    lines = []
    for group, members in sorted(groups.items()):
        own, same = logits[members], labels[members]
        accepted = likely[members]
        lines.append(
            Measured(
                name,
                group,
                len(members),
                int(same.sum()),
                measures.auc(own, same),
                measures.recall_at(own, same, 0.98)[0],
                _share(accepted[same == 1]),
                _share(accepted[same == 0]),
            )
        )
    return lines


def _share(accepted: np.ndarray) -> float:
    return float(accepted.mean()) if len(accepted) else float("nan")
