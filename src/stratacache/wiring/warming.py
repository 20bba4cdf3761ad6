"""Whether the semantic tier's models are still being loaded: for readiness, which waits for them, but not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal

from stratacache.errors import ModelError
from stratacache.ports import Clock

LIMIT = 60.0  # seconds; then requests come, and pass the tier over with `model_loading`

State = Literal["loading", "ready", "failed"]


class Warming:
    """Follows one loading.

    Args:
        ready: returns when all is loaded; raises ModelError, which is told by who loads.
    """

    def __init__(self, ready: Callable[[], Awaitable[None]], clock: Clock, *, limit: float = LIMIT) -> None:
        self._ready = ready
        self._clock = clock
        self._limit = limit
        self._until = 0.0
        self._task: asyncio.Task[None] | None = None
        self.state: State = "loading"

    @property
    def pending(self) -> bool:
        """Whether it is worth waiting for."""
        return self.state == "loading" and self._clock.monotonic() < self._until

    def start(self) -> None:
        """After the loading has begun, in the event loop."""
        self._until = self._clock.monotonic() + self._limit
        self._task = asyncio.create_task(self._follow(), name="semantic models")

    async def close(self) -> None:
        """Wait no more. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self) -> None:
        try:
            await self._ready()
        except ModelError:
            self.state = "failed"
        else:
            self.state = "ready"
