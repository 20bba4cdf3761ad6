"""How often each of many callers may do something: token buckets, bounded in number. Pure: the caller says the time."""

from __future__ import annotations

from collections import OrderedDict

MAX_CALLERS = 10_000


class Allowance:
    """A bucket a caller that holds ``per_minute`` tokens and fills at that rate; 0 is no limit.

    Of more than ``MAX_CALLERS`` callers those idle longest are forgotten, which gives them a full bucket again.
    """

    def __init__(self, per_minute: int) -> None:
        self._most = float(per_minute)
        self._buckets: OrderedDict[str, tuple[float, float]] = (
            OrderedDict()
        )  # tokens, as of (monotonic seconds)

    def take(self, caller: str, now: float) -> bool:
        """Whether ``caller`` may once more, at ``now`` in monotonic seconds; a token is gone if so."""
        if not self._most:
            return True
        tokens, then = self._buckets.get(caller, (self._most, now))
        tokens = min(self._most, tokens + max(0.0, now - then) * self._most / 60)
        allowed = tokens >= 1
        self._buckets[caller] = (tokens - allowed, now)
        self._buckets.move_to_end(caller)
        if len(self._buckets) > MAX_CALLERS:
            self._buckets.popitem(last=False)
        return allowed
