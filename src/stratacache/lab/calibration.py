"""How well a verifier does on labelled pairs, and the calibration that fits them; never hits without wrong answers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from stratacache.lab.labelled import LabelledPair
from stratacache.policy.bound.interval import wilson
from stratacache.policy.calibration import OTHER, Calibration, Sigmoid
from stratacache.training.measures import auc, fit_sigmoid, recall_at
from stratacache.training.pairs import Pair, components

LEAST = 30  # same and different pairs each, below which a language keeps the calibration that it has
FOLDS = 5
START = 0.92  # the threshold from which the walk begins
_GRID = (0.995, 0.99, 0.98, 0.97, 0.96, 0.95, 0.94, 0.92, 0.9, 0.88, 0.85, 0.8, 0.75, 0.7, 0.6, 0.5)

Floats = NDArray[np.floating]
Score = Callable[[str, str], float | None]
Examine = Callable[[str, str], bool]


class Scored(msgspec.Struct, frozen=True):
    """A pair as the gateway sees it: its ``language``, whether a guard ``vetoed`` it, and the verifier's ``logit``,
    None for one that it does not read as it is too long."""

    pair: LabelledPair
    language: str
    vetoed: bool
    logit: float | None


class Share(msgspec.Struct, frozen=True):
    """``count`` of ``total``, and the 95 % interval of that share."""

    count: int
    total: int

    @property
    def share(self) -> float:
        return self.count / self.total if self.total else float("nan")

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.share, self.total) if self.total else (0.0, 1.0)


class Language(msgspec.Struct, frozen=True):
    """One language. ``recall``: the most same pairs that can be answered with at least the asked precision; ``wrong``
    of those answers then, ``accepted`` of the different pairs. ``loss``: log-loss before and after, out of fold."""

    name: str
    pairs: int
    same: int
    vetoed_same: int
    vetoed_different: int
    unread: int
    auc: float
    recall: Share
    wrong: Share
    accepted: Share
    current: Sigmoid
    proposed: Sigmoid | None
    loss: tuple[float, float]


class Step(msgspec.Struct, frozen=True):
    """What a threshold on the probability would do: ``hits`` of the same pairs, ``wrong`` of the answers, and
    ``errors``: wrong answers of all pairs."""

    threshold: float
    hits: Share
    wrong: Share
    errors: Share


class Scene(msgspec.Struct, frozen=True):
    """The walk down of one scene; ``chosen`` is the lowest threshold that is surely within ``max_error``, if any."""

    name: str
    max_error: float
    steps: tuple[Step, ...]
    chosen: Step | None


class Report(msgspec.Struct, frozen=True):
    """``calibration`` is what is proposed for all languages, those included that keep what they have."""

    precision: float
    languages: tuple[Language, ...]
    scenes: tuple[Scene, ...]
    calibration: Mapping[str, Sigmoid]
    misnamed: int


def score_all(
    pairs: Iterable[LabelledPair], score: Score, vetoes: Examine, language: Callable[[str], str]
) -> list[Scored]:
    """Every pair through guards and verifier. Pairs of two languages are none that the gateway would look at."""
    scored = []
    for pair in pairs:
        one, other = language(pair.asked), language(pair.stored)
        vetoed = one != other or vetoes(pair.asked, pair.stored)
        scored.append(Scored(pair, one if one == other else OTHER, vetoed, score(pair.asked, pair.stored)))
    return scored


def assess(
    scored: Sequence[Scored],
    current: Calibration,
    max_error: Callable[[str], float],
    precision: float,
) -> Report:
    """Figures by language and scene, and what to set. ``max_error`` is by scene."""
    languages, proposed = [], dict(current.languages)
    probabilities = np.array([_now(one, current) for one in scored])
    for name in sorted({one.language for one in scored}):
        members = [number for number, one in enumerate(scored) if one.language == name]
        found, after = _language(name, [scored[number] for number in members], current, precision)
        languages.append(found)
        if found.proposed is not None:
            proposed[name] = found.proposed
            probabilities[members] = after
    scenes = [
        _scene(name, max_error(name), scored, probabilities)
        for name in sorted({one.pair.scene for one in scored})
    ]
    misnamed = sum(one.pair.language not in ("", one.language) for one in scored)
    return Report(precision, tuple(languages), tuple(scenes), proposed, misnamed)


def _language(
    name: str, scored: Sequence[Scored], current: Calibration, precision: float
) -> tuple[Language, Floats]:
    """The figures, and each pair's probability by a calibration that was fitted without it."""
    labels = np.array([one.pair.same for one in scored], int)
    read = np.array([one.logit is not None for one in scored])
    asked = np.array([not one.vetoed and one.logit is not None for one in scored])
    logits = np.array([-np.inf if one.logit is None else one.logit for one in scored])
    now = current.languages.get(name) or current.languages[OTHER]
    before = np.array(
        [now.probability(logit) if ok else 0.0 for logit, ok in zip(logits, asked, strict=True)]
    )
    fit = None if name == OTHER else _fit(logits[asked], labels[asked])
    after = _out_of_fold(scored, logits, labels, asked) if fit is not None else None
    if after is None:
        fit, after = None, before
    # A vetoed pair is below every threshold.
    reached = np.where(asked, logits, -np.inf)
    _, threshold = recall_at(reached, labels, precision)
    answered = asked & (reached >= threshold)
    figures = Language(
        name=name,
        pairs=len(scored),
        same=int(labels.sum()),
        vetoed_same=sum(one.vetoed and one.pair.same for one in scored),
        vetoed_different=sum(one.vetoed and not one.pair.same for one in scored),
        unread=int((~read).sum()),
        auc=auc(logits[read], labels[read]),
        recall=Share(int(labels[answered].sum()), int(labels.sum())),
        wrong=Share(int((1 - labels[answered]).sum()), int(answered.sum())),
        accepted=Share(int((1 - labels[answered]).sum()), int((1 - labels).sum())),
        current=now,
        proposed=fit,
        loss=(_loss(before[asked], labels[asked]), _loss(after[asked], labels[asked])),
    )
    return figures, after


def _fit(logits: Floats, labels: NDArray[np.integer]) -> Sigmoid | None:
    """Platt's sigmoid, None for too few pairs or where a higher logit does not mean a likelier pair."""
    if min(int(labels.sum()), int((1 - labels).sum())) < LEAST:
        return None
    return fit_sigmoid(logits, labels)


def _out_of_fold(
    scored: Sequence[Scored],
    logits: Floats,
    labels: NDArray[np.integer],
    asked: NDArray[np.bool_],
) -> Floats | None:
    """Each pair's probability by a fit without its fold, None when the pairs outside some fold are too few for one.

    Pairs that share a question, directly or by others, are in one fold: none is judged by itself.
    """
    pairs = [Pair(one.pair.asked, one.pair.stored, int(one.pair.same), "en", "") for one in scored]
    fold = np.array(
        [int(hashlib.sha256(name.encode()).hexdigest(), 16) % FOLDS for name in components(pairs)]
    )
    probabilities = np.zeros(len(scored))
    for number in range(FOLDS):
        inside = asked & (fold == number)
        outside = asked & (fold != number)
        if not inside.any():
            continue
        sigmoid = _fit(logits[outside], labels[outside])
        if sigmoid is None:
            return None
        probabilities[inside] = [sigmoid.probability(float(logit)) for logit in logits[inside]]
    return probabilities


def _now(one: Scored, calibration: Calibration) -> float:
    if one.vetoed or one.logit is None:
        return 0.0
    return calibration.alone(one.logit, one.language, one.language)


def _loss(probabilities: Floats, labels: NDArray[np.integer]) -> float:
    if not len(labels):
        return float("nan")
    bounded = np.clip(probabilities, 1e-6, 1 - 1e-6)
    return float(-np.mean(np.where(labels == 1, np.log(bounded), np.log(1 - bounded))))


def _scene(name: str, max_error: float, scored: Sequence[Scored], probabilities: Floats) -> Scene:
    members = [number for number, one in enumerate(scored) if one.pair.scene == name]
    labels = np.array([scored[number].pair.same for number in members], int)
    own = probabilities[members]
    steps = tuple([_step(threshold, own, labels) for threshold in _GRID])
    return Scene(name, max_error, steps, walk_down(steps, max_error))


def walk_down(steps: Sequence[Step], max_error: float) -> Step | None:
    """From :data:`START` down while the wrong answers are surely within ``max_error``, or up until they are."""
    within = [step.errors.interval[1] <= max_error for step in steps]
    at = next(number for number, step in enumerate(steps) if step.threshold <= START)
    while at > 0 and not within[at]:
        at -= 1
    if not within[at]:
        return None
    while at + 1 < len(steps) and within[at + 1]:
        at += 1
    return steps[at]


def _step(threshold: float, probabilities: Floats, labels: NDArray[np.integer]) -> Step:
    answered = probabilities >= threshold
    wrong = int((1 - labels[answered]).sum())
    return Step(
        threshold,
        Share(int(labels[answered].sum()), int(labels.sum())),
        Share(wrong, int(answered.sum())),
        Share(wrong, len(labels)),
    )
