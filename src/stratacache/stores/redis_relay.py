"""Single-flight across instances over Redis: a lease, and the leader's frames in a list.

Keys, all of the partition of the place: ``l:PLACE`` is the flight that leads, as long as its lease lasts; ``f:PLACE``
the flight whose frames can be read, which may have landed; ``r:FLIGHT`` its frames; ``w:FLIGHT`` exists once somebody
follows. A flight has a name of its own, so nobody takes one flight's frames for another's.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from stratacache.errors import StoreError
from stratacache.ports import Followed, Standing
from stratacache.stores.redis_nodes import Nodes, Script

_FRAMES_MS = 60_000  # that frames outlive the lease of a leader who died, for followers on their way
_LONGEST_LEASE_MS = 60_000  # for who has claimed nothing yet
_PAUSES = (0.01, 0.02, 0.04, 0.08, 0.1)  # seconds between a follower's looks: 0.25 in all
T = TypeVar("T")

_MOST_FLIGHTS = 8192  # known here; more are forgotten, the least recent first

# KEYS: l. ARGV: lease in ms. No lease lasts longer, whatever a clock that was set back or a foreign value makes of it.
_BOUND = """
local left = redis.call('PTTL', KEYS[1])
if left == -1 or left > tonumber(ARGV[1]) then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
"""

# KEYS: l, f. ARGV: lease in ms, flight, ms to keep f.
_CLAIM = Script(
    """
if redis.call('SET', KEYS[1], ARGV[2], 'NX', 'PX', ARGV[1]) then
  redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
  return 1
end
"""
    + _BOUND
    + "return 0"
)

# KEYS: l, f, r, w. ARGV: flight, lease in ms, ms to keep the others. Gives: held, wanted.
_RENEW = Script("""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {0, 0} end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[3])
for i = 3, 4 do redis.call('PEXPIRE', KEYS[i], ARGV[3]) end
return {1, redis.call('EXISTS', KEYS[4])}
""")

# KEYS: l, r. ARGV: flight, ms to keep r, frames said before, frames. When these are not all there, whether they never
# came or were evicted, what follows them would make a wrong answer: the flight ends for those who follow it.
_PUBLISH = Script("""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if redis.call('LLEN', KEYS[2]) ~= tonumber(ARGV[3]) then
  redis.call('DEL', KEYS[1], KEYS[2])
  return 0
end
for i = 4, #ARGV do redis.call('RPUSH', KEYS[2], ARGV[i]) end
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return 1
""")

# KEYS: l, f. ARGV: lease in ms. Gives: whether somebody leads, and the flight whose frames can be read, if any.
_NAMED = Script(
    _BOUND
    + """
local flight = redis.pcall('GET', KEYS[2])
return {redis.call('EXISTS', KEYS[1]), type(flight) == 'string' and flight}
"""
)

# KEYS: l, r, w. ARGV: lease in ms, flight, frames heard, ms to keep w. Gives: whether it leads, and the frames beyond.
_FOLLOW = Script(
    _BOUND
    + """
redis.call('SET', KEYS[3], '1', 'PX', ARGV[4])
if redis.call('LLEN', KEYS[2]) < tonumber(ARGV[3]) then return {0, {}} end
return {redis.pcall('GET', KEYS[1]) == ARGV[2] and 1 or 0, redis.call('LRANGE', KEYS[2], ARGV[3], -1)}
"""
)

# KEYS: l, f, r, w. ARGV: flight, ms to keep the frames.
_RELEASE = Script("""
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
if tonumber(ARGV[2]) > 0 then
  redis.call('PEXPIRE', KEYS[3], ARGV[2])
  if redis.call('GET', KEYS[2]) == ARGV[1] then redis.call('PEXPIRE', KEYS[2], ARGV[2]) end
else
  redis.call('DEL', KEYS[3])
  if redis.call('GET', KEYS[2]) == ARGV[1] then redis.call('DEL', KEYS[2]) end
end
return redis.call('DEL', KEYS[4])
""")


class _Lead(msgspec.Struct):
    """A flight that this instance leads; ``said`` frames of it were taken by the server."""

    flight: str
    said: int = 0


class RedisRelay:
    """A ``ports.Relay`` on Redis. What the server loses ends the flight for its followers, who then ask for themselves.

    Args:
        nodes: the store closes them.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._led: OrderedDict[bytes, _Lead] = OrderedDict()  # by place
        self._followed: OrderedDict[bytes, str] = OrderedDict()  # place → flight
        self._lease = 0  # ms; the longest that was claimed: all instances claim for equally long
        self._closed = asyncio.Event()

    async def claim(self, place: bytes, seconds: float) -> bool:
        self._require_open()
        flight, lease = secrets.token_hex(8), int(seconds * 1000)
        self._lease = max(self._lease, lease)
        part = self._nodes.partition_of(place)
        keys = self._keys(place, flight)[:2]
        if not await self._nodes.run(part, _CLAIM, keys, lease, flight, lease + _FRAMES_MS):
            return False
        _note(self._led, place, _Lead(flight))
        return True

    async def renew(self, place: bytes, seconds: float) -> Standing:
        self._require_open()
        lead = self._led.get(place)
        if lead is None:
            return Standing(held=False, wanted=False)
        part, lease = self._nodes.partition_of(place), int(seconds * 1000)
        held, wanted = await self._nodes.run(
            part, _RENEW, self._keys(place, lead.flight), lead.flight, lease, lease + _FRAMES_MS
        )
        return Standing(held=bool(held), wanted=bool(wanted))

    async def publish(self, place: bytes, frames: Sequence[bytes]) -> None:
        self._require_open()
        lead = self._led.get(place)
        if lead is None or not frames:
            return
        lease, _, list_key, _ = self._keys(place, lead.flight)
        part = self._nodes.partition_of(place)
        await self._nodes.run(part, _PUBLISH, [lease, list_key], lead.flight, _FRAMES_MS, lead.said, *frames)
        lead.said += len(frames)

    async def follow(self, place: bytes, heard: int) -> Followed:
        self._require_open()
        flight = self._followed.get(place) if heard else None
        if heard and flight is None:
            return Followed((), led=False)
        led = False
        frames: list[bytes] = []
        for pause in (*_PAUSES, 0.0):
            if flight is None:
                led, flight = await self._named(place)
            if flight is not None:
                led, frames = await self._look(place, flight, heard)
            if frames or not led or not pause:
                break
            await self._pause(pause)
        return Followed(tuple(frames), led=led)

    async def _named(self, place: bytes) -> tuple[bool, str | None]:
        """Whether somebody leads, and the flight to follow; a server that evicts may know the one without the other."""
        keys = self._keys(place, "")[:2]
        led, named = await self._nodes.run(self._nodes.partition_of(place), _NAMED, keys, self._longest())
        if named is None:
            return bool(led), None
        flight: str = named.decode("ascii", "replace")
        _note(self._followed, place, flight)
        return bool(led), flight

    async def _look(self, place: bytes, flight: str, heard: int) -> tuple[bool, list[bytes]]:
        """Whether ``flight`` leads, and its frames from number ``heard`` on."""
        lease, _, list_key, wanted = self._keys(place, flight)
        part = self._nodes.partition_of(place)
        keys = [lease, list_key, wanted]
        led, frames = await self._nodes.run(part, _FOLLOW, keys, self._longest(), flight, heard, _FRAMES_MS)
        return bool(led), frames

    def _longest(self) -> int:
        return self._lease or _LONGEST_LEASE_MS

    async def release(self, place: bytes, *, keep: float = 0.0) -> None:
        self._require_open()
        lead = self._led.pop(place, None)
        if lead is not None:
            part = self._nodes.partition_of(place)
            keys = self._keys(place, lead.flight)
            await self._nodes.run(part, _RELEASE, keys, lead.flight, int(keep * 1000))

    async def close(self) -> None:
        self._closed.set()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._closed.wait()
        except TimeoutError:
            return
        self._require_open()

    def _require_open(self) -> None:
        if self._closed.is_set():
            raise StoreError("the Redis relay is closed")

    def _keys(self, place: bytes, flight: str) -> list[str]:
        prefix, name = self._nodes.prefixes[self._nodes.partition_of(place)], place.hex()
        return [f"{prefix}l:{name}", f"{prefix}f:{name}", f"{prefix}r:{flight}", f"{prefix}w:{flight}"]


def _note(flights: OrderedDict[bytes, T], place: bytes, flight: T) -> None:
    flights[place] = flight
    flights.move_to_end(place)
    while len(flights) > _MOST_FLIGHTS:
        flights.popitem(last=False)
