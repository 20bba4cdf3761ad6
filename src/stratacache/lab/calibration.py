"""How well a verifier does on labelled pairs, and the calibration that fits them; never hits without wrong answers."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from stratacache.lab.labelled import LabelledPair
from stratacache.policy.bound.interval import wilson
from stratacache.policy.calibration import OTHER, Calibration, Fits, Sigmoid
from stratacache.training.measures import LEAST_COSINE, auc, fit_sigmoid, fit_with_cosine, recall_at
from stratacache.training.pairs import Pair, components

LEAST = 30  # same and different pairs each, below which a language keeps the calibration that it has
FOLDS = 5
START = 0.92  # the threshold from which the walk begins
_GRID = (0.995, 0.99, 0.98, 0.97, 0.96, 0.95, 0.94, 0.92, 0.9, 0.88, 0.85, 0.8, 0.75, 0.7, 0.6, 0.5)

Floats = NDArray[np.floating]
Labels = NDArray[np.integer]
Score = Callable[[str, str], float | None]
Examine = Callable[[str, str], bool]
Fit = Callable[[Floats, Floats, Labels], Sigmoid | None]
"""To logits, cosines and labels."""


class Scored(msgspec.Struct, frozen=True):
    """A pair as the gateway sees it: its ``language``, whether a guard ``vetoed`` it, and the verifier's ``logit``,
    None for one that it does not read as it is too long. ``cosine``: NaN where the embedder takes no such question."""

    pair: LabelledPair
    language: str
    vetoed: bool
    logit: float | None
    cosine: float = math.nan


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
    of those answers then, ``accepted`` of the different pairs. ``combined``: what is proposed with the cosine, where
    that is better. ``loss``: log-loss before and after, out of fold."""

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
    combined: Sigmoid | None = None


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
    """``calibration`` is what is proposed for all languages, those included that keep what they have; ``combined`` the
    same with the embedder's cosine."""

    precision: float
    languages: tuple[Language, ...]
    scenes: tuple[Scene, ...]
    calibration: Fits
    misnamed: int
    combined: Fits = {}


def score_all(
    pairs: Iterable[LabelledPair],
    cosines: Iterable[float],
    score: Score,
    vetoes: Examine,
    language: Callable[[str], str],
) -> list[Scored]:
    """Every pair through guards and verifier. Pairs of two languages are none that the gateway would look at."""
    scored = []
    for pair, cosine in zip(pairs, cosines, strict=True):
        one, other = language(pair.asked), language(pair.stored)
        vetoed = one != other or vetoes(pair.asked, pair.stored)
        name = one if one == other else OTHER
        scored.append(Scored(pair, name, vetoed, score(pair.asked, pair.stored), float(cosine)))
    return scored


def assess(
    scored: Sequence[Scored],
    current: Calibration,
    embedder: str,
    max_error: Callable[[str], float],
    precision: float,
) -> Report:
    """Figures by language and scene, and what to set. ``embedder`` is the one that the cosines are by, ``max_error`` is
    by scene."""
    languages, proposed = [], dict(current.languages)
    combined = dict(current.embedders.get(embedder, {}))
    probabilities = np.array([_now(one, current, embedder) for one in scored])
    for name in sorted({one.language for one in scored}):
        members = [number for number, one in enumerate(scored) if one.language == name]
        own = [scored[number] for number in members]
        found, after = _language(name, own, probabilities[members], current, precision)
        languages.append(found)
        if found.proposed is not None:
            proposed[name] = found.proposed
            combined.pop(name, None)
            probabilities[members] = after
        if found.combined is not None:
            combined[name] = found.combined
    scenes = [
        _scene(name, max_error(name), scored, probabilities)
        for name in sorted({one.pair.scene for one in scored})
    ]
    misnamed = sum(one.pair.language not in ("", one.language) for one in scored)
    return Report(precision, tuple(languages), tuple(scenes), proposed, misnamed, combined)


def _language(
    name: str, scored: Sequence[Scored], before: Floats, current: Calibration, precision: float
) -> tuple[Language, Floats]:
    """The figures, and each pair's probability by a calibration that was fitted without it."""
    labels = np.array([one.pair.same for one in scored], int)
    read = np.array([one.logit is not None for one in scored])
    asked = np.array([not one.vetoed and one.logit is not None for one in scored])
    logits = np.array([-np.inf if one.logit is None else one.logit for one in scored])
    fit, combined, after = _propose(scored, logits, labels, asked) if name != OTHER else (None, None, None)
    if after is None:
        after = before
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
        current=current.languages.get(name) or current.languages[OTHER],
        proposed=fit,
        combined=combined,
        loss=(_loss(before[asked], labels[asked]), _loss(after[asked], labels[asked])),
    )
    return figures, after


def _propose(
    scored: Sequence[Scored], logits: Floats, labels: Labels, asked: NDArray[np.bool_]
) -> tuple[Sigmoid | None, Sigmoid | None, Floats | None]:
    """The sigmoid, that with the cosine where it is better, and each pair's probability out of fold."""
    cosines = np.array([one.cosine for one in scored])
    fit, after = _judged(scored, (logits, cosines, labels), asked, lambda x, _, y: fit_sigmoid(x, y))
    if after is None:
        return None, None, None
    close = asked & (np.nan_to_num(cosines, nan=-1.0) >= LEAST_COSINE)
    combined, nearer = _judged(scored, (logits, cosines, labels), close, fit_with_cosine)
    if nearer is None:
        return fit, None, after
    nearer = np.where(close, nearer, after)
    if _loss(nearer[asked], labels[asked]) >= _loss(after[asked], labels[asked]):
        return fit, None, after
    return fit, combined, nearer


def _judged(
    scored: Sequence[Scored], columns: tuple[Floats, Floats, Labels], chosen: NDArray[np.bool_], fit: Fit
) -> tuple[Sigmoid | None, Floats | None]:
    """The fit to all that are chosen, and each one's probability by a fit without its fold; neither when the pairs
    outside some fold are too few for one.

    Pairs that share a question, directly or by others, are in one fold: none is judged by itself.
    """
    logits, cosines, _ = columns
    whole = _fit(columns, chosen, fit)
    if whole is None:
        return None, None
    pairs = [Pair(one.pair.asked, one.pair.stored, int(one.pair.same), "en", "") for one in scored]
    fold = np.array(
        [int(hashlib.sha256(name.encode()).hexdigest(), 16) % FOLDS for name in components(pairs)]
    )
    probabilities = np.zeros(len(scored))
    for number in range(FOLDS):
        inside = chosen & (fold == number)
        if not inside.any():
            continue
        sigmoid = _fit(columns, chosen & (fold != number), fit)
        if sigmoid is None:
            return None, None
        for at in np.flatnonzero(inside):
            probabilities[at] = sigmoid.probability(float(logits[at]), float(cosines[at]))
    return whole, probabilities


def _fit(columns: tuple[Floats, Floats, Labels], chosen: NDArray[np.bool_], fit: Fit) -> Sigmoid | None:
    logits, cosines, labels = columns[0][chosen], columns[1][chosen], columns[2][chosen]
    if min(int(labels.sum()), int((1 - labels).sum())) < LEAST:
        return None
    return fit(logits, cosines, labels)


def _now(one: Scored, calibration: Calibration, embedder: str) -> float:
    if one.vetoed or one.logit is None:
        return 0.0
    return calibration.probability(one.logit, one.language, one.language, one.cosine, embedder)


def _loss(probabilities: Floats, labels: Labels) -> float:
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


def _step(threshold: float, probabilities: Floats, labels: Labels) -> Step:
    answered = probabilities >= threshold
    wrong = int((1 - labels[answered]).sum())
    return Step(
        threshold,
        Share(int(labels[answered].sum()), int(labels.sum())),
        Share(wrong, int(answered.sum())),
        Share(wrong, len(labels)),
    )
