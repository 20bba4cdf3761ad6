"""How long an entry lives: the scene's TTL, shortened by the caller, spread so that entries do not expire together."""

from __future__ import annotations

import math


def effective_ttl(scene_ttl: float, asked_ttl: float | None) -> float:
    """Seconds to keep an answer: callers may shorten the scene's TTL, never lengthen it."""
    return scene_ttl if asked_ttl is None else min(scene_ttl, asked_ttl)


def jittered_ttl(ttl: float, jitter: float, u: float) -> float:
    """Spread ``ttl`` seconds evenly over ``ttl * (1 ± jitter)``; ``u`` is a uniform draw from [0, 1).

    With the default jitter of 1/6 a TTL of 30 min becomes 25 to 35 min (requirement B5).
    """
    return ttl * (1 + jitter * (2 * u - 1))


_SELDOM = 20.0  # -ln(u) is above this once in 5e8 draws


def refresh_due(remaining: float, seconds: float, beta: float, u: float) -> bool:
    """Whether to fetch an entry anew although it is fresh for ``remaining`` seconds more.

    XFetch: Vattani, Chierichetti, Lowenstein, "Optimal Probabilistic Cache Stampede Prevention", VLDB 8(8), 2015. The
    more often an entry is asked for and the longer its answer takes (``seconds``), the earlier one of the requests
    draws the refresh. ``beta`` above 1 refreshes earlier, 0 never; ``u`` is a uniform draw from [0, 1).
    """
    if remaining > seconds * beta * _SELDOM:
        return False
    return -math.log1p(-u) * seconds * beta >= remaining
