"""The machine's clock, for production; tests inject ``tests.clock.FakeClock``."""

from __future__ import annotations

import time


class SystemClock:
    """A ``ports.Clock`` over the operating system's clocks, without a call in between: hits ask it five times."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
