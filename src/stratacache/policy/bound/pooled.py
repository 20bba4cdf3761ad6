"""The error bound of the semantic tier: of each scene's requests at most ``max_error`` are answered wrongly.

A decision needs no history of its entry: the verifier's probability is corrected by the labels of all entries, and an
account of expected errors, not a fixed threshold, says how sure an answer must be. Labels come from what is not served
(the fresh answer is compared with the stored one), from a sampled share of the hits, from feedback and from review.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Literal, TypeVar

import msgspec

from stratacache.policy.bound import snapshots
from stratacache.policy.bound.curve import Curve, Labels, fit_curve
from stratacache.policy.bound.drift import Drift
from stratacache.policy.bound.entries import Entries
from stratacache.policy.bound.interval import wilson
from stratacache.policy.bound.ledger import Ledger
from stratacache.policy.bound.picture import MOST_PICTURES, Picture, draw
from stratacache.policy.bound.scale import bin_of, log_odds
from stratacache.policy.bound.scale import probability as from_odds

Choice = Literal["serve", "explore", "reject"]
Source = Literal["explored", "checked", "feedback", "review"]
AlarmReason = Literal["calibration", "observed_error"]

_HOPELESS = -1.5  # log-odds below which a comparison with the fresh answer would teach nothing
_PATIENCE = 8  # right answers that may wait for the curve to be fitted anew; a wrong one does not
_MOST_LEDGERS = 1024
_MOST_ALARMS = 100

RISK_FACTORS: Mapping[str, float] = {"finance": 0.5, "account": 0.5, "medical": 0.2}


class Limits(msgspec.Struct, frozen=True):
    """What the operator allows: wrong answers as a share of the semantic look-ups, by scene; risks are stricter."""

    max_error: float = 0.01
    scenes: Mapping[str, float] = msgspec.field(default_factory=dict)
    risks: Mapping[str, float] = msgspec.field(default_factory=lambda: dict(RISK_FACTORS))

    def of(self, scene: str, risk: str) -> float:
        return self.scenes.get(scene, self.max_error) * self.risks.get(risk, 1.0)


class Ruling(msgspec.Struct, frozen=True):
    """``serve`` the stored answer; ``explore``: fetch a fresh one and compare; ``reject``: fetch one.

    ``threshold`` and ``adjusted`` are probabilities that the stored answer is right, the latter after the labels of all
    and the entry's own; ``checked`` > 0: fetch a fresh answer for this hit in the background and observe it with that
    weight.
    """

    choice: Choice
    reason: str
    threshold: float
    adjusted: float
    checked: float = 0.0


class ObservedError(msgspec.Struct, frozen=True):
    """Wrong answers per request: estimated from the checked hits, its 95 % interval, and expected by the model."""

    error: float
    low: float
    high: float
    expected: float
    labels: int


class Alarm(msgspec.Struct, frozen=True):
    """``number`` counts up; ``active`` until the labels after it agree with the curve again."""

    number: int
    scene: str
    risk: str
    reason: AlarmReason
    active: bool = True


_Key = tuple[str, str]


class Bound:
    """Decides for one process; each process keeps the bound for its own requests, so all together keep it.

    Not thread-safe. Keeps at most ``most_entries`` entries with labels and a ledger for each (scene, risk), whose names
    are the configuration's; beyond 1,024 of them the rest share one. ``verifier`` is the fingerprint of what gives the
    probabilities: what was learned of those of one says nothing about those of another.
    """

    def __init__(self, limits: Limits | None = None, most_entries: int = 100_000, verifier: str = "") -> None:
        self.limits = limits or Limits()
        self.verifier = verifier
        self._ledgers: dict[_Key, Ledger] = {}
        self._labels: dict[_Key, Labels] = {}  # by scene and language
        self._drifts: dict[_Key, Drift] = {}  # by scene and risk
        self._entries = Entries(most_entries)
        self._curves: dict[_Key, Curve] = {}
        self._waiting = 0
        self._alarms: deque[Alarm] = deque(maxlen=_MOST_ALARMS)
        self._raised = 0

    def looked(self, scene: str, risk: str = "") -> None:
        """Count a request that looked for a stored answer, whether or not one was near. Call before ``decide``."""
        max_error = self.limits.of(scene, risk)
        self._ledger(scene, risk).look(max_error)
        self._drift(scene, risk).request(max_error)

    def decide(
        self, scene: str, entry: bytes, probability: float, draw: float, *, risk: str = "", language: str = ""
    ) -> Ruling:
        """Rule on the best candidate, once per request; ``probability`` is the verifier's, ``draw`` uniform in [0, 1).

        A higher one never turns ``serve`` into anything else, all else equal. The ruling counts: who cannot serve
        what was ruled to be served calls ``withdraw``.
        """
        ledger, drift = self._ledger(scene, risk), self._drift(scene, risk)
        if not 0 <= probability <= 1:
            return Ruling("reject", "no_probability", 1.0, 0.0)
        max_error, curve = self.limits.of(scene, risk), self._curve(scene, language)
        odds = log_odds(probability) + self._entries.shift(entry) - drift.caution
        ledger.offered[bin_of(odds)] += 1
        wrong = curve.at(odds)
        floor = ledger.threshold(curve, max_error)
        threshold = 1 - curve.at(floor) if floor < math.inf else 1.0
        if odds < _HOPELESS:
            return Ruling("reject", "improbable", threshold, 1 - wrong)
        if odds < floor:
            return Ruling("explore", "below_threshold", threshold, 1 - wrong)
        if not ledger.affords(odds, wrong, curve, max_error):
            return Ruling("explore", "budget_spent", threshold, 1 - wrong)
        rate = ledger.check_rate(odds, curve, max_error)
        if drift.cautious and draw < rate:
            return Ruling("explore", "drift", threshold, 1 - wrong)
        ledger.serve(odds)
        return Ruling("serve", "within_bound", threshold, 1 - wrong, 1 / rate if draw < rate else 0.0)

    def withdraw(self, scene: str, entry: bytes, probability: float, *, risk: str = "") -> None:
        """The answer ruled to be served was gone: it is no hit."""
        ledger = self._ledger(scene, risk)
        index = bin_of(self._odds(scene, entry, probability, risk))
        ledger.hits = max(0.0, ledger.hits - 1)
        ledger.served[index] = max(0.0, ledger.served[index] - 1)
        ledger.suspect[index] = max(0.0, ledger.suspect[index] - 1)

    def observe(
        self, scene: str, entry: bytes, probability: float, right: bool, *,
        source: Source = "explored", weight: float = 1.0, risk: str = "", language: str = "",
    ) -> None:  # fmt: skip
        """Learn that the answer of ``entry`` was right or wrong for a question at ``probability``.

        ``weight`` is that of the ruling for a ``checked`` hit. Feedback and review are not drawn at random: they train
        the entry and, when wrong, the curve, and are at least so many errors, but estimate no share.
        """
        if not 0 <= probability <= 1:
            return
        ledger, drift = self._ledger(scene, risk), self._drift(scene, risk)
        odds = self._odds(scene, entry, probability, risk)
        wrong = self._curve(scene, language).at(odds)
        ledger.labels += 1
        self._entries.add(entry, 0.0 if right else 1.0, wrong)
        if source in ("feedback", "review"):
            ledger.reported_wrong += not right
            if right:
                return
        if source == "checked":
            ledger.checked += weight
            ledger.checked_squares += weight * weight
            ledger.checked_wrong += 0.0 if right else weight
        self._learn(scene, language, bin_of(odds), right)
        self._watch(scene, risk, language, wrong, right, weight if source == "checked" else 0.0)
        if drift.resting:
            ledger.suspect = [0.0] * len(ledger.suspect)

    def forget(self, entry: bytes) -> None:
        """The entry is gone."""
        self._entries.forget(entry)

    def report(self, scene: str) -> ObservedError:
        """The scene's error over its recent requests, all risks together."""
        total, expected = Ledger(), 0.0
        for (name, _), ledger in self._ledgers.items():
            if name == scene:
                total.merge(ledger)
                expected += ledger.errors(self._curve(scene, "")).mean
        requests = max(total.requests, 1.0)
        hit_share = total.hits / requests
        known = total.reported_wrong / requests
        if total.checked <= 0:
            return ObservedError(known, known, max(known, hit_share), expected / requests, total.labels)
        share = total.checked_wrong / total.checked
        low, high = wilson(share, total.checked**2 / total.checked_squares)
        error = max(known, share * hit_share)
        return ObservedError(
            error,
            max(known, low * hit_share),
            max(error, high * hit_share),
            expected / requests,
            total.labels,
        )

    def alarms(self) -> tuple[Alarm, ...]:
        """The last alarms, oldest first."""
        return tuple(
            msgspec.structs.replace(alarm, active=self._drift(alarm.scene, alarm.risk).cautious > 0)
            for alarm in self._alarms
        )

    def explain(
        self, scene: str, entry: bytes, probability: float, *, risk: str = "", language: str = ""
    ) -> dict[str, float]:
        """The numbers behind a decision, as of now; changes nothing."""
        ledger, curve = self._ledger(scene, risk), self._curve(scene, language)
        max_error = self.limits.of(scene, risk)
        floor = ledger.threshold(curve, max_error)
        odds = self._odds(scene, entry, probability, risk)
        wrong, expected = self._entries.counts(entry)
        return {
            "max_error": max_error,
            "p": probability,
            "adjusted": 1 - curve.at(odds),
            "threshold": 1 - curve.at(floor) if floor < math.inf else 1.0,
            "threshold_p": from_odds(floor) if floor < math.inf else 1.0,
            "entry_wrong": wrong,
            "entry_wrong_expected": expected,
            "requests": ledger.requests,
            "hits": ledger.hits,
            "errors_expected": ledger.errors(curve).mean,
            "errors_allowed": max_error * ledger.requests,
            "caution": self._drift(scene, risk).caution,
        }

    def pictures(self) -> list[Picture]:
        """The curves in use, those with the most requests first; at most 12. Changes nothing."""
        ledgers = sorted(self._ledgers.items(), key=lambda one: (-one[1].requests, one[0]))
        made: list[Picture] = []
        for (scene, risk), ledger in ledgers[:MOST_PICTURES]:
            for language in sorted(spoken for name, spoken in self._labels if name == scene) or [""]:
                labels = self._labels.get((scene, language)) or Labels()
                where = (scene, risk, language)
                made.append(
                    draw(where, self.limits.of(scene, risk), ledger, labels, self._curve(scene, language))
                )
        return made[:MOST_PICTURES]

    def snapshot(self) -> bytes:
        """The state as JSON."""
        return snapshots.encode(self.verifier, self._ledgers, self._labels, self._drifts, self._entries)

    def merge(self, snapshot: bytes) -> None:
        """Add another process's counts. Raises ValueError when it is no snapshot of this version and verifier."""
        state = snapshots.decode(snapshot, self.verifier)
        for key, ledger in state.ledgers.items():
            self._ledger(*key).merge(ledger)
        for key, labels in state.labels.items():
            self._labels_of(*key).merge(labels)
        for key, drift in state.drifts.items():
            self._drift(*key).merge(drift)
        for entry, (wrong, expected) in state.entries.items():
            self._entries.merge(entry, wrong, expected)
        self._curves.clear()

    @classmethod
    def restore(
        cls, snapshot: bytes, limits: Limits | None = None, most_entries: int = 100_000, verifier: str = ""
    ) -> Bound:
        """A bound that goes on where ``snapshot`` was taken. Raises ValueError as ``merge``."""
        bound = cls(limits, most_entries, verifier)
        bound.merge(snapshot)
        return bound

    def _odds(self, scene: str, entry: bytes, probability: float, risk: str) -> float:
        return log_odds(probability) + self._entries.shift(entry) - self._drift(scene, risk).caution

    def _learn(self, scene: str, language: str, index: int, right: bool) -> None:
        self._labels_of(scene, language).add(index, right)
        self._waiting += 1
        if not right or self._waiting >= _PATIENCE:
            self._curves.clear()
            self._waiting = 0

    def _watch(self, scene: str, risk: str, language: str, wrong: float, right: bool, weight: float) -> None:
        drift = self._drift(scene, risk)
        if weight and drift.checked(weight, right, self.limits.of(scene, risk)):
            self._raise(scene, risk, language, "observed_error")
        elif drift.label(wrong, right):
            self._raise(scene, risk, language, "calibration")

    def _raise(self, scene: str, risk: str, language: str, reason: AlarmReason) -> None:
        """Tighten at once: caution on every answer, the past settled, and most right answers forgotten."""
        ledger = self._ledger(scene, risk)
        ledger.settle(self._curve(scene, language))
        self._labels_of(scene, language).doubt()
        self._curves.clear()
        self._raised += 1
        self._alarms.append(Alarm(self._raised, scene, risk, reason))

    def _curve(self, scene: str, language: str) -> Curve:
        key = (scene, language)
        curve = self._curves.get(key)
        if curve is None:
            pool = [labels for (_, spoken), labels in self._labels.items() if spoken == language]
            curve = self._curves[key] = fit_curve(self._labels.get(key) or Labels(), pool)
        return curve

    def _ledger(self, scene: str, risk: str) -> Ledger:
        return _bounded(self._ledgers, (scene, risk), Ledger)

    def _labels_of(self, scene: str, language: str) -> Labels:
        return _bounded(self._labels, (scene, language), Labels)

    def _drift(self, scene: str, risk: str) -> Drift:
        return _bounded(self._drifts, (scene, risk), Drift)


_T = TypeVar("_T", Ledger, Labels, Drift)


def _bounded(known: dict[_Key, _T], key: _Key, make: type[_T]) -> _T:
    found = known.get(key)
    if found is None:
        key = key if len(known) < _MOST_LEDGERS else ("", "")
        found = known.setdefault(key, make())
    return found
