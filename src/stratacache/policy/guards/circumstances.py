"""Guard: circumstances. What holds for anybody need not hold for a child, while pregnant, 逾期后 or for 未成年人."""

from __future__ import annotations

from stratacache.policy.guards import lexicon
from stratacache.policy.guards.finding import Finding
from stratacache.policy.guards.pair import Pair
from stratacache.policy.guards.reading import Reading
from stratacache.policy.guards.stem import stem

_LISTS = lexicon.sections("circumstances.txt")
_ENGLISH = frozenset(stem(word) for word in lexicon.words(_LISTS["en"]))
_CHINESE = tuple(sorted(lexicon.words(_LISTS["zh"]), key=len, reverse=True))
_ROOM = (2, 3)
"""Content units that may come with the circumstance, words and ideographs: "in a small child"."""


def circumstances(reading: Reading) -> frozenset[str]:
    """Those that a text names."""
    found = _ENGLISH.intersection(reading.stems)
    if reading.has_han:
        found = found.union(word for word in _CHINESE if word in reading.text)
    return found


def check(pair: Pair) -> list[Finding]:
    """Veto when one side is the other and a circumstance more; unsure for one that only one side names."""
    asked, stored = pair.asked.fact(circumstances), pair.stored.fact(circumstances)
    left, right = sorted(asked - stored), sorted(stored - asked)
    if not left and not right:
        return []
    detail = f"{', '.join(left) or 'none'} / {', '.join(right) or 'none'}"
    added, own, other = left, pair.only_asked, pair.only_stored
    if not left:
        added, own, other = right, other, own
    units = {unit for word in added for unit in (word if word > "\u3400" else (word,))}
    room = _ROOM[any(unit > "\u3400" for unit in units)]
    alone = not (left and right) and not other and len(own.keys() - units) <= room - 1
    return [Finding("circumstances", "veto" if alone else "unsure", detail)]
