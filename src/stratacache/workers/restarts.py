"""When a process that ended is started again, and when that is given up."""

from __future__ import annotations

import msgspec


class Restarts(msgspec.Struct):
    """Decides for one process; all times in seconds.

    The first restart is at once, further ones wait ``first_wait``, doubling up to ``max_wait``. One that lived
    ``steady`` has its failures forgiven; after ``hopeless`` in a row it is given up.
    """

    first_wait: float = 0.5
    max_wait: float = 30.0
    steady: float = 10.0
    hopeless: int = 5
    failures: int = 0

    def ended(self, lived: float) -> float | None:
        """How long to wait before the next start, None to give up."""
        if lived >= self.steady:
            self.failures = 0
        self.failures += 1
        if self.failures >= self.hopeless:
            return None
        return 0.0 if self.failures == 1 else min(self.max_wait, self.first_wait * 2 ** (self.failures - 2))
