"""Loads a model in the pool beside the event loop; until it is there, and when it cannot be, one clear error."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from stratacache.errors import ModelError
from stratacache.models.pool import Pool

log = logging.getLogger(__name__)
T = TypeVar("T")


class Loading(Generic[T]):
    """A model that is loaded once, in a thread of ``pool``. A failure is final: what is on disk does not mend itself.

    Args:
        name: of the model, for messages.
        load: returns the model or raises ModelError that says what to do.
    """

    def __init__(self, name: str, pool: Pool, load: Callable[[], T]) -> None:
        self._name = name
        self._pool = pool
        self._load = load
        self._task: asyncio.Task[T] | None = None

    def start(self) -> None:
        """Begin, unless it has begun. Returns at once."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(self._loaded)

    async def ready(self) -> T:
        """The model, once it is loaded. Raises ModelError when it cannot be."""
        self.start()
        assert self._task is not None
        return await asyncio.shield(self._task)

    def get(self) -> T:
        """The model. Raises ModelError when it cannot be loaded, and ``model_loading`` while it is not."""
        self.start()
        assert self._task is not None
        if not self._task.done():
            raise ModelError(f"{self._name} is being loaded", code="model_loading")
        if self._task.cancelled():
            raise ModelError(f"{self._name} is closed", code="overloaded")
        return self._task.result()

    async def close(self) -> None:
        """Drop a load that has not begun. Idempotent."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> T:
        return await self._pool.run(self._load, budget=None)

    def _loaded(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s cannot be loaded; the semantic tier is passed over: %s", self._name, error)
