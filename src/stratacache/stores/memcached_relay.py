"""Single-flight across instances over Memcached: a lease, and the leader's frames under numbered keys.

Keys, all on the home server of the place, so that commands sent together are carried out in order:

- ``l:PLACE`` says which flight leads; ``-FLIGHT`` once it has landed and its frames are kept for a while
- ``h:FLIGHT`` the number of frames published, written after the frames
- ``f:FLIGHT:N:I`` part I of frame N; part 0 begins with the number of parts
- ``w:FLIGHT`` exists when somebody follows

A flight has a random name, so what an earlier flight left behind, or a leader that lost its lease still writes, is
read by nobody.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import math
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from struct import Struct
from typing import TypeVar

from stratacache.errors import StoreError
from stratacache.ports import Followed, Standing
from stratacache.stores import memcached_wire as wire
from stratacache.stores.memcached_ring import Ring

_PART_BYTES = 512 << 10  # the server's items hold 1 MB as they come, with key and head
_MOST_FRAMES = 64  # given by one follow
_FRAME_SECONDS = 900  # that frames live if their leader dies; a release shortens it
_WANTED_SECONDS = 3  # a follower says so again every quarter second
_POLLS, _PAUSE = 10, 0.025  # of a follower that waits: 0.25 s
_MOST_FLIGHTS = 8192  # known here; more are forgotten, the least recent first
_BATCH = 512  # commands sent at once
_PARTS = Struct("<H")

T = TypeVar("T")


class _Flight:
    """One that this instance leads."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.parts: list[int] = []  # of each frame published


class MemcachedRelay:
    """A ``ports.Relay`` on Memcached servers.

    The server counts whole seconds: a lease lasts up to two seconds longer than asked, never less. Leases and frames
    that the server loses (restart, eviction) end the flight for its followers, who then ask the upstream themselves.

    Args:
        ring: the servers; the store that they belong to closes them.
        prefix: of all keys.
    """

    def __init__(self, ring: Ring, *, prefix: str) -> None:
        self._ring = ring
        self._prefix = prefix.encode()
        self._led: OrderedDict[bytes, _Flight] = OrderedDict()
        self._followed: OrderedDict[bytes, bytes] = OrderedDict()  # place → flight
        self._closed = False

    async def claim(self, place: bytes, seconds: float) -> bool:
        lease, flight = self._lease(place), secrets.token_hex(8).encode()
        added, got = await self._call(
            place, wire.store(b"add", lease, flight, _whole(seconds)), wire.get([lease])
        )
        held = got.items.get(lease)
        if added.line != b"STORED" and held is not None and held.value.startswith(b"-"):
            # The frames of a flight that landed are still there.
            (added,) = await self._call(
                place, wire.store(b"cas", lease, flight, _whole(seconds), held.unique)
            )
        if added.line == b"STORED":
            _note(self._led, place, _Flight(flight))
            return True
        if held is not None:
            _note(self._followed, place, held.value.lstrip(b"-"))
        return False

    async def renew(self, place: bytes, seconds: float) -> Standing:
        flight = self._led.get(place)
        if flight is None:
            return Standing(held=False, wanted=False)
        lease, wanted = self._lease(place), self._key(b"w", flight.name)
        (got,) = await self._call(place, wire.get([lease, wanted]))
        held = await self._replace(place, got.items.get(lease), flight, flight.name, _whole(seconds))
        if not held:
            self._led.pop(place, None)
        return Standing(held=held, wanted=wanted in got.items)

    async def publish(self, place: bytes, frames: Sequence[bytes]) -> None:
        flight = self._led.get(place)
        if flight is None or not frames:
            return
        commands: list[bytes] = []
        for frame in frames:
            parts = _split(frame)
            number = len(flight.parts)
            flight.parts.append(len(parts))
            commands += [
                wire.store(b"set", self._part(flight.name, number, index), part, _FRAME_SECONDS)
                for index, part in enumerate(parts)
            ]
        count = b"%d" % len(flight.parts)
        commands.append(wire.store(b"set", self._key(b"h", flight.name), count, _FRAME_SECONDS))
        await self._call(place, *commands)

    async def follow(self, place: bytes, heard: int) -> Followed:
        for poll in range(_POLLS):
            followed = await self._look(place, heard, first=poll == 0)
            if followed.frames or not followed.led:
                return followed
            await asyncio.sleep(_PAUSE)
        return Followed((), led=True)

    async def release(self, place: bytes, *, keep: float = 0.0) -> None:
        flight = self._led.pop(place, None)
        if flight is None:
            return
        lease = self._lease(place)
        (got,) = await self._call(place, wire.get([lease]))
        seconds = _whole(keep) if keep > 0 else -1
        await self._replace(place, got.items.get(lease), flight, b"-" + flight.name, seconds)
        if flight.parts:
            await self._call(place, *[wire.touch(key, seconds) for key in self._keys_of(flight)])

    async def close(self) -> None:
        self._closed = True

    async def _look(self, place: bytes, heard: int, *, first: bool) -> Followed:
        """What there is for a follower now; with the ``first`` look of a call it says that the flight is wanted."""
        flight = self._followed.get(place)
        held, count = await self._ask(place, flight, wanted=first)
        if heard == 0 and held is not None and held.lstrip(b"-") != flight:
            flight = held.lstrip(b"-")
            _note(self._followed, place, flight)
            held, count = await self._ask(place, flight, wanted=first)
        if flight is None or count <= heard:
            return Followed((), led=flight is not None and held == flight)
        frames = await self._read(place, flight, range(heard, min(count, heard + _MOST_FRAMES)))
        return Followed(frames, led=held == flight)

    async def _ask(self, place: bytes, flight: bytes | None, *, wanted: bool) -> tuple[bytes | None, int]:
        """What the lease says, and the number of ``flight``'s frames, read after it: if it landed, that is all."""
        lease = self._lease(place)
        if flight is None:
            (got,) = await self._call(place, wire.get([lease]))
            return _value(got, lease), 0
        total = self._key(b"h", flight)
        commands = [wire.get([lease, total])]
        if wanted:
            commands.append(wire.store(b"set", self._key(b"w", flight), b"", _WANTED_SECONDS))
        got, *_ = await self._call(place, *commands)
        count = _value(got, total) or b""
        return _value(got, lease), int(count) if count.isdigit() else 0

    async def _read(self, place: bytes, flight: bytes, numbers: Sequence[int]) -> list[bytes]:
        """The frames with these numbers.

        Raises:
            StoreError: one is lost.
        """
        keys = [self._part(flight, number, 0) for number in numbers]
        heads = _all_of(await self._call(place, wire.get(keys)), keys)
        counts = [_PARTS.unpack_from(head)[0] for head in heads]
        rest = [
            self._part(flight, number, index)
            for number, count in zip(numbers, counts, strict=True)
            for index in range(1, count)
        ]
        parts = iter(_all_of(await self._call(place, wire.get(rest)), rest) if rest else [])
        return [
            b"".join((head[_PARTS.size :], *itertools.islice(parts, count - 1)))
            for head, count in zip(heads, counts, strict=True)
        ]

    async def _replace(
        self, place: bytes, held: wire.Item | None, flight: _Flight, value: bytes, seconds: int
    ) -> bool:
        """Write the lease if ``held``, just read, is ``flight``'s and nobody wrote it since; whether that was so."""
        if held is None or held.value != flight.name:
            return False
        command = wire.store(b"cas", self._lease(place), value, seconds, held.unique)
        (replaced,) = await self._call(place, command)
        return replaced.line == b"STORED"

    async def _call(self, place: bytes, *commands: bytes) -> list[wire.Reply]:
        replies: list[wire.Reply] = []
        for batch in range(0, len(commands), _BATCH):
            if self._closed:
                raise StoreError("the Memcached relay is closed")
            server = self._ring.home(self._lease(place))
            replies += await server.call(*commands[batch : batch + _BATCH])
        return replies

    def _lease(self, place: bytes) -> bytes:
        return self._key(b"l", hashlib.sha256(place).hexdigest()[:32].encode())

    def _key(self, kind: bytes, name: bytes) -> bytes:
        return b"%b:%b:%b" % (self._prefix, kind, name)

    def _part(self, flight: bytes, number: int, index: int) -> bytes:
        return self._key(b"f", b"%b:%d:%d" % (flight, number, index))

    def _keys_of(self, flight: _Flight) -> list[bytes]:
        return [
            self._key(b"h", flight.name),
            *(self._part(flight.name, n, i) for n, count in enumerate(flight.parts) for i in range(count)),
        ]


def _split(frame: bytes) -> list[bytes]:
    """``frame`` in values that fit, the first with the number of them."""
    parts = [frame[at : at + _PART_BYTES] for at in range(0, len(frame), _PART_BYTES)] or [b""]
    return [_PARTS.pack(len(parts)) + parts[0], *parts[1:]]


def _all_of(replies: Sequence[wire.Reply], keys: Sequence[bytes]) -> list[bytes]:
    values = [_value(replies[0], key) for key in keys]
    found = [value for value in values if value is not None]
    if len(found) != len(keys):
        raise StoreError("memcached: frames of another instance's call were lost")
    return found


def _value(reply: wire.Reply, key: bytes) -> bytes | None:
    item = reply.items.get(key)
    return None if item is None else item.value


def _whole(seconds: float) -> int:
    """Seconds as the server counts them, whose clock ticks once a second: one more than asked for."""
    return math.ceil(seconds) + 1


def _note(known: OrderedDict[bytes, T], place: bytes, what: T) -> None:
    known[place] = what
    known.move_to_end(place)
    if len(known) > _MOST_FLIGHTS:
        known.popitem(last=False)
