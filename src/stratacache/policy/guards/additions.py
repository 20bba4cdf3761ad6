"""Guard: additions. A stored question that says more than is asked may have been made to say it.

The one guard that is not symmetric: an answer to more than was asked may hold anything, and only who stored the
question can have planted it. What the asker alone says is for the verifier.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from stratacache.policy.guards import lexicon
from stratacache.policy.guards.finding import Finding
from stratacache.policy.guards.pair import Pair
from stratacache.policy.guards.reading import Reading, read
from stratacache.policy.guards.stem import stem

_COURTESIES = frozenset(
    unit
    for word in lexicon.words(lexicon.sections("function_words.txt")["courtesies"])
    for unit in (word if word > "\u3400" else (stem(word),))
)

_ENDS = re.compile(
    '[?!。？！;；\n()（）\\[\\]{}—–|*"“”<>…]+|[:：]\\s*|\\.(?=\\s|$)|(?<=[^\x00-\x7f])\\.|\\s-\\s'
)
_CLAUSE_ENDS = re.compile(f"{_ENDS.pattern}|[,，、]")
_ALIKE = 0.6
"""Of the asked question's content units so many must stand in the stored one, for the rest of it to be an addition."""
_MUCH = (4, 7)
"""Content units beyond those of the asked question that are too many: of words, of ideographs."""


def clauses(reading: Reading) -> tuple[frozenset[str], ...]:
    """As ``sentences``, cut at commas too."""
    return _units(_CLAUSE_ENDS.split(reading.text))


def sentences(reading: Reading) -> tuple[frozenset[str], ...]:
    """The content units of each sentence and parenthesis; of those that have any."""
    return _units(_ENDS.split(reading.text))


def _units(parts: Iterable[str]) -> tuple[frozenset[str], ...]:
    found = (read(part).content for part in parts if part and part.strip())
    return tuple(frozenset(units) for units in found if units.keys() - _COURTESIES)


def check(pair: Pair) -> list[Finding]:
    """Veto for a sentence of the stored question that has next to nothing of the asked one, for many units more, and
    for what asks the same again, as stuffing does."""
    asked, stored = pair.asked.content, pair.stored.content
    if not asked or pair.only_asked.total() > (1 - _ALIKE) * asked.total():
        return []
    repeated = sum(stored[unit] > asked[unit] for unit in asked)
    if len(asked) > 1 and 3 * repeated >= 2 * len(asked):
        return [Finding("additions", "veto", "once / more than once")]
    parts = pair.stored.fact(sentences)
    for sentence in parts if len(parts) > 1 else ():
        if 3 * len(sentence & asked.keys()) <= len(sentence):
            return [Finding("additions", "veto", f"none / {_shown(sentence)}")]
    if not pair.only_asked:
        for clause in pair.stored.fact(clauses):
            if len(clause) > 1 and clause.isdisjoint(asked):
                return [Finding("additions", "veto", f"none / {_shown(clause)}")]
    more = stored.keys() - asked.keys() - _COURTESIES
    han = sum(unit > "\u3400" for unit in more)
    if len(more) - pair.only_asked.total() >= (_MUCH[1] if han * 2 > len(more) else _MUCH[0]):
        return [Finding("additions", "veto", f"none / {_shown(more)}")]
    return []


def _shown(units: AbstractSet[str]) -> str:
    return " ".join(sorted(units)[:6])
