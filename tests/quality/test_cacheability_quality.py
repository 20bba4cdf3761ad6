"""The classifier's figures on the questions that it was never trained on: floors that a change must not fall below."""

from __future__ import annotations

from functools import cache

import pytest

from stratacache.policy.cacheability import CACHEABLE
from stratacache.policy.cacheability.head import packaged_head
from stratacache.policy.cacheability.model import KINDS, packaged
from stratacache.training.cacheability.evaluate import Report, report
from stratacache.training.cacheability.head import vectors_of
from stratacache.training.cacheability.questions import (
    DEVELOPMENT,
    HELD_OUT,
    Row,
    digest_of,
    hand_written,
    plain,
    templated,
)


@cache
def split(name: str) -> list[Row]:
    return [row for row in hand_written() if row.split == name]


@cache
def measured() -> Report:
    return report(packaged(), split("development"))


def test_accuracy_with_every_wrong_yes_counted_twice() -> None:
    assert measured().accuracy >= 0.95
    assert measured().weighted >= 0.93


@cache
def with_vectors() -> Report:
    rows = split("development")
    return report(packaged(), rows, packaged_head(), vectors_of([row.text for row in rows]))


def test_accuracy_with_the_vectors_of_the_default_embedder() -> None:
    assert with_vectors().accuracy >= 0.955
    assert with_vectors().weighted >= 0.94
    assert with_vectors().wrong_yes <= measured().wrong_yes


@pytest.mark.parametrize("language", ["en", "zh"])
def test_accuracy_in_each_language(language: str) -> None:
    assert measured().by(0)[language][1] >= 0.94


@pytest.mark.parametrize("kind", KINDS)
def test_accuracy_of_each_kind(kind: str) -> None:
    assert measured().by(1)[kind][1] >= 0.9


def test_risk_and_standing_alone() -> None:
    assert measured().right_risk / measured().count >= 0.86
    assert measured().right_alone / measured().count >= 0.96


@pytest.mark.parametrize(("name", "digest"), [("test", HELD_OUT), ("development", DEVELOPMENT)])
def test_questions_that_are_not_trained_on_have_not_changed(name: str, digest: str) -> None:
    assert len(split(name)) >= 600
    assert digest_of(split(name)) == digest


@pytest.mark.parametrize(
    ("one", "other"), [("train", "test"), ("train", "development"), ("development", "test")]
)
def test_no_question_and_no_domain_is_in_two_splits(one: str, other: str) -> None:
    first = [*split(one), *(templated(7) if one == "train" else [])]
    assert not {plain(row.text) for row in first} & {plain(row.text) for row in split(other)}
    assert not {row.domain for row in first} & {row.domain for row in split(other)}


def test_there_are_questions_enough_of_every_kind() -> None:
    rows = hand_written()
    assert len(rows) >= 800
    assert len({plain(row.text) for row in rows}) >= 0.98 * len(rows)
    for kind in KINDS:
        for language in ("en", "zh"):
            assert sum((row.kind, row.language) == (kind, language) for row in rows) >= 50
    assert 0.4 <= sum(row.kind in CACHEABLE for row in rows) / len(rows) <= 0.65
