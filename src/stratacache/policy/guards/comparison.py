"""Guard: the order of a comparison. A better than B is not B better than A, but is B worse than A; A比B likewise."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, islice

from stratacache.policy.guards import lexicon, relations
from stratacache.policy.guards.finding import Finding, Verdict
from stratacache.policy.guards.pair import Pair
from stratacache.policy.guards.reading import Reading
from stratacache.policy.guards.relations import Relation, side


def _poles(section: str) -> dict[str, tuple[str, int]]:
    """Comparative → its scale (named by the first word) and end; a word on two scales keeps the first."""
    found: dict[str, tuple[str, int]] = {}
    for line in lexicon.sections("comparison.txt")[section]:
        ends = [end.split() for end in line.split("/")]
        for pole, words in zip((1, -1), ends, strict=True):
            for word in words:
                found.setdefault(word.replace("_", " "), (ends[0][0], pole))
    return found


_ENGLISH = _poles("en")
_CHINESE = _poles("zh")
_NO_COMPARATIVE = frozenset(
    ("other", "rather", "over", "after", "under", "whether", "ever", "never", "number")
)
_ENDS = frozenset(("than", "is", "be", "why", "how", "when", "becaus", "if", "and", "or", "that"))
_LEFT_ENDS = frozenset(("why", "how", "when", "becaus", "if", "that"))
_THAN = frozenset(("than", "over"))
# A (为什么)比B(更)贵; A不如B好; A没有B高. Both sides are short: names, not clauses.
_BI = re.compile(
    r"(?P<left>[^\s,。，,;；?？!！的]{1,10}?)(?:真的|是不是|会|要|为什么|怎么|到底)*(?P<word>比|不如|没有|没)"
    r"(?P<right>[^\s,。，,;；?？!！比]{1,10}?)(?:还|更|要|都|多了|那么|这么|得)*"
    rf"(?P<adjective>{'|'.join(sorted(_CHINESE, key=len, reverse=True))})"
)
_BI_LEFT_NOISE = re.compile(
    r"^(?:请问|为什么|为啥|怎么|是不是|如果|难道|你觉得|真的|听说|什么)+|(?:会|要|真的|为什么|怎么)+$"
)


def comparisons(reading: Reading) -> tuple[Relation, ...]:
    """The comparisons of a text, in order."""
    found = chain(_english(reading), _chinese(reading) if reading.has_han else ())
    return tuple(islice(found, relations.MOST))


def _english(reading: Reading) -> Iterator[Relation]:
    tokens = reading.tokens
    for at, token in enumerate(tokens):
        if token.stem != "than" or at == 0:
            continue
        head = max(0, at - 4)
        near = [t.text.lower() for t in tokens[head:at]]
        place = next((i for i in range(len(near) - 1, -1, -1) if _is_comparative(near[i])), None)
        if place is None or "or" in near[:place]:
            continue
        scale, pole = _scale(near[place:])
        left = side(tokens[: head + place][::-1], _LEFT_ENDS)
        yield Relation(scale, pole, left, side(tokens[at + 1 :], _ENDS))


def _is_comparative(word: str) -> bool:
    return word in _ENGLISH or (word.endswith("er") and word not in _NO_COMPARATIVE)


def _scale(words: list[str]) -> tuple[str, int]:
    """The scale and end of "faster", "more expensive" or "less useful"; the adjective is part of the scale."""
    known = _ENGLISH.get(" ".join(words[:2])) or _ENGLISH.get(words[0], (words[0], 1))
    if words[0] in ("more", "less") and " ".join(words[:2]) not in _ENGLISH:
        return f"{known[0]} {' '.join(words[1:])}".strip(), known[1]
    return known


def _chinese(reading: Reading) -> Iterator[Relation]:
    for match in _BI.finditer(reading.lower):
        scale, pole = _CHINESE[match["adjective"]]
        left = frozenset(_BI_LEFT_NOISE.sub("", match["left"]))
        yield Relation(scale, pole if match["word"] == "比" else -pole, left, frozenset(match["right"]))


def turned(pair: Pair) -> bool:
    """True when the two sides of a comparison are exchanged and its scale too: the same is said."""
    return any(_judge(one, other) == "pass" and one.pole != other.pole for one, other in _couples(pair))


def _couples(pair: Pair) -> list[tuple[Relation, Relation]]:
    return [(one, other) for one in pair.asked.fact(comparisons) for other in pair.stored.fact(comparisons)]


def _judge(one: Relation, other: Relation) -> Verdict | None:
    order = relations.order(one, other)
    if order == "unclear":
        return None
    if one.scale != other.scale:
        return "unsure"
    return "pass" if (order == "same") == (one.pole == other.pole) else "veto"


def check(pair: Pair) -> list[Finding]:
    """Veto when one side says of A what the other says of B; unsure when only the scales differ."""
    verdicts = {_judge(one, other): (one, other) for one, other in _couples(pair)}
    for verdict in ("pass", "veto", "unsure"):
        if verdict in verdicts:
            one, other = verdicts[verdict]
            return [Finding("comparison", verdict, f"{_shown(one)} / {_shown(other)}")]
    return []


def _shown(relation: Relation) -> str:
    left, right = (" ".join(sorted(words)) for words in (relation.left, relation.right))
    return f"{left} {relation.scale}{'+' if relation.pole > 0 else '-'} {right}"
