"""News of invalidations over Redis, strict enough for copies: a lease, a log, and messages to make it quick.

An instance that keeps copies holds a lease of ``LEASE`` seconds. It renews it every ``BEAT``, and at every message, in
one step with reading the log of invalidations. An invalidation appends to the log and returns when every instance that
holds a lease has read on to it, or its lease has run out. So a copy that is served under a lease was not invalidated by
anything that has returned, whatever message was lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Sequence

import msgspec

from stratacache.errors import StoreError
from stratacache.stores.redis_nodes import Nodes, Script
from stratacache.stores.resp import Subscription
from stratacache.types import Invalidated, Version

log = logging.getLogger(__name__)

LEASE = 1.0  # seconds that an instance may serve copies without having asked
BEAT = 0.3  # seconds between two renewals
_LATEST = 2.0  # seconds until an invalidation gives up waiting for the others: more than any lease can last
_LOG_LENGTH = 4096  # invalidations; who has missed more starts afresh
_ID_BYTES = 16
_PAUSES = (
    0.001,
    0.001,
    0.002,
    0.004,
    0.008,
    0.016,
    0.03,
)  # seconds between looks at who has read on; the last repeats

# What the instances share stands in one hash: ``seq``, the number of the newest item of the log; ``run``, which run of
# which server keeps it, and ``born``, when that took over (ms); for each instance ``l:NAME``, the end of its lease
# (ms), and ``p:NAME``, the number that it has read on to. A server that was restarted, empty or from an old snapshot,
# or was a replica before, may have forgotten a lease: for as long as one lasts, invalidations wait.
# The HDEL is for a server that is full, which refuses a script whose first write needs memory.
_SHARED = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
redis.call('HDEL', KEYS[1], '')
if redis.call('HGET', KEYS[1], 'run') ~= run then
  redis.call('HSET', KEYS[1], 'run', run, 'born', now)
  redis.call('HSETNX', KEYS[1], 'seq', 0)
end
"""

# KEYS: hash, log. ARGV: instance, lease in ms, number last read, its id. Gives: the newest number and its id, whether
# what was missed is known, and what was missed.
_BEAT_SCRIPT = Script(
    _SHARED
    + """
local seq, last = tonumber(redis.call('HGET', KEYS[1], 'seq')), tonumber(ARGV[3])
local missed, length = seq - last, redis.call('LLEN', KEYS[2])
local known = missed >= 0 and missed <= length
if known and last > 0 then
  local item = redis.call('LINDEX', KEYS[2], -(missed + 1))
  known = item and string.sub(item, 1, 16) == ARGV[4]
end
local news = {}
if known and missed > 0 then news = redis.call('LRANGE', KEYS[2], -missed, -1) end
redis.call('HSET', KEYS[1], 'l:' .. ARGV[1], now + tonumber(ARGV[2]), 'p:' .. ARGV[1], last)
local newest = redis.call('LINDEX', KEYS[2], -1) or ''
return {seq, string.sub(newest, 1, 16), known and 1 or 0, news}
"""
)

# KEYS: hash, log. ARGV: the item, log length, channel. Gives its number.
_APPEND = Script(
    _SHARED
    + """
local seq = redis.call('HINCRBY', KEYS[1], 'seq', 1)
redis.call('RPUSH', KEYS[2], ARGV[1])
redis.call('LTRIM', KEYS[2], -tonumber(ARGV[2]), -1)
redis.call('PUBLISH', ARGV[3], seq)
return seq
"""
)

# KEYS: hash. ARGV: number, lease in ms. Gives how many instances may hold a lease and have not read on to it.
_BEHIND = Script(
    _SHARED
    + """
local behind = 0
if now < tonumber(redis.call('HGET', KEYS[1], 'born')) + tonumber(ARGV[2]) then behind = 1 end
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(field, 1, 2) == 'l:' then
    local position = 'p:' .. string.sub(field, 3)
    if tonumber(redis.call('HGET', KEYS[1], field)) <= now then
      redis.call('HDEL', KEYS[1], field, position)
    elseif tonumber(redis.call('HGET', KEYS[1], position)) < tonumber(ARGV[1]) then
      behind = behind + 1
    end
  end
end
return behind
"""
)


class _Item(msgspec.Struct, array_like=True, frozen=True):
    versions: tuple[Version, ...]
    digests: tuple[bytes, ...]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Item)


class RedisBulletin:
    """A ``ports.Bulletin``, and the announcer of the store that shares ``nodes``.

    Args:
        nodes: the store closes them.
        heard: also told of every invalidation: the store's own memory of versions.
    """

    def __init__(self, nodes: Nodes, heard: Callable[[tuple[Version, ...]], None]) -> None:
        self._nodes = nodes
        self._heard = heard
        self._hear: Callable[[Invalidated | None, Sequence[bytes]], None] | None = None
        self._name = secrets.token_hex(8)
        self._lease_ends = 0.0
        self._read, self._read_id = 0, b""
        self._wake = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None
        self._subscription: Subscription | None = None
        prefix = nodes.prefixes[0]
        self._shared, self._log = f"{prefix}instances", f"{prefix}log"
        self._channel = f"{prefix}news"

    def current(self) -> bool:
        return self._lease_ends > 0.0 and asyncio.get_running_loop().time() < self._lease_ends

    async def start(self, hear: Callable[[Invalidated | None, Sequence[bytes]], None]) -> None:
        self._hear = hear
        hear(None, ())  # what happened before is not known
        self._beating = asyncio.create_task(self._beat_on(), name="redis bulletin")

    async def close(self) -> None:
        self._lease_ends = 0.0
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
            self._beating = None
            with contextlib.suppress(StoreError, TimeoutError):
                async with asyncio.timeout(1):
                    await self._nodes.call(0, "HDEL", self._shared, f"l:{self._name}", f"p:{self._name}")
        if self._subscription is not None:
            self._subscription.close()

    async def announce(self, done: Invalidated, digests: Sequence[bytes]) -> None:
        """Append to the log, and wait for all who hold a lease."""
        item = secrets.token_bytes(_ID_BYTES) + _encoder.encode(_Item(done.versions, tuple(digests)))
        number = await self._nodes.run(
            0, _APPEND, [self._shared, self._log], item, _LOG_LENGTH, self._channel
        )
        self._wake.set()
        pauses = iter(_PAUSES)
        deadline = asyncio.get_running_loop().time() + _LATEST
        while await self._nodes.run(0, _BEHIND, [self._shared], number, int(LEASE * 1000)):
            if asyncio.get_running_loop().time() > deadline:
                raise StoreError("redis: not every instance is known to have heard of the invalidation")
            await asyncio.sleep(next(pauses, _PAUSES[-1]))

    async def _beat_on(self) -> None:
        while True:
            try:
                await self._listen()
                while await self._beat():
                    pass  # what was read is only confirmed by the next beat
            except StoreError as error:
                log.debug("no news of invalidations: %s", error)
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BEAT):
                    await self._wake.wait()

    async def _listen(self) -> None:
        if self._subscription is None or not self._subscription.alive:
            node = await self._nodes.node(0)
            self._subscription = await node.subscribe(self._channel, self._wake.set)

    async def _beat(self) -> bool:
        """Renew the lease and read on; True when something was read that the others wait for to be confirmed."""
        loop = asyncio.get_running_loop()
        sent = loop.time()
        number, number_id, known, news = await self._nodes.run(
            0,
            _BEAT_SCRIPT,
            [self._shared, self._log],
            self._name,
            int(LEASE * 1000),
            self._read,
            self._read_id,
        )
        assert self._hear is not None
        if not known:
            self._hear(None, ())
        for item in news:
            self._tell(item[_ID_BYTES:])
        moved = bool(news) or not known
        self._read, self._read_id = number, number_id
        self._lease_ends = sent + LEASE
        return moved

    def _tell(self, encoded: bytes) -> None:
        assert self._hear is not None
        try:
            item = _decoder.decode(encoded)
        except msgspec.MsgspecError:
            self._hear(None, ())  # written by another version of ours
            return
        self._heard(item.versions)
        self._hear(Invalidated(None, item.versions), item.digests)
