"""Guard: numbers, with units, currencies, dates, versions, ordinals and shares. 1 km is 1000 m, 30 days are not 60."""

from __future__ import annotations

from collections.abc import Sequence

from stratacache.policy.guards.finding import Finding, Verdict
from stratacache.policy.guards.pair import Pair
from stratacache.policy.guards.quantities import Quantity, quantities

_EXACT = 1e-6
"""Relative difference that is only one of floating point."""
_ALIKE = 0.4
"""Below this likeness a number may belong to what the asker tells, not to what is asked."""
_ROUGH = 0.06
"""Up to this, figures in two families of a dimension (8 km, 5 miles; 60 days, 2 months) may be meant as one."""


def check(pair: Pair) -> list[Finding]:
    """Veto when both sides have a quantity that the other lacks; unsure when only one has."""
    asked, stored = pair.asked.fact(quantities), pair.stored.fact(quantities)
    if not asked and not stored:
        return []
    left, right = _unmatched(asked, stored)
    if not left and not right:
        return [Finding("numbers", "pass", _shown(asked))]
    return [Finding("numbers", _judge(pair, left, right), f"{_shown(left)} / {_shown(right)}")]


def _unmatched(
    asked: Sequence[Quantity], stored: Sequence[Quantity]
) -> tuple[list[Quantity], list[Quantity]]:
    """What of each side equals nothing on the other. Repetition is none."""
    left = [one for one in asked if not any(_equal(one, other) for other in stored)]
    right = [one for one in stored if not any(_equal(one, other) for other in asked)]
    if bool(left) != bool(right) and len(asked) == len(stored):
        return _one_by_one(asked, stored)
    return left, right


def _one_by_one(
    asked: Sequence[Quantity], stored: Sequence[Quantity]
) -> tuple[list[Quantity], list[Quantity]]:
    """What is left when each quantity pays for one on the other side only: 40 of 40 against 40 of 43."""
    left, right = [], list(stored)
    for one in asked:
        match = next((other for other in right if _equal(one, other)), None)
        if match is None:
            left.append(one)
        else:
            right.remove(match)
    return left, right


def _equal(one: Quantity, other: Quantity) -> bool:
    """The same amount, or a bare number where the other names its unit or its place in a date."""
    if one.dimension == other.dimension:
        if one.dimension == "clock" and one.family != other.family:
            return one.value % 43200 == other.value % 43200
        if one.dimension == "version":
            return one.digits == other.digits
        return one.family == other.family and _near(one.value, other.value, _EXACT)
    if "version" in (one.dimension, other.dimension):
        return one.digits == other.digits
    if "" in (one.dimension, other.dimension):
        years = "year" in (one.dimension, other.dimension)
        values = _bare_value(one), _bare_value(other)
        return values[0] == values[1] or (years and min(values) < 100 and max(values) % 100 == min(values))
    return _COUNTS.issuperset((one.dimension, other.dimension)) and one.value == other.value


_COUNTS = frozenset(("count", "ordinal", "age", "year"))


def _bare_value(quantity: Quantity) -> float:
    """The number as written, before its unit's factor."""
    head = quantity.shown.split(" ")[0]
    digits = "".join(char for char in head if char.isdigit() or char == ".").strip(".")
    if digits and digits.count(".") < 2 and quantity.dimension in _MEASURED:
        return float(digits)
    return quantity.value


_MEASURED = frozenset(
    (
        "time",
        "length",
        "mass",
        "volume",
        "data",
        "bits",
        "speed",
        "power",
        "voltage",
        "frequency",
        "angle",
        "share",
    )
)


def _near(one: float, other: float, tolerance: float) -> bool:
    return abs(one - other) <= tolerance * max(abs(one), abs(other))


def _judge(pair: Pair, left: Sequence[Quantity], right: Sequence[Quantity]) -> Verdict:
    """Sure only of two figures of one kind: a price here and an age there may be the asker's circumstances."""
    if not left or not right:
        return "unsure"
    if pair.likeness() < _ALIKE:
        return "unsure"
    rivals = [(one, other) for one in left for other in right if _comparable(one, other)]
    if not rivals:
        return "unsure"
    return "unsure" if any(_roughly(one, other) for one, other in rivals) else "veto"


def _comparable(one: Quantity, other: Quantity) -> bool:
    return one.dimension == other.dimension or "" in (one.dimension, other.dimension)


def _roughly(one: Quantity, other: Quantity) -> bool:
    """In two families of one dimension, and close."""
    if one.dimension != other.dimension or one.family == other.family or one.dimension == "money":
        return False
    return _near(one.value, other.value, _ROUGH)


def _shown(found: Sequence[Quantity]) -> str:
    return ", ".join(one.shown for one in found[:4]) or "none"
