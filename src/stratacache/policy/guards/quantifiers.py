"""Guard: quantifiers. All users are not some users, and only admins are not all admins."""

from __future__ import annotations

from stratacache.policy.guards import lexicon
from stratacache.policy.guards.finding import Finding
from stratacache.policy.guards.pair import Pair
from stratacache.policy.guards.reading import Reading
from stratacache.policy.guards.stem import stem

_KINDS = {kind: lexicon.words(lines) for kind, lines in lexicon.sections("quantifiers.txt").items() if kind}
_ENGLISH = {stem(word): kind for kind, words in _KINDS.items() for word in words if word.isascii()}
_HAN = sorted(
    (-len(word), word, kind) for kind, words in _KINDS.items() for word in words if not word.isascii()
)
_CHINESE = {word: kind for _, word, kind in _HAN}  # the longest first


def quantifiers(reading: Reading) -> dict[str, str]:
    """The kinds of quantifier in a text, with the word that shows each. "What are some" asks for no part."""
    found = {}
    found_what = "what" in reading.stems
    previous = ""
    for unit in reading.stems:
        empty = (unit == stem("some") and previous == "be" and found_what) or (
            unit == "all" and previous in ("at", "after")
        )
        if unit in _ENGLISH and not empty:
            found[_ENGLISH[unit]] = unit
        previous = unit
    if reading.has_han:
        for word, kind in _CHINESE.items():
            if word in reading.text:
                found.setdefault(kind, word)
    return found


def check(pair: Pair) -> list[Finding]:
    """Veto when one kind stands for another and nothing else differs; unsure for any other difference."""
    asked, stored = pair.asked.fact(quantifiers), pair.stored.fact(quantifiers)
    left, right = sorted(asked.keys() - stored.keys()), sorted(stored.keys() - asked.keys())
    if not left and not right:
        return []
    words = [asked[kind] for kind in left], [stored[kind] for kind in right]
    drops = [[unit for word in side for unit in (word if word > "\u3400" else (word,))] for side in words]
    drops[0].append("of")
    drops[1].append("of")
    sure = bool(left and right) and pair.differ_only_in(drops[0], drops[1])
    detail = f"{', '.join(words[0]) or 'none'} / {', '.join(words[1]) or 'none'}"
    return [Finding("quantifiers", "veto" if sure else "unsure", detail)]
