"""Group commit: writes that wait at the same time share one transaction."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from stratacache.errors import StoreError

Item = TypeVar("Item")
Result = TypeVar("Result")

_DEPTH = 1024  # items that wait; more means that the disk cannot follow


class GroupCommit(Generic[Item, Result]):
    """Collects items while a write is under way, and hands them on together.

    Args:
        write: takes a group and returns, in order, what became of each item; an exception among the results is raised
            for that item alone, one that ``write`` raises for the whole group.
        weigh: the weight of an item.
        most: bounds of a group, in items and in weight; a heavier item goes alone.
    """

    def __init__(
        self,
        write: Callable[[Sequence[Item]], Awaitable[Sequence[Result | Exception]]],
        weigh: Callable[[Item], int],
        most: tuple[int, int],
    ) -> None:
        self._write = write
        self._weigh = weigh
        self._most_items, self._most_weight = most
        self._waiting: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def run(self, item: Item) -> Result:
        """What became of ``item``. Cancelling drops one that waits; a write that has begun completes.

        Raises:
            StoreError: too many are waiting.
        """
        if len(self._waiting) >= _DEPTH:
            raise StoreError(f"{_DEPTH} writes are waiting already")
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._task is None:
            self._task = asyncio.create_task(self._drain())
        return await future

    async def settled(self) -> None:
        """Return when nothing waits."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _drain(self) -> None:
        try:
            while group := self._next_group():
                await self._settle(group)
        finally:
            self._task = None

    def _next_group(self) -> list[tuple[Item, asyncio.Future[Result]]]:
        group: list[tuple[Item, asyncio.Future[Result]]] = []
        weight = 0
        while self._waiting and len(group) < self._most_items:
            item, future = self._waiting[0]
            weight += self._weigh(item)
            if group and weight > self._most_weight:
                break
            self._waiting.popleft()
            if not future.done():  # its caller gave up
                group.append((item, future))
        return group

    async def _settle(self, group: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        try:
            results = await self._outcome([item for item, _ in group])
            for (_, future), result in zip(group, results, strict=True):
                if future.done():
                    continue
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)
        finally:
            for _, future in group:
                if not future.done():  # after a failure that nobody foresaw: nobody may wait for ever
                    future.set_exception(StoreError("the write was broken off"))

    async def _outcome(self, items: Sequence[Item]) -> Sequence[Result | Exception]:
        try:
            return await self._write(items)
        except StoreError as error:
            return [error] * len(items)
