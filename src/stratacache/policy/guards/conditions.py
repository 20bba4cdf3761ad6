"""Guard: conditions. Before a meal is not after it, "A before B" is "B after A", and an "unless" more is a doubt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, islice

from stratacache.policy.guards import lexicon, relations
from stratacache.policy.guards.finding import Finding, Verdict
from stratacache.policy.guards.pair import Pair
from stratacache.policy.guards.reading import Reading
from stratacache.policy.guards.relations import Relation, side
from stratacache.policy.guards.stem import stem

_WORDS = {"before": ("time", 1), "after": ("time", -1), "above": ("place", 1), "below": ("place", -1)}
_ORDER = {stem(word): order for word, order in _WORDS.items()}
_ENDS = frozenset(("how", "what", "when", "why", "should", "can", "do", "is", "be"))
_LISTS = lexicon.sections("conditions.txt")
_ENGLISH = frozenset(stem(word) for word in lexicon.words(_LISTS["en"]))
_CHINESE = tuple(sorted(lexicon.words(_LISTS["zh"])))
# 饭前洗手, 吃饭之后再运动: what stands before 前 is later.
_HAN = re.compile(
    r"(?P<one>[^\s,，。?？!！]{1,6}?)(?:之|以)?(?<![提目先今背最日空])(?P<word>前|后)(?![天面来年台端任期半语置])[,，]?"
    r"(?:应该|需要|可以|不能|再|先|才|能|要|还)*(?P<other>[^\s,，。?？!！]{1,6})"
)
_NO_MATTER = frozenset("的了吗呢我你是在就都也再先才要能会可以点日天号月年0123456789*")


def orders(reading: Reading) -> tuple[Relation, ...]:
    """What comes before what: the left side of pole +1, the right side of pole -1."""
    found = chain(_english(reading), _han(reading) if reading.has_han else ())
    return tuple(islice(found, relations.MOST))


def _english(reading: Reading) -> Iterator[Relation]:
    tokens = reading.tokens
    for at, token in enumerate(tokens):
        if token.stem in _ORDER:
            scale, pole = _ORDER[token.stem]
            yield Relation(scale, pole, side(tokens[:at][::-1], _ENDS), side(tokens[at + 1 :], _ENDS))


def _han(reading: Reading) -> Iterator[Relation]:
    for match in _HAN.finditer(reading.text):
        pole = -1 if match["word"] == "前" else 1
        one, other = frozenset(match["one"]) - _NO_MATTER, frozenset(match["other"]) - _NO_MATTER
        yield Relation("time", pole, one, other)


def turned(pair: Pair) -> bool:
    """True when an order is told from its other end: A before B, B after A."""
    return any(verdict == "pass" for verdict, one, other in _couples(pair) if one.pole != other.pole)


def _couples(pair: Pair) -> list[tuple[Verdict, Relation, Relation]]:
    found: list[tuple[Verdict, Relation, Relation]] = []
    for one in pair.asked.fact(orders):
        for other in pair.stored.fact(orders):
            order = relations.order(one, other)
            if one.scale == other.scale and order != "unclear":
                same = (order == "same") == (one.pole == other.pole)
                found.append(("pass" if same else "veto", one, other))
    return found


def conditions(reading: Reading) -> frozenset[str]:
    """The words of condition in a text."""
    found = {unit for unit in reading.stems if unit in _ENGLISH}
    if reading.has_han:
        found.update(word for word in _CHINESE if word in reading.text)
    return frozenset(found)


def check(pair: Pair) -> list[Finding]:
    """Veto for an order turned round, pass for the same order, unsure for a condition on one side."""
    couples = _couples(pair)
    if couples:
        verdict, one, other = min(couples, key=lambda couple: couple[0])
        return [Finding("conditions", verdict, f"{_shown(one)} / {_shown(other)}")]
    asked, stored = pair.asked.fact(conditions), pair.stored.fact(conditions)
    if asked == stored:
        return []
    detail = f"{', '.join(sorted(asked - stored)) or 'none'} / {', '.join(sorted(stored - asked)) or 'none'}"
    return [Finding("conditions", "unsure", detail)]


def _shown(relation: Relation) -> str:
    first, then = (relation.left, relation.right) if relation.pole > 0 else (relation.right, relation.left)
    return f"{' '.join(sorted(first))} before {' '.join(sorted(then))}"
