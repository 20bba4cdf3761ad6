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
    drop_asked = _units(asked) + _auxiliaries(asked) + _auxiliaries(stored)
    drop_stored = _units(stored) + _auxiliaries(asked) + _auxiliaries(stored)
    sure = not asking and not opposites(pair) and pair.differ_only_in(drop_asked, drop_stored)
    return [Finding("negation", "veto" if sure else "unsure", detail)]


_AUXILIARY = {"ca": "can", "wo": "will", "sha": "shall"}


def _units(found: tuple[str, ...]) -> list[str]:
    """The units of what negates."""
    return [
        unit
        for word in found
        for unit in (list(word) if word > "\u3400" else [stem(part) for part in word.split()])
    ]


def _auxiliaries(found: tuple[str, ...]) -> list[str]:
    """What stands without "n't" on the other side; a bare "not" may bring a "do" along, as 没 may a 有."""
    stems = [word.removesuffix("n't") for word in found if word.endswith("n't")]
    return [stem(_AUXILIARY.get(word, word)) for word in stems] + ["do", "有", "能"]
