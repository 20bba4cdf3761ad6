"""Guard: the language of the question, for the answer is written in it."""

from __future__ import annotations

from stratacache.policy.guards.finding import Finding
from stratacache.policy.guards.pair import Pair
from stratacache.policy.guards.reading import Reading
from stratacache.policy.language import language_of

_OPEN = frozenset(("mixed", "none"))


def _language(reading: Reading) -> str:
    return language_of(reading.text)


def check(pair: Pair) -> list[Finding]:
    """Veto for two different languages; unsure where one is open ("mixed", "none")."""
    asked, stored = pair.asked.fact(_language), pair.stored.fact(_language)
    if asked == stored:
        return []
    sure = asked not in _OPEN and stored not in _OPEN
    return [Finding("language", "veto" if sure else "unsure", f"{asked} / {stored}")]
