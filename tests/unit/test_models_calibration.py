"""From logits to probabilities."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratacache.policy.calibration import Calibration, Sigmoid

CALIBRATION = Calibration({"en": Sigmoid(2, 1), "zh": Sigmoid(1, 0), "*": Sigmoid(0.5, -1)})
numbers = st.floats(-1e6, 1e6)


@given(numbers, st.floats(1e-6, 1e3), st.floats(-1e3, 1e3))
def test_a_probability_for_every_logit(logit: float, a: float, b: float) -> None:
    assert 0 <= Sigmoid(a, b).probability(logit) <= 1


@given(numbers, numbers)
def test_the_order_of_logits_stays(one: float, other: float) -> None:
    fit = Sigmoid(0.7, 0.1)
    if one <= other:
        assert fit.probability(one) <= fit.probability(other)


def test_known_values() -> None:
    assert Sigmoid(1, 0).probability(0) == 0.5
    assert Sigmoid(2, 1).probability(1) == pytest.approx(1 / (1 + math.exp(-3)))
    assert Sigmoid(2, 1).probability(-1) == pytest.approx(1 / (1 + math.exp(1)))
    assert math.isnan(Sigmoid(1, 0).probability(math.nan))


def test_two_languages_or_an_unknown_one_count_as_other() -> None:
    assert CALIBRATION.probability(1, "en", "en") == Sigmoid(2, 1).probability(1)
    other = Sigmoid(0.5, -1).probability(1)
    assert [CALIBRATION.probability(1, *p) for p in [("en", "zh"), ("zh", "en"), ("fr", "fr")]] == [other] * 3


@pytest.mark.parametrize(
    "languages",
    [{"en": Sigmoid(1, 0)}, {"*": Sigmoid(0, 0)}, {"*": Sigmoid(-1, 0)}, {"*": Sigmoid(math.nan, 0)},
     {"*": Sigmoid(1, math.inf)}, {"*": Sigmoid(1, 0), "en": Sigmoid(math.inf, 0)}],
)  # fmt: skip
def test_refuses_fits_that_would_turn_or_lose_the_order(languages: dict[str, Sigmoid]) -> None:
    with pytest.raises(ValueError, match="calibration"):
        Calibration(languages)
