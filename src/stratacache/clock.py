"""The machine's clock, for production; tests inject ``tests.clock.FakeClock``."""

from __future__ import annotations

import time


class SystemClock:
    """A ``ports.Clock`` over the operating system's clocks."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()
