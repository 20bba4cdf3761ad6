"""How large the memory store's window should be, learnt from the hit rate.

Traffic that favours the popular wants a small window, traffic that favours the recent a large one. The climber
moves the window in one direction for as long as the hit rate does not fall, turns when it does, and takes
smaller steps as it settles. Einziger, Eytan, Friedman, Manes: "Adaptive Software Cache Management",
Middleware 2018.
"""

from __future__ import annotations

_FIRST_STEP = 0.0625  # of the store, as in Caffeine
_DECAY = 0.98  # per step, as in Caffeine
_RESTART = 0.05  # a hit rate that moves this much between samples is new traffic: full steps again
# Caffeine starts at 1 %. For traffic that favours the recent, the way up from there is flat until the window
# holds most of what is used again, and the climber wanders (hit rate 0.21 where LRU has 0.75 and a start at 40 %
# has 0.72). The way down is not flat: 40 % costs popular (Zipf) traffic 0.015 at most.
_START = 0.4
_LEAST, _MOST = 0.01, 0.80


class WindowClimber:
    """Hill climbing on the window's ``share`` of the store (0 to 1)."""

    __slots__ = ("_previous", "_step", "share")

    def __init__(self) -> None:
        self.share = _START
        self._step = _FIRST_STEP
        self._previous = 0.0

    def observe(self, hit_rate: float) -> None:
        """Take the hit rate of the latest sample (0 to 1) and set ``share`` for the next one."""
        change = hit_rate - self._previous
        self._previous = hit_rate
        direction = 1.0 if self._step >= 0 else -1.0
        if change < 0 or (self.share == _LEAST and direction < 0) or (self.share == _MOST and direction > 0):
            direction = -direction
        size = _FIRST_STEP if abs(change) >= _RESTART else abs(self._step) * _DECAY
        self._step = direction * size
        self.share = min(_MOST, max(_LEAST, self.share + self._step))
