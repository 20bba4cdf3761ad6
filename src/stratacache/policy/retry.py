"""Whether a call that failed is made again, and after how long; pure: the caller draws and says what time it is."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime

STATUSES = frozenset({408, 429, 500, 502, 503, 504, 529})
"""What may be otherwise a moment later. 529 is Anthropic's "overloaded"; 501 and 505 say what stays so."""

FIRST_PAUSE = 0.25  # seconds; doubles with every retry
LONGEST_PAUSE = 8.0
LONGEST_WAIT = 10.0
"""Seconds: who is told to come back later than this is told so, and does not wait here."""

_EARN = 0.2  # of a retry per request: the share of calls that may be retries in the long run
_RESERVE = 10.0  # retries that are there at the start, and the most that can be saved up


def may_fare_better(status: int, headers: Mapping[str, str]) -> bool:
    """Whether an answer with ``status`` is worth another try; ``headers`` have lower-case names.

    The providers' own ``x-should-retry`` has the last word.
    """
    said = headers.get("x-should-retry", "").strip().lower()
    if said in ("true", "false"):
        return said == "true"
    return status in STATUSES


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that the server asks to wait, None when it does not say; ``now`` is seconds since the epoch.

    RFC 9110 section 10.2.3: seconds or a date. ``retry-after-ms`` is OpenAI's, and exact.
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            wait = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        if 0 <= wait < float("inf"):
            return wait
    try:
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def pause(retry: int, draw: float) -> float:
    """Seconds before retry number ``retry`` (the first is 0): doubling, and half of it by chance.

    ``draw`` is from [0, 1). Those who failed together must not come back together.
    """
    whole = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(retry, 16))
    return whole * (0.5 + draw / 2)


class RetryBudget:
    """Bounds retries to a share of requests, so that an outage is not multiplied by those who insist.

    Every request earns a part of a retry; each retry costs one. Idle times earn nothing.
    """

    def __init__(self) -> None:
        self.left = _RESERVE

    def request(self) -> None:
        """Note a request that was made for the first time."""
        self.left = min(_RESERVE, self.left + _EARN)

    def spend(self) -> bool:
        """Take one retry, False when there is none."""
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True
