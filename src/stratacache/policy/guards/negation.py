"""Guard: negation. What is recommended and what is not; double negation and "not only" deny nothing."""

from __future__ import annotations

from stratacache.policy.guards.antonyms import opposites
from stratacache.policy.guards.finding import Finding
from stratacache.policy.guards.negators import asks_yes_or_no, negators
from stratacache.policy.guards.pair import Pair
from stratacache.policy.guards.stem import stem


def check(pair: Pair) -> list[Finding]:
    """Veto when one side denies and nothing else differs; unsure when more does."""
    asked, stored = pair.asked.fact(negators), pair.stored.fact(negators)
    if not asked and not stored:
        return []
    detail = f"{' '.join(asked) or 'affirmed'} / {' '.join(stored) or 'affirmed'}"
    if len(asked) % 2 == len(stored) % 2:
        return (
            [Finding("negation", "pass", detail)]
            if len(asked) == len(stored)
            else [Finding("negation", "unsure", detail)]
        )
    asking = asks_yes_or_no(pair.asked) or asks_yes_or_no(pair.stored)
    drop_asked, drop_stored = _units(asked), _units(stored)
    sure = not asking and not opposites(pair) and pair.differ_only_in(drop_asked, drop_stored)
    return [Finding("negation", "veto" if sure else "unsure", detail)]


def _units(found: tuple[str, ...]) -> list[str]:
    """The units of what negates, with the auxiliary that comes along: "do you not like" for "you like"."""
    units = [
        unit
        for word in found
        for unit in (list(word) if word > "\u3400" else [stem(part) for part in word.split()])
    ]
    return [*units, "do", "be", "can"] if any(unit.isascii() for unit in units) else [*units, "有", "能"]
