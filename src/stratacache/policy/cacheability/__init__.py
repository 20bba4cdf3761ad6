"""Whether a question's answer may be told to others who ask the same: kind, risk and reason, English and Chinese.

Gates first (empty, personal data, instructions to the model …), then a linear model trained on questions written and
labelled for it, and once the question's vector is known a small network over that.
``docs/guide/cacheability.md`` explains the kinds; ``MODEL.md`` beside the weights has the figures.
"""

from __future__ import annotations

from typing import Final, Literal, cast

import msgspec

from stratacache.policy.cacheability.features import SIGNALS, features_of
from stratacache.policy.cacheability.gates import GATES, gate
from stratacache.policy.cacheability.head import Head
from stratacache.policy.cacheability.model import KINDS, RISKS, LinearModel, packaged
from stratacache.policy.wording import without_courtesies
from stratacache.ports import Vector

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

MIN_PROMISING: Final = 0.05
"""Least probability by the words alone with which a question is worth its vector, which decides."""

_BUSINESS: Final = frozenset({"generic_you", "policy", "account"})
_HINTS: Final = _BUSINESS | {"greeting"}


class Cacheability(msgspec.Struct, frozen=True, gc=False):
    """What a question is.

    ``reason`` is the kind, or the gate that decided before the model was asked. ``stands_alone`` is False when the
    question leans on what was said before ("and in winter?"). ``topic`` is the name of a default scene.
    ``confidence`` is the probability of the decision, cacheable or not; 1 after a gate. ``likely`` are the
    probabilities of ``KINDS``, none after a gate, ``alone`` that of standing alone; ``hints`` are what the topic is
    told by, besides the kind.
    """

    kind: Kind
    cacheable: bool
    reason: str
    stands_alone: bool
    risk: Risk
    topic: Topic
    confidence: float
    likely: tuple[float, ...] = ()
    alone: float = 1.0
    hints: frozenset[str] = frozenset()


def classify(question: str) -> Cacheability:
    """Class one question. Pure and linear in its length; the first call reads the weights.

    Raises:
        ModelError: the packaged weights are missing or not those that were released.
    """
    return classify_with(packaged(), question)


def unclassified(question: str) -> Cacheability:
    """What stands in for :func:`classify` where its weights are unusable: nothing is cacheable."""
    return Cacheability("unclassified", False, "unclassified", True, "none", "general", 1.0)


def promising(question: str) -> Cacheability:
    """:func:`classify` before the question's vector is known: only what surely is not cacheable is called so."""
    return classify_with(packaged(), question, MIN_PROMISING)


def confirm(said: Cacheability, head: Head | None, vector: Vector) -> Cacheability:
    """What ``said`` comes to with the question's ``vector``: words and vector count alike, as two opinions.

    A gate's word stands. ``vector`` is of the embedder that ``head`` was trained on; without a head the words decide.
    """
    if not said.likely:
        return said
    likely = said.likely
    if head is not None:
        products = [words * other for words, other in zip(said.likely, head.kinds(vector), strict=True)]
        likely = tuple([product / sum(products) for product in products])
    return _decided(likely, said.risk, said.alone, said.hints, MIN_CACHEABLE)


def classify_with(model: LinearModel, question: str, least: float = MIN_CACHEABLE) -> Cacheability:
    """:func:`classify` with another model, such as one just trained."""
    gated = gate(question)
    if gated is not None and gated[1] != "personal_data":
        kind, reason = gated
        return Cacheability(cast(Kind, kind), False, reason, True, "none", "general", 1.0)
    signals, ngrams = features_of(_asked(question))
    scores = model.scores(signals, ngrams)
    risk: Risk = RISKS[max(range(len(RISKS)), key=scores.risks.__getitem__)]
    if gated is not None:
        return Cacheability("personal", False, gated[1], scores.alone >= 0.5, risk, "general", 1.0)
    hints = _HINTS & {SIGNALS[number] for number in signals}
    return _decided(scores.kinds, risk, scores.alone, hints, least)


def _decided(
    likely: tuple[float, ...], risk: Risk, alone: float, hints: frozenset[str], least: float
) -> Cacheability:
    of_kind = dict(zip(KINDS, likely, strict=True))
    share = sum(of_kind[kind] for kind in CACHEABLE)
    worth, stands_alone = share >= least, alone >= 0.5
    best = max((kind for kind in KINDS if (kind in CACHEABLE) == worth), key=of_kind.__getitem__)
    if worth and not stands_alone:
        best, confidence = "context_dependent", 1 - alone
    else:
        confidence = share if worth else 1 - share
    return Cacheability(
        kind=cast(Kind, best),
        cacheable=worth and stands_alone,
        reason=best,
        stands_alone=stands_alone,
        risk=risk,
        topic=_topic(best, hints),
        confidence=confidence,
        likely=likely,
        alone=alone,
        hints=hints,
    )


def _asked(question: str) -> str:
    """The question itself: how politely it is put says nothing of its answer."""
    plain = without_courtesies(question)
    return plain + "?" if plain and question.rstrip().endswith(("?", "\uff1f")) else plain or question


def _topic(kind: str, hints: frozenset[str]) -> Topic:
    if "greeting" in hints:
        return "small_talk"
    if kind == "time_bound":
        return "realtime"
    if hints & _BUSINESS:
        return "business"
    return "knowledge" if kind in ("howto", "definition") else "general"


__all__ = [
    "CACHEABLE",
    "REASONS",
    "Cacheability",
    "classify",
    "classify_with",
    "confirm",
    "promising",
    "unclassified",
]
