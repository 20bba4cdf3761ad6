"""How commands word figures for people."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Two or three digits with their unit: ``0.07 ms``, ``1.6 ms``, ``940 ms``, ``2.1 s``."""
    if seconds >= 1:
        return f"{seconds:.1f} s"
    decimals = 0 if seconds >= 0.01 else 1 if seconds >= 0.001 else 2
    return f"{seconds * 1000:.{decimals}f} ms"
