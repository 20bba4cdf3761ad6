"""The pooled bound: what it serves from the start, what it learns, how it tightens, what it reports and keeps."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable

import pytest

from stratacache.policy.bound.curve import Labels, fit_curve
from stratacache.policy.bound.interval import wilson
from stratacache.policy.bound.pooled import Bound, Limits
from stratacache.policy.bound.scale import BINS, bin_of, centre, log_odds, lower_edge, probability


class Traffic:
    """Requests whose candidates' log-odds come half from questions that are stored, half from others."""

    def __init__(self, bound: Bound, seed: int, *, scene: str = "s", risk: str = "") -> None:
        self.bound, self.draws, self.scene, self.risk = bound, random.Random(seed), scene, risk
        self.requests = self.hits = self.wrong = self.checked = 0
        self.worst = 0.0

    def run(self, requests: int, truth: Callable[[float], float], *, warm: int = 10**9) -> Traffic:
        """``truth`` turns the verifier's log-odds into those of a right answer."""
        for _ in range(requests):
            self.requests += 1
            self.bound.looked(self.scene, self.risk)
            if self.draws.random() < 0.6:
                self._candidate(truth)
            if self.requests >= warm:
                self.worst = max(self.worst, self.wrong / self.requests)
        return self

    def _candidate(self, truth: Callable[[float], float]) -> None:
        odds = self.draws.gauss(3.5 if self.draws.random() < 0.5 else -1.0, 2.0)
        right = self.draws.random() < probability(truth(odds))
        entry, p = b"%d" % self.draws.randrange(2000), probability(odds)
        ruling = self.bound.decide(self.scene, entry, p, self.draws.random(), risk=self.risk)
        if ruling.choice == "serve":
            self.hits += 1
            self.wrong += not right
            if ruling.checked:
                self.checked += 1
                self._observe(entry, p, right, ruling.checked)
        elif ruling.choice == "explore":
            self.bound.observe(self.scene, entry, p, right, risk=self.risk)

    def _observe(self, entry: bytes, p: float, right: bool, weight: float) -> None:
        self.bound.observe(self.scene, entry, p, right, source="checked", weight=weight, risk=self.risk)


def as_said(odds: float) -> float:
    return odds


def overconfident(odds: float) -> float:
    return 0.7 * odds - 0.5


def of_neighbours(odds: float) -> float:
    """Neighbours are right less often than the pairs that a verifier was calibrated on."""
    return odds - 1.5


def looked(bound: Bound, requests: int, scene: str = "s", risk: str = "") -> Bound:
    for _ in range(requests):
        bound.looked(scene, risk)
    return bound


def test_the_scale_covers_every_probability() -> None:
    assert bin_of(log_odds(0.0)) == 0
    assert bin_of(log_odds(1.0)) == BINS - 1
    for index in range(BINS):
        assert bin_of(centre(index)) == index
        assert bin_of(lower_edge(index)) == index


def test_a_certain_answer_of_a_new_entry_is_served_after_few_requests() -> None:
    bound = looked(Bound(), 60)
    assert bound.decide("s", b"new", 0.9999, 0.9).choice == "serve"
    assert bound.decide("s", b"new", 0.6, 0.9).choice == "explore"
    assert bound.decide("s", b"new", 0.05, 0.9).choice == "reject"


def test_nothing_is_served_before_a_request_was_counted() -> None:
    assert Bound().decide("s", b"e", 1.0, 0.9).choice == "explore"


@pytest.mark.parametrize("p", [math.nan, -0.1, 1.1])
def test_what_is_no_probability_is_rejected(p: float) -> None:
    bound = looked(Bound(), 100)
    assert bound.decide("s", b"e", p, 0.9).choice == "reject"
    bound.observe("s", b"e", p, True)
    assert bound.report("s").labels == 0


@pytest.mark.parametrize("max_error", [0.01, 0.05])
@pytest.mark.parametrize("truth", [as_said, overconfident, of_neighbours])
def test_errors_stay_below_the_bound_at_all_times(max_error: float, truth: Callable[[float], float]) -> None:
    for seed in range(6):
        traffic = Traffic(Bound(Limits(max_error)), seed).run(2500, truth, warm=500)
        assert traffic.worst <= max_error
        assert traffic.hits > 0.05 * traffic.requests


def test_a_change_for_the_worse_raises_an_alarm_and_is_survived() -> None:
    bound = Bound(Limits(0.02))
    traffic = Traffic(bound, 3).run(3000, as_said)
    assert bound.alarms() == ()
    traffic.run(1500, lambda odds: 0.6 * odds - 2.0, warm=0)
    assert {alarm.reason for alarm in bound.alarms()} <= {"calibration", "observed_error"}
    assert bound.alarms()
    assert traffic.worst <= 0.02
    traffic.run(3000, as_said)
    assert not any(alarm.active for alarm in bound.alarms())
    before = traffic.hits
    traffic.run(1000, as_said)
    assert traffic.hits - before > 100


def test_an_alarm_tightens_at_once() -> None:
    bound = Bound(Limits(0.02))
    Traffic(bound, 1).run(2000, as_said)
    before = bound.explain("s", b"e", 0.99)
    while not bound.alarms():
        bound.observe("s", b"other", 0.99, False)
    after = bound.explain("s", b"e", 0.99)
    assert after["caution"] > 0
    assert after["adjusted"] < before["adjusted"]
    assert bound.alarms()[-1].active


def test_an_entry_that_was_wrong_is_distrusted_and_one_confirmed_trusted() -> None:
    bound = Bound()
    Traffic(bound, 1).run(1500, as_said)
    usual = bound.explain("s", b"new", 0.98)["adjusted"]
    bound.observe("s", b"bad", 0.98, False)
    for _ in range(10):
        bound.observe("s", b"good", 0.7, True)
    assert (
        bound.explain("s", b"bad", 0.98)["adjusted"] < usual < bound.explain("s", b"good", 0.98)["adjusted"]
    )
    bound.forget(b"bad")
    assert bound.explain("s", b"bad", 0.98)["adjusted"] >= bound.explain("s", b"good", 0.7)["adjusted"]


def test_a_risk_is_held_to_its_stricter_bound() -> None:
    limits = Limits(0.02, {"faq": 0.05})
    assert limits.of("faq", "") == 0.05
    assert limits.of("other", "medical") == pytest.approx(0.004)
    shares = {}
    for risk in ("", "medical"):
        traffic = Traffic(Bound(limits), 5, risk=risk).run(3000, as_said)
        shares[risk] = traffic.hits
        assert traffic.wrong <= limits.of("s", risk) * traffic.requests
    assert 0 < shares["medical"] < shares[""]


def test_the_report_holds_the_true_error_in_its_interval() -> None:
    inside = 0
    for seed in range(10):
        bound = Bound(Limits(0.05))
        traffic = Traffic(bound, seed).run(1500, as_said)
        report = bound.report("s")
        assert report.low <= report.error <= report.high
        assert report.labels > 0
        inside += report.low <= traffic.wrong / traffic.requests <= report.high
    assert inside >= 8


def test_a_report_without_checked_hits_knows_only_what_was_told() -> None:
    bound = looked(Bound(Limits(0.05)), 100)
    assert bound.report("s").high == 0.0
    for _ in range(3):
        assert bound.decide("s", b"e", 0.9999, 0.99).choice == "serve"
    assert bound.report("s").high == pytest.approx(0.03)
    bound.observe("s", b"e", 0.9999, False, source="feedback")
    assert bound.report("s").low == pytest.approx(0.01)


def test_praise_does_not_train_the_curve() -> None:
    bound = looked(Bound(), 100)
    before = bound.explain("s", b"new", 0.9)["adjusted"]
    for _ in range(100):
        bound.observe("s", b"e", 0.9, True, source="feedback")
    assert bound.explain("s", b"new", 0.9)["adjusted"] == before


def test_an_answer_that_was_gone_is_no_hit() -> None:
    bound = looked(Bound(), 100)
    before = bound.explain("s", b"e", 0.9999)["errors_expected"]
    assert bound.decide("s", b"e", 0.9999, 0.9).choice == "serve"
    assert bound.explain("s", b"e", 0.9999)["errors_expected"] > before
    bound.withdraw("s", b"e", 0.9999)
    assert bound.explain("s", b"e", 0.9999)["errors_expected"] == pytest.approx(before)


def test_languages_are_corrected_apart() -> None:
    bound = looked(Bound(), 100)
    for _ in range(200):
        bound.observe("s", b"e", 0.95, False, language="zh")
    assert bound.explain("s", b"new", 0.95, language="zh")["adjusted"] < 0.6
    assert bound.explain("s", b"new", 0.95, language="en")["adjusted"] > 0.7


def test_a_new_scene_starts_from_what_others_learned() -> None:
    bound = looked(Bound(), 100)
    fresh = bound.explain("new", b"n", 0.95)["adjusted"]
    for _ in range(200):
        bound.observe("old", b"e", 0.8, False)
    assert bound.explain("new", b"n", 0.95)["adjusted"] < fresh


@pytest.mark.parametrize(
    "snapshot",
    [b"", b"[]", b'{"version": 9, "ledgers": [], "labels": [], "drifts": [], "entries": {}}',
     b'{"version": 1, "ledgers": [], "labels": [["s", "", {"right": [1.0], "wrong": [0.0]}]], "drifts": [],'
     b' "entries": {}}'],
)  # fmt: skip
def test_a_snapshot_that_is_none_is_refused(snapshot: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        Bound.restore(snapshot)


def test_a_snapshot_is_json() -> None:
    bound = Bound()
    Traffic(bound, 1).run(300, as_said)
    assert json.loads(bound.snapshot())["version"] == 1


def test_what_was_learned_of_another_verifier_is_refused() -> None:
    learned = Bound(verifier="old").snapshot()
    with pytest.raises(ValueError, match="another verifier"):
        Bound.restore(learned, verifier="new")
    assert Bound.restore(learned, verifier="old").verifier == "old"


def test_labels_move_the_curve_and_keep_it_falling() -> None:
    labels = Labels()
    for _ in range(300):
        labels.add(bin_of(3.2), False)
        labels.add(bin_of(-0.2), True)
    curve = fit_curve(labels, [labels])
    assert curve.at(3.2) > 0.3
    assert list(curve.risk) == sorted(curve.risk, reverse=True)
    assert all(doubt > 0 for doubt in curve.doubt)


def test_old_labels_fade() -> None:
    labels = Labels()
    for _ in range(10_000):
        labels.add(5, True)
    assert sum(labels.right) <= 3000


def test_wilson_holds_the_share() -> None:
    assert wilson(0.0, 0) == (0.0, 1.0)
    low, high = wilson(0.1, 100)
    assert low == pytest.approx(0.0552, abs=1e-3)
    assert high == pytest.approx(0.1744, abs=1e-3)
