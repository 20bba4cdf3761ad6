"""A relay between instances in one process, whose every step a test can make fail or hang."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from stratacache.ports import Followed, Standing


class Place(msgspec.Struct):
    """One flight as the instances see it."""

    owner: object | None
    wanted: bool = False
    frames: list[bytes] = []


class SharedRelays:
    """What the relays of several instances share. ``kill`` is what time does to the lease of a dead leader."""

    def __init__(self) -> None:
        self.places: dict[bytes, Place] = {}
        self.changed = asyncio.Event()

    def kill(self) -> None:
        for place in self.places.values():
            place.owner = None
        self.change()

    def change(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


async def well(step: str) -> None:
    """No fault."""


class FakeRelay:
    """A ``ports.Relay``; ``fault`` is awaited before each step with its name."""

    def __init__(self, shared: SharedRelays) -> None:
        self.shared = shared
        self.fault: Callable[[str], Awaitable[None]] = well
        self._followed: dict[bytes, Place] = {}

    async def claim(self, place: bytes, seconds: float) -> bool:
        await self.fault("claim")
        known = self.shared.places.get(place)
        if known is not None and known.owner is not None:
            return False
        self.shared.places[place] = Place(self)
        return True

    async def renew(self, place: bytes, seconds: float) -> Standing:
        await self.fault("renew")
        known = self.shared.places.get(place)
        if known is None or known.owner is not self:
            return Standing(held=False, wanted=False)
        return Standing(held=True, wanted=known.wanted)

    async def publish(self, place: bytes, frames: Sequence[bytes]) -> None:
        await self.fault("publish")
        known = self.shared.places.get(place)
        if known is not None and known.owner is self:
            known.frames += frames
            self.shared.change()

    async def follow(self, place: bytes, heard: int) -> Followed:
        await self.fault("follow")
        if heard == 0 and place in self.shared.places:
            self._followed[place] = self.shared.places[place]
        known = self._followed.get(place)
        if known is None or (heard == 0 and place not in self.shared.places):
            return Followed([], led=False)
        known.wanted = True
        if len(known.frames) <= heard and known.owner is not None:
            try:
                async with asyncio.timeout(0.02):
                    await self.shared.changed.wait()
            except TimeoutError:
                pass
        return Followed(known.frames[heard:], led=known.owner is not None)

    async def release(self, place: bytes, *, keep: float = 0.0) -> None:
        await self.fault("release")
        known = self.shared.places.get(place)
        if known is not None and known.owner is self:
            known.owner = None
            if not keep:
                del self.shared.places[place]
            self.shared.change()

    async def close(self) -> None:
        """Nothing to release."""
