"""Single-flight across the processes of one machine: leases and frames in a small SQLite file.

Times are of the wall clock, which those processes share. A lease holds from when it was granted until it expires; with
the clock set back to before that it is free, so a dead leader keeps a place for twice its lease at most.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from stratacache.errors import StoreError
from stratacache.ports import Clock, Followed, Standing
from stratacache.stores import sqlite_flights as flights
from stratacache.stores.sqlite_lanes import Lanes

_POLLS = 12  # looks of a follower for news ...
_PAUSE = 0.02  # ... with so many seconds between: 0.24 s in all
_MOST_PLACES = 4096  # flights remembered, led and followed


class SQLiteRelay:
    """A ``ports.Relay`` in a SQLite file of its own. Safe with several processes; what is in it may be lost.

    Args:
        path: the file; its folder is made.
        busy_seconds: how long a write waits for another process before StoreError.
    """

    def __init__(self, path: Path, clock: Clock, *, busy_seconds: float = 2.0) -> None:
        self._clock = clock
        self._lanes = Lanes("sqlite-relay", path, flights.LAYOUT, busy_seconds, clock.now)
        self._led: OrderedDict[bytes, int] = OrderedDict()
        self._followed: OrderedDict[bytes, int] = OrderedDict()
        self._closed = False

    async def claim(self, place: bytes, seconds: float) -> bool:
        self._require_open()
        flight = await self._lanes.write(flights.claim, place, seconds, self._clock.now())
        if flight is None:
            return False
        _note(self._led, place, flight)
        return True

    async def renew(self, place: bytes, seconds: float) -> Standing:
        self._require_open()
        flight = self._led.get(place)
        if flight is None:
            return Standing(held=False, wanted=False)
        standing = await self._lanes.write(flights.renew, place, flight, seconds, self._clock.now())
        if not standing.held:
            self._led.pop(place, None)
        return standing

    async def publish(self, place: bytes, frames: Sequence[bytes]) -> None:
        self._require_open()
        flight = self._led.get(place)
        if flight is not None and frames:
            await self._lanes.write(flights.publish, place, flight, frames, self._clock.now())

    async def follow(self, place: bytes, heard: int) -> Followed:
        """As ``ports.Relay``. Who has heard something hears no other flight's frames, even if the place is led anew."""
        self._require_open()
        if heard == 0:
            latest = await self._lanes.read(flights.latest, place, self._clock.now())
            if latest is None:
                return Followed((), led=False)
            _note(self._followed, place, latest)
        flight = self._followed.get(place)
        if flight is None:
            return Followed((), led=False)
        for poll in range(_POLLS):
            self._require_open()
            look = await self._lanes.read(flights.look, flight, heard, self._clock.now())
            if look.frames or not look.led:
                return Followed(look.frames, look.led)
            if poll == 0 and not look.wanted:
                await self._lanes.write(flights.want, flight)
            await asyncio.sleep(_PAUSE)
        return Followed((), led=True)

    async def release(self, place: bytes, *, keep: float = 0.0) -> None:
        self._require_open()
        flight = self._led.pop(place, None)
        if flight is not None:
            await self._lanes.write(flights.release, flight, keep, self._clock.now())

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._lanes.close()

    def _require_open(self) -> None:
        if self._closed:
            raise StoreError("the SQLite relay is closed")


def _note(known: OrderedDict[bytes, int], place: bytes, flight: int) -> None:
    """Remember the latest; who is forgotten counts as dead for its followers, or as superseded."""
    known[place] = flight
    known.move_to_end(place)
    if len(known) > _MOST_PLACES:
        known.popitem(last=False)
