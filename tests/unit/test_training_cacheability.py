"""Training of the cacheability classifier: repeatable, loadable, and learns what it is shown."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stratacache.policy.cacheability.model import load
from stratacache.training.cacheability.evaluate import report
from stratacache.training.cacheability.questions import Row, hand_written, templated
from stratacache.training.cacheability.train import Sparse, main, save, train

ROWS = [row for row in hand_written() if row.split == "train"][::40]


def test_learns_what_it_is_shown_and_the_same_for_a_seed() -> None:
    first, again = train(ROWS, seed=1, epochs=40), train(ROWS, seed=1, epochs=40)
    assert first.to_bytes() == again.to_bytes()
    assert first.to_bytes() != train(ROWS, seed=2, epochs=40).to_bytes()
    assert report(first, ROWS).accuracy >= 0.95


def test_what_is_saved_can_be_loaded(tmp_path: Path) -> None:
    model = train(ROWS, seed=1, epochs=2)
    save(model, tmp_path / "weights", tmp_path / "digest")
    assert load(tmp_path / "weights", tmp_path / "digest").to_bytes() == model.to_bytes()


def test_the_command_writes_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--epochs", "1", "--out", str(tmp_path)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["weights.bin", "weights.sha256"]
    load(tmp_path / "weights.bin", tmp_path / "weights.sha256")
    assert "test" not in capsys.readouterr().out


def test_sums_of_runs_are_products_of_the_matrix() -> None:
    found: list[list[int]] = [[0, 2], [], [1, 2, 3], [3]]
    dense = np.zeros((4, 5), np.float32)
    for row, features in enumerate(found):
        dense[row, features] = 1
    sparse, values = Sparse(found, 5), np.ones(6, np.float32)
    weights = np.arange(10, dtype=np.float32).reshape(5, 2)
    error = np.arange(8, dtype=np.float32).reshape(4, 2)
    assert np.array_equal(sparse.times(weights, values), dense @ weights)
    assert np.array_equal(sparse.transposed_times(error, values), dense.T @ error)


def test_templates_are_filled_the_same_for_a_seed() -> None:
    rows = templated(3)
    assert rows == templated(3) != templated(4)
    assert all(isinstance(row, Row) and "{" not in row.text.replace("{}", "") for row in rows)


def test_counts_of_a_report_add_up() -> None:
    model = train(ROWS, seed=1, epochs=20)
    whole, parts = report(model, ROWS), report(model, ROWS[:10]).merged(report(model, ROWS[10:]))
    assert (whole.count, whole.weighted, whole.kinds) == (parts.count, parts.weighted, parts.kinds)
    assert whole.wrong_yes + whole.wrong_no == len(whole.errors) == round((1 - whole.accuracy) * whole.count)
    assert f"questions {len(ROWS)}" in whole.text()
