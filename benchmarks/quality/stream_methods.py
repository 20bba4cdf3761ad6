"""The methods of the stream test: what each serves of the neighbours that it is shown, and what it learns."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, Protocol

from benchmarks.quality.stream_scores import Scores
from benchmarks.quality.streams import Pool
from stratacache.policy.bound.pooled import Bound, Limits, ObservedError
from stratacache.policy.bound.vcache import VCache
from stratacache.policy.guards import examine
from stratacache.policy.language import language_of
from stratacache.policy.wording import plain_wording
from stratacache.tiers.semantic_parts import Limits as TierLimits

BOUNDS = (0.005, 0.01, 0.02, 0.05)
THRESHOLDS = (0.80, 0.85, 0.90, 0.92, 0.95, 0.97, 0.99)
Near = Sequence[tuple[int, float]]
"""Stored questions and their cosines, nearest first."""


class Method(Protocol):
    """Answers one question from what it stored, or not."""

    def ask(self, asked: int, near: Near, draws: random.Random) -> int | None:
        """The stored question whose answer is served; None: a fresh answer, of which it learns."""
        ...

    def keeps(self) -> bool:
        """Whether the fresh answer is stored."""
        ...

    def extra(self) -> int:
        """Fresh answers that were fetched besides those that were served."""
        ...

    def report(self) -> ObservedError | None:
        """What it says of its own errors, if anything."""
        ...


class Best(NamedTuple):
    """The stored question that serves most probably; ``same``: but for courtesies it is the question asked; ``least``:
    the probability below which it is not served."""

    stored: int
    probability: float
    same: bool = False
    least: float = 0.0


class Examined:
    """The way of the semantic tier from neighbours to the likeliest of them: floor, guards, wording, verifier."""

    def __init__(self, pool: Pool, scores: Scores, limits: TierLimits | None = None) -> None:
        self._pool = pool
        self._scores = scores
        self.limits = limits or TierLimits()
        self._wordings = [plain_wording(text) for text in pool.texts]
        self._verdicts: dict[tuple[int, int], Literal["veto", "pass", "unsure"]] = {}
        self._probabilities: dict[tuple[int, int], float] = {}

    def best(self, asked: int, near: Near) -> Best | None:
        """The likeliest of ``near``, if any may serve at all."""
        words = self._wordings[asked]
        contenders = []
        for stored, cosine in near:
            if cosine >= self.limits.floor:
                same = words != "" and words == self._wordings[stored]
                verdict = "pass" if same else self._verdict(asked, stored)
                if verdict != "veto":
                    contenders.append((not same, verdict != "pass", -cosine, stored))
        found: Best | None = None
        for differs, unsure, _, stored in sorted(contenders)[: self.limits.verify]:
            p = self._probability(asked, stored) if differs else 1.0
            if found is None or p > found.probability:
                least = self.limits.least_unsure if unsure else self.limits.least
                found = Best(stored, p, not differs, least)
            if p >= self.limits.sure:
                break
        return found

    def _verdict(self, asked: int, stored: int) -> Literal["veto", "pass", "unsure"]:
        pair = asked, stored  # in this order: some guards ask whether the stored answer says enough
        if pair not in self._verdicts:
            self._verdicts[pair] = examine(self._pool.texts[asked], self._pool.texts[stored]).verdict
        return self._verdicts[pair]

    def _probability(self, asked: int, stored: int) -> float:
        pair = min(asked, stored), max(asked, stored)
        if pair not in self._probabilities:
            self._probabilities[pair] = self._scores(*pair)
        return self._probabilities[pair]


@dataclass
class Static:
    threshold: float

    def ask(self, asked: int, near: Near, draws: random.Random) -> int | None:
        return near[0][0] if near and near[0][1] >= self.threshold else None

    def keeps(self) -> bool:
        return True

    def extra(self) -> int:
        return 0

    def report(self) -> ObservedError | None:
        return None


@dataclass
class Vcache:
    """With ``path`` it decides by the verifier instead of the cosine: what the better score alone gains."""

    max_error: float
    answers: Sequence[int]
    path: Examined | None = None
    keep: bool = True

    def __post_init__(self) -> None:
        self.cache = VCache(self.max_error)

    def ask(self, asked: int, near: Near, draws: random.Random) -> int | None:
        self.keep = True
        found = self.path.best(asked, near) if self.path else Best(*near[0]) if near else None
        if found is None:
            return None
        stored, similarity = found.stored, found.probability
        entry = stored.to_bytes(4, "big")
        if self.cache.decide(entry, similarity, draws.random()) == "serve":
            return stored
        right = self.answers[stored] == self.answers[asked]
        self.cache.observe(entry, similarity, right)
        self.keep = not right
        return None

    def keeps(self) -> bool:
        return self.keep

    def extra(self) -> int:
        return 0

    def report(self) -> ObservedError | None:
        return None


@dataclass
class Ours:
    """Guards, verifier and pooled bound, with the share of hits that is checked by default."""

    max_error: float
    pool: Pool
    path: Examined
    checks: int = 0

    def __post_init__(self) -> None:
        self.bound = Bound(Limits(self.max_error))

    def ask(self, asked: int, near: Near, draws: random.Random) -> int | None:
        self.bound.looked("stream")
        found = self.path.best(asked, near)
        if found is None:
            return None
        stored, p = found.stored, found.probability
        if found.same:
            return stored
        entry, language = stored.to_bytes(4, "big"), language_of(self.pool.texts[asked])
        right = self.pool.answers[stored] == self.pool.answers[asked]
        if p < found.least:
            if p >= self.path.limits.worth:
                self.bound.observe("stream", entry, p, right, language=language)
            return None
        ruling = self.bound.decide("stream", entry, p, draws.random(), language=language)
        if ruling.choice == "explore":
            self.bound.observe("stream", entry, p, right, language=language)
        if ruling.choice != "serve":
            return None
        if ruling.checked:
            self.checks += 1
            self.bound.observe(
                "stream", entry, p, right, source="checked", weight=ruling.checked, language=language
            )
        return stored

    def keeps(self) -> bool:
        return True

    def extra(self) -> int:
        return self.checks

    def report(self) -> ObservedError | None:
        return self.bound.report("stream")


def methods(pool: Pool, path: Examined) -> Mapping[str, tuple[float | None, Callable[[], Method]]]:
    """By name: the bound, and what makes the method anew for a seed."""
    found: dict[str, tuple[float | None, Callable[[], Method]]] = {}
    for threshold in THRESHOLDS:
        found[f"cosine >= {threshold}"] = None, partial(Static, threshold)
    for bound in BOUNDS:
        found[f"vCache {bound}"] = bound, partial(Vcache, bound, pool.answers)
        found[f"vCache on the verifier {bound}"] = bound, partial(Vcache, bound, pool.answers, path)
        found[f"ours {bound}"] = bound, partial(Ours, bound, pool, path)
    return found
