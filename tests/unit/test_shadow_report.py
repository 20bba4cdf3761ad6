"""What is advised after shadow mode: pure."""

from __future__ import annotations

import pytest

from stratacache.policy.shadow import shadow_scene


@pytest.mark.parametrize(
    ("agree", "disagree", "requests", "advice"),
    [
        (0, 0, 100, "more_traffic"),
        (49, 0, 100, "more_traffic"),
        (400, 0, 1000, "serve"),  # at most 0.95 % of 40 % of the requests
        (60, 0, 100, "more_traffic"),  # all right, but 6 % may be wrong by chance
        (80, 20, 200, "calibrate"),
        (2000, 4, 5000, "serve"),
    ],
)
def test_advice(agree: int, disagree: int, requests: int, advice: str) -> None:
    told = shadow_scene("default", {"agree": agree, "disagree": disagree, "unsure": 3}, requests, 0.01)
    assert told.advice == advice
    assert (told.hits, told.open) == (agree + disagree + 3, 3)


def test_the_interval_holds_the_precision() -> None:
    told = shadow_scene("default", {"agree": 90, "disagree": 10}, 1000, 0.01)
    assert told.precision == 0.9
    assert told.low < 0.9 < told.high
    assert told.error == pytest.approx((1 - told.low) * 0.1)


def test_without_a_comparison_nothing_is_known() -> None:
    told = shadow_scene("default", {"gone": 5}, 10, 0.01)
    assert (told.precision, told.low, told.high, told.open) == (None, 0.0, 1.0, 5)
