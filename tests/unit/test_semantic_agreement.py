"""Whether two answers say the same: what is clear gives a label, what is not gives none."""

from __future__ import annotations

import pytest

from stratacache.policy.agreement import compare_answers

LONG = (
    "A cache keeps copies of results that were expensive to get, so that asking again is cheap. It pays when the same "
    "things are asked for often."
)
REWORDED = (
    "A cache keeps copies of expensive results, so asking again for the same results is cheap. It pays when things are "
    "asked for often."
)
OTHER = "Rivers flow to the sea because water runs downhill, and most land slopes towards a coast somewhere."


@pytest.mark.parametrize(
    ("fresh", "cached", "cosine", "agreement"),
    [
        ("Paris.", "paris", None, "agree"),
        ("Paris", "The capital of France is Paris.", None, "agree"),
        ("巴黎", "法国的首都是巴黎。", None, "agree"),
        ("Yes, you can.", "No, you can not.", 0.95, "disagree"),
        ("是的，可以。", "不可以。", 0.95, "disagree"),
        ("84", "It is 96.", 0.9, "disagree"),
        ("It costs 5 EUR.", "The price is 5 EUR", 0.9, "agree"),
        ("allowed", "It is not allowed.", None, "unsure"),
        (LONG, REWORDED, 0.95, "agree"),
        (LONG, REWORDED, None, "agree"),
        (LONG, OTHER, 0.2, "disagree"),
        (LONG, OTHER, None, "disagree"),
        (LONG, OTHER, 0.9, "unsure"),
        (LONG, REWORDED, 0.3, "unsure"),
        ("", "Paris", 0.9, "disagree"),
        ("", "", None, "agree"),
    ],
)
def test_the_label(fresh: str, cached: str, cosine: float | None, agreement: str) -> None:
    assert compare_answers(fresh, cached, cosine) == agreement
    assert compare_answers(cached, fresh, cosine) == agreement
