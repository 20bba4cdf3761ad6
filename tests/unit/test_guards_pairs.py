"""Regression pairs of the guards, made up for this: each kind in English and Chinese, with the expected verdict."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from stratacache.policy.guards import examine

ROWS: list[dict[str, Any]] = [
    json.loads(line)
    for line in Path(__file__).with_name("guards_pairs.jsonl").read_text("utf-8").splitlines()
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['q1']} / {row['q2']}")
def test_the_verdict_on_a_pair(row: dict[str, Any]) -> None:
    examination = examine(row["q1"], row["q2"])
    assert examination.verdict == row["verdict"], examination
    vetoing = {finding.guard for finding in examination.findings if finding.verdict == "veto"}
    assert row.get("guard") in vetoing if vetoing else "guard" not in row


def test_there_are_pairs_enough_of_each_verdict() -> None:
    counts = Counter(row["verdict"] for row in ROWS)
    assert len(ROWS) >= 300
    assert min(counts.values()) >= 30


def test_no_pair_stands_twice() -> None:
    assert len({(row["q1"], row["q2"]) for row in ROWS}) == len(ROWS)
