"""Fetches hot entries anew shortly before they expire, so that nobody waits when they do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from stratacache.errors import UpstreamError
from stratacache.pipeline.flight import Flight, FlightTable
from stratacache.pipeline.plan import Plan
from stratacache.policy.ttl import refresh_due
from stratacache.ports import Clock, Recorder
from stratacache.types import Entry, Hit, Key, Request

MAX_REFRESHES = 32  # under way at once; early refresh must not become a load of its own


class Refresher:
    """Draws lots at every hit (``policy.ttl.refresh_due``) and lets the winner's request fly with nobody waiting.

    Args:
        fly: makes the call for a flight.
        draw: uniform draws from [0, 1).
    """

    def __init__(
        self,
        fly: Callable[[Request, Plan, Flight], Awaitable[None]],
        flights: FlightTable,
        recorder: Recorder,
        clock: Clock,
        draw: Callable[[], float],
    ) -> None:
        self._fly = fly
        self._flights = flights
        self._recorder = recorder
        self._clock = clock
        self._draw = draw
        self._under_way: dict[bytes, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    def consider(self, request: Request, key: Key, plan: Plan, hit: Hit) -> None:
        """Start a refresh of what has just answered ``request``, if it is due.

        Not for a caller whose answer would not be stored, or who wants no call to be made.
        """
        if plan.only_if_cached or not plan.store:
            return
        entry = hit.entry
        remaining = entry.expires_at - self._clock.now()
        if entry.negative or not refresh_due(remaining, entry.seconds, plan.early_refresh, self._draw()):
            return
        if key.digest in self._under_way or len(self._under_way) >= MAX_REFRESHES:
            return
        # Another instance's refresh will do, the entry that is to be renewed will not.
        renewal = msgspec.structs.replace(plan, max_age=hit.age / 2)
        run = partial(self._fly, request, renewal)
        task = asyncio.create_task(self._refresh(request, key, entry, run), name="refresh")
        self._under_way[key.digest] = task
        task.add_done_callback(lambda _: self._under_way.pop(key.digest, None))

    async def close(self) -> None:
        """Give up what is under way."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _refresh(
        self, request: Request, key: Key, entry: Entry, run: Callable[[Flight], Awaitable[None]]
    ) -> None:
        self._recorder.counted("refresh")
        # A hit carries the snapshot too: its versions were current a moment ago.
        seat = self._flights.board(key, entry.versions, request.body, run, share=True)
        try:
            with contextlib.suppress(UpstreamError):
                await seat.flight.wait_landing()
        finally:
            seat.leave()
