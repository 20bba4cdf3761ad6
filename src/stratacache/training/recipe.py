"""From pairs to a folder that the gateway can load: train, calibrate on held-out pairs, quantise, describe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from stratacache.errors import ModelError
from stratacache.models.similarity import default_cosines
from stratacache.models.use import default_fingerprint
from stratacache.models.verifier import PairModel
from stratacache.policy.calibration import OTHER, Calibration, Fits, Sigmoid
from stratacache.training import measures
from stratacache.training.e5 import read_base, weights_path
from stratacache.training.export import build, quantise, write_card
from stratacache.training.pairs import Pair
from stratacache.training.verifier import LONGEST, Data, Recipe, kept_of, load, load_data, score, train

LEAST_PAIRS = 200  # of a language, below which it shares the calibration of all
AS_IT_IS = Calibration({OTHER: Sigmoid(1.0, 0.0)})


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
    """Quantise, calibrate and describe what :func:`train` left in ``work``."""
    model, tokenizer = load(work)
    base = read_base(weights_path())
    out.mkdir(parents=True, exist_ok=True)
    quantise(build(model.state_dict(), base, kept_of(work)), out / "model.onnx")
    (out / "tokenizer.json").write_text((work / "tokenizer.json").read_text())
    write_card(out, AS_IT_IS, LONGEST)
    languages = fit_card(data.natural.dev, out).languages
    sets = {
        "dev": data.natural.dev,
        "evaluate": data.evaluate,
        "synthetic": data.unseen,
        "left_out": data.left_out,
    }
    scores = {name: score(model, tokenizer, pairs) for name, pairs in sets.items() if pairs}
    measured = [
        line for name, found in scores.items() for line in measure(name, sets[name], found, languages)
    ]
    (out / "measured.json").write_bytes(msgspec.json.format(msgspec.json.encode(measured), indent=1))
    return measured


def recalibrate(manifest: Path, root: Path, folder: Path) -> Calibration:
    """Fit the card of the verifier in ``folder`` anew, to the pairs of ``manifest`` that none is trained on."""
    return fit_card(load_data(manifest, root, Recipe(per_rule=1, per_rule_unseen=1)).natural.dev, folder)


def fit_card(pairs: Sequence[Pair], folder: Path) -> Calibration:
    """Fit the calibration of the verifier in ``folder`` to ``pairs``, by the logits of the model as it is served and
    the default embedder's cosines, and write it into its card."""
    model = PairModel(folder)
    logits = np.array([logit_of(model, pair) for pair in pairs])
    cosines = default_cosines((pair.q1, pair.q2) for pair in pairs)
    read = np.isfinite(logits)
    kept = [pair for pair, ok in zip(pairs, read, strict=True) if ok]
    combined = combine(kept, logits[read], cosines[read])
    fitted = Calibration(calibrate(kept, logits[read]), {default_fingerprint(): combined})
    write_card(folder, fitted, LONGEST)
    return fitted


def logit_of(model: PairModel, pair: Pair) -> float:
    """NaN for a pair that is too long for the model."""
    try:
        return model.logit(pair.q1, pair.q2)
    except ModelError as error:
        if error.code != "question_too_long":
            raise
        return float("nan")


def calibrate(pairs: Sequence[Pair], logits: measures.Floats) -> dict[str, Sigmoid]:
    """Platt's sigmoid by language; the one for ``OTHER`` is fitted to all pairs."""
    labels = np.array([pair.label for pair in pairs])
    groups = {OTHER: np.ones(len(pairs), bool)} | _by_language(pairs)
    fitted = {}
    for language, chosen in groups.items():
        fit = measures.fit_sigmoid(logits[chosen], labels[chosen])
        if fit is not None:
            fitted[language] = fit
    return {OTHER: Sigmoid(1.0, 0.0)} | fitted


def combine(pairs: Sequence[Pair], logits: measures.Floats, cosines: measures.Floats) -> dict[str, Sigmoid]:
    """The same with the cosine, for languages in which a low one speaks against a pair."""
    labels = np.array([pair.label for pair in pairs])
    found = np.nan_to_num(cosines, nan=-1.0) >= measures.LEAST_COSINE
    fitted = {}
    for language, own in _by_language(pairs).items():
        chosen = own & found
        if chosen.sum() >= LEAST_PAIRS:
            sources = [pair.source for pair, is_chosen in zip(pairs, chosen, strict=True) if is_chosen]
            fit = measures.fit_with_cosine(logits[chosen], cosines[chosen], labels[chosen], sources)
            if fit is not None:
                fitted[language] = fit
    return fitted


def _by_language(pairs: Sequence[Pair]) -> dict[str, NDArray[np.bool_]]:
    """Which pairs are of each language that has enough of them."""
    languages = np.array([pair.language for pair in pairs])
    groups = {str(language): languages == language for language in np.unique(languages)}
    return {language: own for language, own in groups.items() if own.sum() >= LEAST_PAIRS}


def measure(name: str, pairs: Sequence[Pair], logits: measures.Floats, languages: Fits) -> list[Measured]:
    """Figures of one set, whole and by language, source and kind."""
    groups: dict[str, list[int]] = {}
    for number, pair in enumerate(pairs):
        for group in ("all", pair.language, pair.source, f"{pair.source}: {pair.kind}"):
            groups.setdefault(group, []).append(number)
    labels = np.array([pair.label for pair in pairs])
    used = [languages.get(pair.language, languages[OTHER]) for pair in pairs]
    likely = np.array([fit.probability(float(x)) >= 0.5 for fit, x in zip(used, logits, strict=True)])
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
