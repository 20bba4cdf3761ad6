"""The verifier's training from end to end, a few steps of it: resumed, begun from an earlier run, and served."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from stratacache.models.verifier import PairModel
from stratacache.training.export import write_card
from stratacache.training.pairs import Pair
from stratacache.training.recipe import AS_IT_IS, calibrate, combine, make_verifier, recalibrate
from stratacache.training.verifier import LONGEST, Example, Recipe, Sampler, load, load_data, score, train

TOWNS = ("Leeds", "York", "Oslo", "Lima", "Cairo", "Delhi", "Perth", "Quito", "Rome", "Kyoto")
RECIPE = Recipe(pairs=64, batch=16, natural_first=16, vocabulary=1500, per_rule=2, per_rule_unseen=2)


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A manifest of one small set, made of towns."""
    folder = tmp_path_factory.mktemp("sets")
    rows = [
        {"q1": f"how do I get to {town}", "q2": f"the way to {other}", "label": int(town == other)}
        for town in TOWNS
        for other in TOWNS
    ]
    (folder / "towns.jsonl").write_text("\n".join(map(json.dumps, rows)))
    entry = {"path": "towns.jsonl", "language": "en", "domain": "towns"}
    # The towns are one component, and so all for training; what is held out comes from these.
    held = [
        {"q1": f"what is {n}", "q2": f"tell me what {m} is", "label": int(n == m)}
        for n in range(60)
        for m in (n, n + 200)
    ]
    (folder / "numbers.jsonl").write_text("\n".join(map(json.dumps, held)))
    other = {"path": "numbers.jsonl", "language": "en", "domain": "numbers"}
    (folder / "manifest.json").write_text(json.dumps([entry, other]))
    return folder


def test_a_run_makes_a_folder_that_answers_like_the_trained_model(sets: Path, tmp_path: Path) -> None:
    measured = make_verifier(sets / "manifest.json", sets, tmp_path, RECIPE)
    assert {line.set for line in measured} >= {"dev", "synthetic"}
    model, tokenizer = load(tmp_path / "training")
    pairs = [Pair("how do I get to York", "the way to York", 1, "en", "towns")]
    served = PairModel(tmp_path).logit(pairs[0].q1, pairs[0].q2)
    assert abs(served - float(score(model, tokenizer, pairs)[0])) < 0.5
    card = tmp_path / "verifier.json"
    fitted = card.read_bytes()
    write_card(tmp_path, AS_IT_IS, LONGEST)
    assert card.read_bytes() != fitted
    recalibrate(sets / "manifest.json", sets, tmp_path)
    assert card.read_bytes() == fitted


def test_a_language_with_enough_pairs_has_weights_with_the_cosine() -> None:
    draw = np.random.default_rng(1)
    pairs = [Pair(f"a {n}", f"b {n}", n % 2, "en" if n < 600 else "zh", "set") for n in range(700)]
    labels = np.array([pair.label for pair in pairs])
    logits, cosines = labels + draw.normal(size=700), 0.5 + 0.3 * labels + draw.uniform(0, 0.2, 700)
    cosines[:10] = np.nan
    found = combine(pairs, logits, cosines)
    assert list(found) == ["en"]
    assert found["en"].c > 0
    assert list(calibrate(pairs, logits)) == ["*", "en"]


def test_a_stopped_run_goes_on_and_another_begins_with_its_weights(sets: Path, tmp_path: Path) -> None:
    data = load_data(sets / "manifest.json", sets, RECIPE)
    first, second = tmp_path / "first", tmp_path / "second"
    train(data, RECIPE, first)
    (first / "final.pt").unlink()
    train(data, RECIPE, first)  # every step is done: only the result is written anew
    assert torch.load(first / "checkpoint.pt", weights_only=True)["done"] == 4
    train(data, msgspec.structs.replace(RECIPE, pairs=0), second, first)
    begun, left = (torch.load(run / "final.pt", weights_only=True)["model"] for run in (second, first))
    assert all(torch.equal(begun[name], left[name]) for name in left)


def test_rare_synthetic_kinds_are_drawn_in_proportion_to_the_root_of_their_size() -> None:
    def examples(kind: int, count: int) -> list[Example]:
        return [Example((kind,), (kind,), 0.0, 1.0)] * count

    recipe = Recipe(batch=64, natural_first=0, synthetic=0.5)
    sampler = Sampler(examples(0, 10), {"common": examples(1, 10_000), "rare": examples(2, 100)}, recipe)
    drawn = [e.first[0] for batch in islice(sampler.batches(), 320) for e in batch]
    shares = np.bincount(drawn) / len(drawn)
    assert shares == pytest.approx([0.5, 0.5 * 10 / 11, 0.5 / 11], abs=0.02)
