"""The classifier's network over vectors: a second opinion that neither gates nor foreign vectors are subject to."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from stratacache.errors import ModelError
from stratacache.models.use import default_fingerprint
from stratacache.policy.cacheability import classify, confirm, promising
from stratacache.policy.cacheability.head import DIGEST, WEIGHTS, Head, load_head, packaged_head
from stratacache.policy.cacheability.model import KINDS
from stratacache.training.cacheability.evaluate import report
from stratacache.training.cacheability.head import main, train
from stratacache.training.cacheability.questions import hand_written
from stratacache.training.cacheability.train import train as train_words

CLEAR = "How do I reset my password?"
NOBODYS = "Where is my order?"


def sure_of(kind: str) -> Head:
    """A network that says ``kind`` of every vector."""
    bias = np.array([20.0 * (name == kind) for name in KINDS], np.float32)
    zeros = np.zeros((2, 1), np.float32)
    return Head("any", zeros, zeros[0], np.zeros((1, len(KINDS)), np.float32), bias)


VECTOR = np.array([1.0, 0.0], np.float32)


def test_a_vector_can_turn_the_decision_both_ways() -> None:
    assert classify(CLEAR).cacheable
    assert not confirm(promising(CLEAR), sure_of("personal"), VECTOR).cacheable
    assert not classify(NOBODYS).cacheable
    assert confirm(promising(NOBODYS), sure_of("fact"), VECTOR).kind == "fact"


def test_without_a_head_the_words_decide() -> None:
    for question in (CLEAR, NOBODYS, "refund", "我的订单到哪了"):
        assert confirm(promising(question), None, VECTOR) == classify(question)


@pytest.mark.parametrize(
    "question", ["🙂", "refund", "my card number is 4111 1111 1111 1111", "Quel temps fait-il ?"]
)
def test_the_word_of_a_gate_stands(question: str) -> None:
    assert confirm(promising(question), sure_of("fact"), VECTOR) == classify(question)
    assert not classify(question).cacheable


def test_what_leans_on_earlier_turns_is_not_made_to_stand_alone() -> None:
    leaning = "And how long does that take?"
    assert not confirm(promising(leaning), sure_of("fact"), VECTOR).cacheable


def test_promising_calls_no_more_than_classify_impossible() -> None:
    for row in hand_written()[::7]:
        assert promising(row.text).cacheable or not classify(row.text).cacheable


def test_the_packaged_one_is_that_of_the_card_and_of_the_packaged_embedder() -> None:
    digest = hashlib.sha256(WEIGHTS.read_bytes()).hexdigest()
    assert DIGEST.read_text().strip() == digest
    assert digest in WEIGHTS.with_name("MODEL.md").read_text()
    assert packaged_head().embedder == default_fingerprint()
    assert sum(packaged_head().kinds(np.full(512, 512**-0.5, np.float32))) == pytest.approx(1)


@pytest.mark.parametrize("fault", ["missing", "one bit"])
def test_weights_that_are_not_those_released_are_refused(tmp_path: Path, fault: str) -> None:
    raw = bytearray(WEIGHTS.read_bytes())
    raw[1000] ^= 1
    if fault != "missing":
        (tmp_path / "head.npz").write_bytes(raw)
    with pytest.raises(ModelError, match="reinstall"):
        load_head(tmp_path / "head.npz", DIGEST)


def test_it_learns_what_it_is_shown_and_the_same_for_a_seed(tmp_path: Path) -> None:
    rows = [row for row in hand_written() if row.split == "train"][::60]
    vectors = np.random.default_rng(1).normal(size=(len(rows), 64)).astype(np.float32) / 8
    first, again = train(rows, vectors, 1, rounds=200), train(rows, vectors, 1, rounds=200)
    assert first.to_bytes() == again.to_bytes() != train(rows, vectors, 2, rounds=1).to_bytes()
    said = [KINDS[int(np.argmax(first.kinds(vector)))] for vector in vectors]
    assert sum(one == row.kind for one, row in zip(said, rows, strict=True)) > 0.6 * len(rows)
    measured = report(train_words(rows, 1, 20), rows, first, vectors)
    assert measured.accuracy >= 0.9


def test_the_command_writes_what_can_be_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row for row in hand_written() if row.split == "train"][::100]
    monkeypatch.setattr("stratacache.training.cacheability.head.hand_written", lambda: rows)
    monkeypatch.setattr("stratacache.training.cacheability.head.templated", lambda seed: [])
    main(["--rounds", "1", "--out", str(tmp_path)])
    assert load_head(tmp_path / "head.npz", tmp_path / "head.sha256").embedder == default_fingerprint()
