"""Guard: and or or. Both a dog and a cat are more than one of them."""

from __future__ import annotations

from stratacache.policy.guards.finding import Finding
from stratacache.policy.guards.pair import Pair
from stratacache.policy.guards.reading import Reading

_AND, _OR = ("和", "与", "以及"), ("或者", "或")
_MUTUAL = frozenset(
    ("between", "differ", "difference", "versus", "vs", "compare", "best", "better", "pro", "advantag")
)


def connective(reading: Reading) -> str:
    """The one of the two that a text has, "" for none or both."""
    stems = set(reading.stems)
    has_and = "and" in stems or any(word in reading.text for word in _AND)
    has_or = "or" in stems or any(word in reading.text for word in _OR)
    return "" if has_and == has_or else "and" if has_and else "or"


def check(pair: Pair) -> list[Finding]:
    """Veto when one stands for the other, nothing else differs and nothing is compared; unsure when more does."""
    asked, stored = pair.asked.fact(connective), pair.stored.fact(connective)
    if not asked or not stored or asked == stored:
        return []
    units = ["and", "or", *"".join((*_AND, *_OR))]
    compared = _MUTUAL.intersection((*pair.asked.stems, *pair.stored.stems)) or "区别" in pair.asked.text
    sure = not compared and pair.differ_only_in(units, units)
    return [Finding("connectives", "veto" if sure else "unsure", f"{asked} / {stored}")]
