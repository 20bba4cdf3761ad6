"""Whether a question's answer may be told to others who ask the same: kind, risk and reason, English and Chinese.

Gates first (empty, personal data, instructions to the model …), then a linear model trained on questions written and
labelled for it. ``docs/guide/cacheability.md`` explains the kinds; ``MODEL.md`` beside the weights has the figures.
"""

from __future__ import annotations

from typing import Final, Literal, cast

import msgspec

from stratacache.policy.cacheability.features import SIGNALS, features_of
from stratacache.policy.cacheability.gates import GATES, gate
from stratacache.policy.cacheability.model import KINDS, RISKS, LinearModel, packaged
from stratacache.policy.wording import without_courtesies

Kind = Literal[
    "fact",
    "howto",
    "definition",
    "time_bound",
    "personal",
    "ambiguous",
    "creative",
    "context_dependent",
    "unclassified",
]
Risk = Literal["none", "finance", "medical", "account"]
Topic = Literal["small_talk", "knowledge", "realtime", "business", "general"]

CACHEABLE: Final = frozenset({"fact", "howto", "definition"})
REASONS: Final = frozenset(KINDS) | GATES
"""Every word that :attr:`Cacheability.reason` can be."""

MIN_CACHEABLE: Final = 0.65
"""Least probability of the cacheable kinds: a wrong yes may tell a wrong answer, a wrong no only costs a call."""


class Cacheability(msgspec.Struct, frozen=True, gc=False):
    """What a question is.

    ``reason`` is the kind, or the gate that decided before the model was asked. ``stands_alone`` is False when the
    question leans on what was said before ("and in winter?"). ``topic`` is the name of a default scene.
    ``confidence`` is the probability of the decision, cacheable or not; 1 after a gate.
    """

    kind: Kind
    cacheable: bool
    reason: str
    stands_alone: bool
    risk: Risk
    topic: Topic
    confidence: float


def classify(question: str) -> Cacheability:
    """Class one question. Pure and linear in its length; the first call reads the weights.

    Raises:
        ModelError: the packaged weights are missing or not those that were released.
    """
    return classify_with(packaged(), question)


def unclassified(question: str) -> Cacheability:
    """What stands in for :func:`classify` where its weights are unusable: nothing is cacheable."""
    return Cacheability("unclassified", False, "unclassified", True, "none", "general", 1.0)


def classify_with(model: LinearModel, question: str) -> Cacheability:
    """:func:`classify` with another model, such as one just trained."""
    gated = gate(question)
    if gated is not None and gated[1] != "personal_data":
        kind, reason = gated
        return Cacheability(cast(Kind, kind), False, reason, True, "none", "general", 1.0)
    signals, ngrams = features_of(_asked(question))
    scores = model.scores(signals, ngrams)
    risk: Risk = RISKS[max(range(len(RISKS)), key=scores.risks.__getitem__)]
    alone = scores.alone >= 0.5
    if gated is not None:
        return Cacheability("personal", False, gated[1], alone, risk, "general", 1.0)
    of_kind = dict(zip(KINDS, scores.kinds, strict=True))
    share = sum(of_kind[kind] for kind in CACHEABLE)
    worth = share >= MIN_CACHEABLE
    best = max((kind for kind in KINDS if (kind in CACHEABLE) == worth), key=of_kind.__getitem__)
    if worth and not alone:
        best, confidence = "context_dependent", 1 - scores.alone
    else:
        confidence = share if worth else 1 - share
    topic = _topic(best, {SIGNALS[number] for number in signals})
    return Cacheability(cast(Kind, best), worth and alone, best, alone, risk, topic, confidence)


def _asked(question: str) -> str:
    """The question itself: how politely it is put says nothing of its answer."""
    plain = without_courtesies(question)
    return plain + "?" if plain and question.rstrip().endswith(("?", "\uff1f")) else plain or question


def _topic(kind: str, signals: set[str]) -> Topic:
    if "greeting" in signals:
        return "small_talk"
    if kind == "time_bound":
        return "realtime"
    if signals & {"generic_you", "policy", "account"}:
        return "business"
    return "knowledge" if kind in ("howto", "definition") else "general"


__all__ = ["CACHEABLE", "REASONS", "Cacheability", "classify", "classify_with", "unclassified"]
