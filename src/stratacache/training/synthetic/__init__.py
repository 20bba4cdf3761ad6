"""Makes labelled question pairs for the verifier: rewrites of real questions, and a hand-written grammar.

Every rule's label is sure by construction, and every kind of edit occurs with both labels, so that the verifier
cannot learn the edit instead of its meaning. All is a function of the seed and the questions given.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from .chinese import RULES as CHINESE
from .english import RULES as ENGLISH
from .grammar import grammar_pairs, held_out
from .pair import Draw, Pair, Part, Rule, Sourced, normalised

__all__ = ["RULES", "Pair", "Part", "Rule", "Sourced", "generate", "held_out", "normalised"]

RULES: tuple[Rule, ...] = ENGLISH + CHINESE

_TWICE = (
    0.35  # share of pairs whose second question is reworded besides: a small edit must be seen among others
)


def generate(
    seed: int,
    questions: Sequence[Sourced],
    count_per_rule: int,
    *,
    part: Part = "train",
    per_intent: int | None = None,
) -> Iterator[Pair]:
    """At most ``count_per_rule`` pairs of every rule, then ``per_intent`` of every intent of the grammar.

    ``part="train"`` uses no held-out intent and no held-out lexicon entry, ``part="eval"`` only edits that hold one
    (rules without a lexicon work alike in both: give other questions). ``per_intent`` is by default a tenth of
    ``count_per_rule``, at least 1.
    """
    by_language = {
        language: [q.text for q in questions if q.language == language] for language in ("en", "zh")
    }
    for rule in RULES:
        draw = Draw(Random(f"{seed} {part} {rule.language} {rule.name}"), part)
        yield from _pairs_of(rule, by_language[rule.language], count_per_rule, draw)
    yield from grammar_pairs(seed, max(1, count_per_rule // 10) if per_intent is None else per_intent, part)


def _pairs_of(rule: Rule, texts: Sequence[str], count: int, draw: Draw) -> Iterator[Pair]:
    order = list(range(len(texts)))
    draw.rng.shuffle(order)
    made = 0
    for place in order:
        if made == count:
            return
        pair = _pair(rule, " ".join(texts[place].split()), draw)
        if pair is not None:
            made += 1
            yield pair


def _pair(rule: Rule, text: str, draw: Draw) -> Pair | None:
    made = rule.rewrite(text, draw)
    if made is None:
        return None
    text, new = (text, made) if isinstance(made, str) else made
    if draw.rng.random() < _TWICE:
        new = _reworded(rule, new, draw)
    same = normalised(new) == normalised(text)
    if new == text or (same and rule.label == 0):
        return None
    first, second = (text, new) if draw.rng.random() < 0.5 else (new, text)
    return Pair(first, second, rule.label, rule.language, rule.name, "rules")


def _reworded(rule: Rule, text: str, draw: Draw) -> str:
    """The text after one more meaning-preserving rewrite of another surface."""
    free = Draw(draw.rng, "train")  # which part the first edit is of, the label-bearing one, is settled
    rules = [
        other
        for other in RULES
        if other.language == rule.language and other.label and other.surface != rule.surface
    ]
    draw.rng.shuffle(rules)
    for other in rules[:6]:
        new = other.rewrite(text, free)
        if isinstance(new, str):
            return new
    return text
