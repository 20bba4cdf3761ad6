"""Durations and sizes as people write them: ``30s``, ``150ms``, ``64MiB``, ``1GB``, or a bare number."""

from __future__ import annotations

import math
import re

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
# At most 12 + 6 digits: no input makes the conversion slow or the result infinite.
_QUANTITY = re.compile(r"\s*([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([A-Za-z]{0,3})\s*", re.ASCII)

DURATION_FORM = "a duration such as 150ms, 30s, 10m, 2h, 1d or a number of seconds"
SIZE_FORM = "a size such as 64MiB, 1GB or a number of bytes"


def seconds(value: object) -> float:
    """A duration in seconds, not negative; raises ValueError."""
    if isinstance(value, str):
        number, unit = _split(value)
        if unit in _SECONDS:
            return float(number) * _SECONDS[unit]
        if unit == "":
            return float(number)
    elif _is_amount(value):
        return float(value)  # type: ignore[arg-type]
    raise ValueError(DURATION_FORM)


def size(value: object) -> int:
    """A size in whole bytes, not negative; raises ValueError. KB, MB … count by 1000, KiB … by 1024."""
    if isinstance(value, str):
        number, unit = _split(value)
        scale = _BYTES.get(unit.lower())
        if scale is not None:
            return round(float(number) * scale)
    elif isinstance(value, int) and _is_amount(value):
        return value
    raise ValueError(SIZE_FORM)


def _split(text: str) -> tuple[str, str]:
    match = _QUANTITY.fullmatch(text)
    return (match[1], match[2]) if match else ("", "?")


def _is_amount(value: object) -> bool:
    """A finite number that is not negative; bool is not a number here although Python says so."""
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value >= 0
    )
