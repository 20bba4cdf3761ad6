"""The few words by which the demo tells why a near-miss was left to the model."""

from __future__ import annotations

from typing import Any

import pytest

from stratacache.lab.demo import explained


def look(verdict: str, *findings: str, probability: float | None = None) -> dict[str, Any]:
    return {"verdict": verdict, "findings": list(findings), "probability": probability}


@pytest.mark.parametrize(
    ("semantic", "words"),
    [
        ({"reason": "no_candidate", "looks": []}, "no stored question of its language is near"),
        ({"reason": "time_bound"}, "of a kind whose answers are not shared"),
        (
            {
                "reason": "vetoed",
                "looks": [look("vetoed", "length unsure: 3 / 9", "entities veto: paris / rome")],
            },
            "entities: paris / rome",
        ),
        (
            {"reason": "unverified", "looks": [look("vetoed"), look("", probability=0.042)]},
            "4% likely to have the same answer",
        ),
        ({"reason": "vetoed", "looks": [look("vetoed")]}, "vetoed"),
    ],
)
def test_the_reason_in_a_few_words(semantic: dict[str, Any], words: str) -> None:
    assert explained(semantic) == words
