"""When to stop asking a dependency that fails, and when to try it again; pure: the caller says what time it is."""

from __future__ import annotations

from typing import Literal

BreakerState = Literal["closed", "half_open", "open"]

FAILURES = 5  # in a row, before the breaker opens
FIRST_PAUSE = 0.5  # seconds; doubles with every failed trial
LONGEST_PAUSE = 15.0


class Breaker:
    """A circuit breaker: closed, then open for a pause after ``FAILURES`` failures in a row, then one trial.

    Times are monotonic seconds.
    """

    def __init__(self) -> None:
        self._failures = 0
        self._pause = FIRST_PAUSE
        self._open_until: float | None = None
        self._trial_until = 0.0

    def allows(self, now: float) -> bool:
        """Whether to ask. After the pause one caller may try; when no word comes of it, another one a pause later."""
        if self._open_until is None:
            return True
        if now < self._open_until or now < self._trial_until:
            return False
        self._trial_until = now + self._pause
        return True

    def succeeded(self) -> bool:
        """Note a success; True when it closed the breaker."""
        was_open = self._open_until is not None
        self._failures = 0
        if was_open:
            self._pause = FIRST_PAUSE
            self._open_until = None
            self._trial_until = 0.0
        return was_open

    def failed(self, now: float) -> bool:
        """Note a failure; True when it opened the breaker, after it had been closed."""
        self._failures += 1
        was_closed = self._open_until is None
        if self._open_until is not None:
            if now < self._open_until:
                return False  # a call that began before it opened
            self._pause = min(LONGEST_PAUSE, self._pause * 2)
        elif self._failures < FAILURES:
            return False
        self._open_until = now + self._pause
        self._trial_until = 0.0
        return was_closed

    def trip(self, now: float) -> bool:
        """Note a failure that leaves no doubt, such as a refused connection; True when it opened the breaker."""
        self._failures = max(self._failures, FAILURES - 1)
        return self.failed(now)

    def state(self, now: float) -> BreakerState:
        if self._open_until is None:
            return "closed"
        return "open" if now < self._open_until else "half_open"
