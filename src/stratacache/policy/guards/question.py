"""Guard: what is asked for: why, when, where, who, how, how long, how much …, however it is worded."""

from __future__ import annotations

import re

from stratacache.policy.guards import lexicon
from stratacache.policy.guards.finding import Finding
from stratacache.policy.guards.pair import Pair
from stratacache.policy.guards.reading import Reading
from stratacache.policy.guards.stem import stem

_LISTS = lexicon.sections("questions.txt")
_PATTERNS = {
    language: [(kind, re.compile(pattern)) for kind, pattern in (line.split(": ", 1) for line in lines)]
    for language, lines in _LISTS.items()
    if language in ("en", "zh")
}
# 多久到账 asks what 什么时候到账 asks, and how many days is how long; "how" is asked of causes as well.
_LOOSE = (
    {"how long", "when"},
    {"how long", "how often"},
    {"how much", "how many"},
    {"who", "where"},
)

_WORDING = frozenset(map(stem, lexicon.words(_LISTS["wording"])))
"""Content units that belong to the asking."""


def asked_for(reading: Reading) -> frozenset[str]:
    """All kinds of what a text asks for; empty for a plain what, which or yes-or-no question."""
    patterns = _PATTERNS["zh" if reading.has_han else "en"]
    found = [kind for kind, pattern in patterns if pattern.search(reading.lower)]
    return frozenset(kind for kind in found if kind != "how" or len(found) == 1)


def check(pair: Pair) -> list[Finding]:
    """Veto when each side asks for one thing, these differ beyond doubt, and the matter is the same to the word."""
    asked, stored = pair.asked.fact(asked_for), pair.stored.fact(asked_for)
    if asked == stored:
        return []
    detail = f"{', '.join(sorted(asked)) or 'what'} / {', '.join(sorted(stored)) or 'what'}"
    kinds = asked ^ stored
    hard = "how" not in kinds
    sure = hard and len(asked) == len(stored) == 1 and not any(kinds <= loose for loose in _LOOSE)
    same_matter = _WORDING.issuperset([*pair.only_asked, *pair.only_stored])
    return [Finding("question", "veto" if sure and same_matter else "unsure", detail)]
