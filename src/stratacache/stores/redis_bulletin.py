"""News of invalidations over Redis, strict enough for copies: a lease, a log, and messages to make it quick.

An instance that keeps copies holds a lease of ``LEASE`` seconds. It renews it every ``BEAT``, and at every message, in
one step with reading the log of invalidations. An invalidation appends to the log and returns when every instance that
holds a lease has read on to it, or a lease's time has passed. So a copy that is served under a lease was not
invalidated by anything that has returned, whatever message was lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
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
_LOG_LENGTH = 4096  # invalidations; who has missed more starts afresh
_ID_BYTES = 16
_PAUSES = (0.001, 0.001, 0.002, 0.004, 0.008, 0.016, 0.03)  # seconds between looks; the last repeats

# What the instances share stands in one hash: ``seq``, the number of the newest item of the log, whose items have ids
# so that no log is taken for another; for each instance ``b:NAME``, how often it has beaten, and ``p:NAME``, the number
# that it has read on to; and ``run``, the run of the server that is known to have forgotten no lease. One that was
# restarted, empty or from an old snapshot, or was a replica before, or has evicted the hash, may have forgotten some.
#
# Nothing here goes by the server's clock, which may be set: a lease is over when LEASE has passed on the clock of who
# waits for it.
_RUN = """
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
"""

# A server that is full refuses a script whose first write needs memory, so the first one removes.
_SHARED = (
    _RUN
    + """
redis.call('HDEL', KEYS[1], '')
if redis.call('HGET', KEYS[1], 'run') ~= run then redis.call('HDEL', KEYS[1], 'run') end
"""
)

# KEYS: hash, log. ARGV: instance, how often it has beaten, number last read, its id, an id for a gap, the run that it
# has known for a lease's time. Gives: the newest number and its id, whether what was missed is known, what was missed,
# the run. Where the log is lost a gap is noted instead, so that those who come after it know each other's place.
_BEAT_SCRIPT = Script(
    _SHARED
    + """
if ARGV[6] == run then redis.call('HSET', KEYS[1], 'run', run) end
local last, length = tonumber(ARGV[3]), redis.call('LLEN', KEYS[2])
if length == 0 then
  redis.call('HINCRBY', KEYS[1], 'seq', 1)
  length = redis.call('RPUSH', KEYS[2], ARGV[5])
end
local seq = tonumber(redis.call('HGET', KEYS[1], 'seq') or '0')
local missed = seq - last
local known = missed >= 0 and missed <= length
if known and last > 0 then
  local item = redis.call('LINDEX', KEYS[2], -(missed + 1))
  known = item and string.sub(item, 1, 16) == ARGV[4]
end
local news = {}
if known and missed > 0 then news = redis.call('LRANGE', KEYS[2], -missed, -1) end
redis.call('HSET', KEYS[1], 'b:' .. ARGV[1], ARGV[2], 'p:' .. ARGV[1], known and last or 0)
local newest = redis.call('LINDEX', KEYS[2], -1)
return {seq, string.sub(newest, 1, 16), known and 1 or 0, news, run}
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

# KEYS: hash, log. ARGV: number, id. Gives: whether the item is still there, the run, whether that has forgotten no
# lease, and of those who have not read on to the item: instance, how often it has beaten, and so on.
_BEHIND = Script(
    _RUN
    + """
local seq, number = tonumber(redis.call('HGET', KEYS[1], 'seq') or '0'), tonumber(ARGV[1])
local item = redis.call('LINDEX', KEYS[2], number - seq - 1)
local there = item and string.sub(item, 1, 16) == ARGV[2]
local behind = {}
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(field, 1, 2) == 'b:' then
    local name = string.sub(field, 3)
    if tonumber(redis.call('HGET', KEYS[1], 'p:' .. name) or '0') < number then
      behind[#behind + 1] = name
      behind[#behind + 1] = redis.call('HGET', KEYS[1], field)
    end
  end
end
return {there and 1 or 0, run, redis.call('HGET', KEYS[1], 'run') == run and 1 or 0, behind}
"""
)

# KEYS: hash. ARGV: a run whose forgotten leases are over; instances whose leases are over, unless they have beaten
# again: name, how often it had beaten, and so on.
_FORGET = Script(
    _SHARED
    + """
for i = 2, #ARGV, 2 do
  if redis.call('HGET', KEYS[1], 'b:' .. ARGV[i]) == ARGV[i + 1] then
    redis.call('HDEL', KEYS[1], 'b:' .. ARGV[i], 'p:' .. ARGV[i])
  end
end
if ARGV[1] == run then redis.call('HSET', KEYS[1], 'run', run) end
return 1
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
        self._beats = 0
        self._run, self._run_since = b"", 0.0
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
                    await self._nodes.call(0, "HDEL", self._shared, f"b:{self._name}", f"p:{self._name}")
        if self._subscription is not None:
            self._subscription.close()

    async def announce(self, done: Invalidated, digests: Sequence[bytes]) -> None:
        """Append to the log, and wait for all who hold a lease: at most for as long as one lasts."""
        item_id = secrets.token_bytes(_ID_BYTES)
        item = item_id + _encoder.encode(_Item(done.versions, tuple(digests)))
        keys = [self._shared, self._log]
        number = await self._nodes.run(0, _APPEND, keys, item, _LOG_LENGTH, self._channel)
        self._wake.set()
        loop = asyncio.get_running_loop()
        late: Sequence[bytes] | None = None
        ended = math.inf
        pauses = itertools.chain(_PAUSES, itertools.repeat(_PAUSES[-1]))
        while True:
            there, run, remembers, behind = await self._nodes.run(0, _BEHIND, keys, number, item_id)
            if not there:  # a failover, most likely: others may read on past it
                raise StoreError("redis: the news of the invalidation were lost; repeat it")
            if remembers and not behind:
                return
            if late is None:
                late, ended = behind, loop.time() + LEASE
            elif loop.time() >= ended:
                # Whoever has beaten since the item was appended got it with the answer, before the lease.
                await self._nodes.run(0, _FORGET, keys[:1], run, *late)
                return
            await asyncio.sleep(min(next(pauses), max(0.0, ended - loop.time())))

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
        self._beats += 1
        number, number_id, known, news, run = await self._nodes.run(
            0,
            _BEAT_SCRIPT,
            [self._shared, self._log],
            self._name,
            self._beats,
            self._read,
            self._read_id,
            secrets.token_bytes(_ID_BYTES),
            self._run if sent > self._run_since + LEASE else b"",
        )
        assert self._hear is not None
        if not known:
            self._hear(None, ())
        for item in news:
            self._tell(item[_ID_BYTES:])
        if run != self._run:
            self._run, self._run_since = run, loop.time()
        self._read, self._read_id = number, number_id
        self._lease_ends = sent + LEASE
        return bool(news) or not known

    def _tell(self, encoded: bytes) -> None:
        assert self._hear is not None
        try:
            item = _decoder.decode(encoded)
        except msgspec.MsgspecError:
            self._hear(None, ())  # a gap, or written by another version of ours
            return
        self._heard(item.versions)
        self._hear(Invalidated(None, item.versions), item.digests)
