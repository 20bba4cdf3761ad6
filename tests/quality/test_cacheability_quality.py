"""The classifier's figures on the questions that it was never trained on: floors that a change must not fall below."""

from __future__ import annotations

from functools import cache

import pytest

from stratacache.policy.cacheability import CACHEABLE
from stratacache.policy.cacheability.model import KINDS, packaged
from stratacache.training.cacheability.evaluate import Report, report
from stratacache.training.cacheability.questions import (
    HELD_OUT,
    Row,
    digest_of,
    hand_written,
    plain,
    templated,
)


@cache
def held_out() -> list[Row]:
    return [row for row in hand_written() if row.split == "test"]


@cache
def measured() -> Report:
    return report(packaged(), held_out())


def test_accuracy_with_every_wrong_yes_counted_twice() -> None:
    assert measured().accuracy >= 0.95
    assert measured().weighted >= 0.93


@pytest.mark.parametrize("language", ["en", "zh"])
def test_accuracy_in_each_language(language: str) -> None:
    assert measured().by(0)[language][1] >= 0.94


@pytest.mark.parametrize("kind", KINDS)
def test_accuracy_of_each_kind(kind: str) -> None:
    assert measured().by(1)[kind][1] >= 0.9


def test_risk_and_standing_alone() -> None:
    assert measured().right_risk / measured().count >= 0.86
    assert measured().right_alone / measured().count >= 0.96


def test_the_held_out_questions_have_not_changed() -> None:
    assert len(held_out()) >= 600
    assert digest_of(held_out()) == HELD_OUT


def test_no_question_and_no_domain_is_in_both_splits() -> None:
    trained = [row for row in hand_written() if row.split == "train"]
    assert not {plain(row.text) for row in [*trained, *templated(7)]} & {
        plain(row.text) for row in held_out()
    }
    assert not {row.domain for row in trained} & {row.domain for row in held_out()}


def test_there_are_questions_enough_of_every_kind() -> None:
    rows = hand_written()
    assert len(rows) >= 800
    assert len({plain(row.text) for row in rows}) >= 0.98 * len(rows)
    for kind in KINDS:
        for language in ("en", "zh"):
            assert sum((row.kind, row.language) == (kind, language) for row in rows) >= 50
    assert 0.4 <= sum(row.kind in CACHEABLE for row in rows) / len(rows) <= 0.65
