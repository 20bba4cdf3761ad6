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
    assert CALIBRATION.alone(1, "en", "en") == Sigmoid(2, 1).probability(1)
    other = Sigmoid(0.5, -1).probability(1)
    assert [CALIBRATION.alone(1, *p) for p in [("en", "zh"), ("zh", "en"), ("fr", "fr")]] == [other] * 3


def test_the_cosine_counts_where_it_was_fitted_for_its_embedder() -> None:
    fitted = Calibration(CALIBRATION.languages, {"use/1": {"en": Sigmoid(1, -2, 3, 0.75)}})
    for cosine, odds in ((0.5, -1.75), (0.75, -1.0), (0.9, -1.0)):
        found = fitted.probability(1, "en", "en", cosine, "use/1")
        assert found == pytest.approx(Sigmoid(1, 0).probability(odds))
    alone = [
        (("en", "en"), 0.5, "other/1"),
        (("en", "en"), math.nan, "use/1"),
        (("zh", "zh"), 0.5, "use/1"),
        (("en", "zh"), 0.5, "use/1"),
        (("fr", "fr"), 0.5, "use/1"),
    ]
    for languages, cosine, embedder in alone:
        assert fitted.probability(1, *languages, cosine, embedder) == fitted.alone(1, *languages)


@given(numbers, st.floats(-1, 1), st.floats(-1, 1))
def test_a_higher_cosine_never_speaks_against_an_answer(logit: float, one: float, other: float) -> None:
    fit = Sigmoid(0.7, 0.1, 1.5, 0.8)
    assert fit.probability(logit, min(one, other)) <= fit.probability(logit, max(one, other))


@pytest.mark.parametrize(("c", "near"), [(-1.0, 0), (math.nan, 0), (math.inf, 0), (1, 1.5), (1, math.nan)])
def test_refuses_a_weight_that_would_turn_the_order_of_cosines(c: float, near: float) -> None:
    with pytest.raises(ValueError, match="finite c"):
        Calibration({"*": Sigmoid(1, 0)}, {"use/1": {"en": Sigmoid(1, 0, c, near)}})


@pytest.mark.parametrize(
    "languages",
    [{"en": Sigmoid(1, 0)}, {"*": Sigmoid(0, 0)}, {"*": Sigmoid(-1, 0)}, {"*": Sigmoid(math.nan, 0)},
     {"*": Sigmoid(1, math.inf)}, {"*": Sigmoid(1, 0), "en": Sigmoid(math.inf, 0)}],
)  # fmt: skip
def test_refuses_fits_that_would_turn_or_lose_the_order(languages: dict[str, Sigmoid]) -> None:
    with pytest.raises(ValueError, match="calibration"):
        Calibration(languages)
