"""A clock that tests move by hand."""

from __future__ import annotations


class FakeClock:
    """A ``ports.Clock``: wall and monotonic time stand still until a test moves them."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self._now = now
        self._monotonic = 0.0

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` (>= 0) pass on both clocks."""
        if seconds < 0:
            raise ValueError("time does not go back; use jump() for a wall clock that is set")
        self._now += seconds
        self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock by ``seconds``, either way, as NTP would; monotonic time stays."""
        self._now += seconds
