"""An interval for a share of which only some were looked at."""

from __future__ import annotations

import math

_Z = 1.96  # 95 %


def wilson(share: float, count: float) -> tuple[float, float]:
    """Wilson's score interval (1927) of ``share`` observed in ``count``, which may be an effective sample size."""
    if count <= 0:
        return 0.0, 1.0
    square = _Z * _Z / count
    middle = (share + square / 2) / (1 + square)
    half = _Z / (1 + square) * math.sqrt(share * (1 - share) / count + square / (4 * count))
    return max(0.0, middle - half), min(1.0, middle + half)
