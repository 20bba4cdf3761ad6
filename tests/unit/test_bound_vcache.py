"""vCache's method: the steps of its description, and its guarantee on i.i.d. scores with a logistic truth."""

from __future__ import annotations

import random

import pytest

from stratacache.policy.bound.vcache import (
    Fit,
    VCache,
    explore_rate,
    fit_boundary,
    separate_variance,
    sigmoid,
)


def test_an_entry_with_fewer_than_four_labels_is_explored() -> None:
    cache = VCache(0.5)
    for _ in range(3):
        assert cache.decide(b"e", 1.0, 0.999) == "explore"
        cache.observe(b"e", 0.95, True)
    assert cache.decide(b"e", 1.0, 0.999) == "explore"
    cache.observe(b"e", 0.95, True)
    assert cache.decide(b"e", 1.0, 0.999) == "serve"


def test_one_entry_learns_nothing_from_another() -> None:
    cache = VCache(0.5)
    for _ in range(50):
        cache.observe(b"e", 0.9, True)
    assert cache.decide(b"f", 1.0, 0.999) == "explore"


def test_separate_classes_put_the_boundary_in_the_middle_of_the_gap() -> None:
    fit = fit_boundary([(0.0, False), (0.4, False), (0.6, True), (1.0, True)])
    assert fit.boundary == pytest.approx(0.5)
    assert fit.variance == separate_variance(4)


def test_overlapping_classes_are_fitted_by_maximum_likelihood() -> None:
    observed = [(0.0, False), (0.3, True), (0.5, False), (0.5, True), (0.7, False), (1.0, True)]
    fit = fit_boundary(observed)
    assert fit.boundary == pytest.approx(0.5, abs=1e-6)
    balance = sum(right - sigmoid(fit.slope * (s - fit.boundary)) for s, right in observed)
    assert balance == pytest.approx(0, abs=1e-6)
    assert 0 < fit.variance < 1


def test_classes_the_wrong_way_round_are_explored() -> None:
    observed = [(0.0, False), (1.0, True), *[(0.1, True)] * 8, *[(0.9, False)] * 8]
    assert explore_rate(fit_boundary(observed), 0.95, 0.01) > 0.97


def test_the_variance_of_separate_classes_falls() -> None:
    assert separate_variance(6) == 0.0354
    assert separate_variance(20) == 0.0131
    values = [separate_variance(n) for n in range(6, 200)]
    assert values == sorted(values, reverse=True)


def test_explores_less_where_it_is_surer() -> None:
    rates = [explore_rate(Fit(40.0, 0.6, 0.001), s / 100, 0.02) for s in range(101)]
    assert rates == sorted(rates, reverse=True)
    assert explore_rate(Fit(40.0, 0.6, 0.001), 0.7, 0.02) > explore_rate(Fit(40.0, 0.6, 0.001), 0.7, 0.05)


def test_keeps_the_entries_used_last() -> None:
    cache = VCache(0.5, most_entries=2)
    for entry in (b"a", b"b", b"a", b"c"):
        for _ in range(4):
            cache.observe(entry, 0.95, True)
    assert cache.decide(b"b", 1.0, 0.999) == "explore"
    assert cache.decide(b"a", 1.0, 0.999) == "serve"


@pytest.mark.parametrize("max_error", [0.02, 0.05])
def test_keeps_its_guarantee_on_similarities_without_trend(max_error: float) -> None:
    draws = random.Random(20261202)
    wrong = requests = hits = 0
    for entry in range(60):
        cache = VCache(max_error)
        boundary, slope = draws.uniform(0.3, 0.8), draws.uniform(15, 60)
        for _ in range(150):
            similarity = draws.random()
            right = draws.random() < sigmoid(slope * (similarity - boundary))
            requests += 1
            if cache.decide(b"%d" % entry, similarity, draws.random()) == "serve":
                hits += 1
                wrong += not right
            else:
                cache.observe(b"%d" % entry, similarity, right)
    assert wrong <= max_error * requests
    assert hits > 0.02 * requests
