"""The question log on Redis: one stream for all instances.

Its ids count the records (``EPOCH-1``, ``EPOCH-2``, …), where EPOCH is the server's time when the stream was begun, and
each record has a random mark. A position names a record by id and mark: when that is not there any more, whether it was
trimmed, the server lost the stream, or a failover or an old snapshot put another record in its place, a reader cannot
know what it missed, and is told so.

On a cluster the stream lives on one server.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from collections.abc import Container, Iterator, Sequence

from stratacache.errors import LogGap, StoreError
from stratacache.ports import Clock, LogRecord
from stratacache.stores.log_records import KEPT, KEPT_BYTES, Row, Sieve, decode, encode_alive, removal
from stratacache.stores.redis_nodes import Nodes, Script
from stratacache.stores.resp import Subscription

_TRIM = 64  # dropped per append, beside as many as come: the backlog shrinks
_POSITION = re.compile(rb"\d+-\d+:[0-9a-f]+")
_PAGE = 500  # records read or deleted at a time
_MOST_BYTES = 4 << 20  # of one append: the server is busy for as long as it takes to copy it

# KEYS: the stream. ARGV: its bounds in records and bytes, seconds since the epoch, how many to drop at most, channel,
# and of each record: mark, expiry in seconds, content. Fields: m, e, u (bytes appended up to it), d.
# Trimming is approximate: the server drops whole nodes of its stream only. The latest record always stays.
_APPEND = Script("""
local key, most, most_bytes, now = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if redis.call('TYPE', key).ok ~= 'stream' then redis.call('DEL', key) end
local latest = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
local epoch, number, upto
if latest then
  local ms, seq = string.match(latest[1], '^(%d+)-(%d+)$')
  epoch, number, upto = ms, tonumber(seq), tonumber(latest[2][6]) or 0
else
  redis.call('DEL', key)
  local time = redis.call('TIME')
  epoch, number, upto = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)), 0, 0
end
for i = 6, #ARGV, 3 do
  number, upto = number + 1, upto + #ARGV[i + 2]
  local id = epoch .. '-' .. string.format('%.0f', number)
  redis.call('XADD', key, id, 'm', ARGV[i], 'e', ARGV[i + 1], 'u', string.format('%.0f', upto), 'd', ARGV[i + 2])
end
local oldest = redis.call('XRANGE', key, '-', '+', 'COUNT', ARGV[4])
local keep
for i = 1, #oldest do
  local fields = oldest[i][2]
  keep = oldest[i][1]
  local its = tonumber(string.match(keep, '-(%d+)$'))
  local dead = its <= number - most or (tonumber(fields[6]) or 0) <= upto - most_bytes
  if not dead and (tonumber(fields[4]) or 0) > now then break end
end
if keep then redis.call('XTRIM', key, 'MINID', '~', keep) end
redis.call('PUBLISH', ARGV[5], number)
return number
""")

# KEYS: the stream. ARGV: how many; then the id and the mark of the record to read on from, if any. Gives: whether that
# is there, and the records.
_READ = Script("""
local key = KEYS[1]
if redis.call('TYPE', key).ok ~= 'stream' then return {#ARGV == 1 and 1 or 0, {}} end
local first = '-'
if #ARGV > 1 then
  local last = redis.call('XRANGE', key, ARGV[2], ARGV[2])[1]
  if not last or last[2][2] ~= ARGV[3] then return {0, {}} end
  first = '(' .. ARGV[2]
end
return {1, redis.call('XRANGE', key, first, '+', 'COUNT', ARGV[1])}
""")


class RedisQuestionLog:
    """A ``ports.QuestionLog`` on Redis.

    Args:
        nodes: the store closes them.
        clock: wall time judges expiry.
        most: bounds, in records and in bytes; the same in every instance.
    """

    def __init__(self, nodes: Nodes, clock: Clock, *, most: tuple[int, int] = (KEPT, KEPT_BYTES)) -> None:
        self._nodes = nodes
        self._clock = clock
        self._most = most
        self._sieve = Sieve(clock)
        prefix = nodes.prefixes[0]
        self._key, self._channel = f"{prefix}asked", f"{prefix}newly-asked"
        self._news = asyncio.Event()
        self._subscription: Subscription | None = None
        self._closed = False

    @property
    def skipped(self) -> int:
        return self._sieve.skipped

    async def append(self, records: Sequence[LogRecord]) -> None:
        self._require_open()
        now = self._clock.now()
        for part in _parts(encode_alive(records, now)):
            words = [word for record in part for word in (secrets.token_hex(8), *record)]
            bounds = (*self._most, int(now), _TRIM + len(part))
            await self._nodes.run(0, _APPEND, [self._key], *bounds, self._channel, *words)

    async def read(self, after: bytes, count: int) -> list[tuple[bytes, LogRecord]]:
        self._require_open()
        return await self._sieve.read(after, count, self._rows)

    async def forget(self, keep: Container[bytes], until: float) -> int:
        self._require_open()
        names: list[bytes] = []
        gone: dict[bytes, LogRecord] = {}
        after = b""
        while rows := await self._rows(after, _PAGE):
            after = rows[-1][0]
            for position, value in rows:
                record = decode(value)
                if record is None or not record.vector or record.question.created_at > until:
                    continue
                if record.question.digest not in keep:
                    names.append(position.split(b":")[0])
                    gone[record.question.digest] = removal(record.question)
        # First the news: the latest record has to stay, as the next one's number follows from it.
        await self.append([*gone.values()])
        for start in range(0, len(names), _PAGE):
            await self._nodes.call(0, "XDEL", self._key, *names[start : start + _PAGE])
        return len(gone)

    async def wait(self, after: bytes, seconds: float) -> None:
        """As ``ports.QuestionLog``. A message may be lost, so ``seconds`` should not be long."""
        self._require_open()
        await self._listen()
        self._news.clear()
        if await self.read(after, 1):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
        self._require_open()

    async def close(self) -> None:
        self._closed = True
        self._news.set()
        if self._subscription is not None:
            self._subscription.close()

    async def _listen(self) -> None:
        if self._subscription is None or not self._subscription.alive:
            node = await self._nodes.node(0)
            self._subscription = await node.subscribe(self._channel, self._news.set)

    async def _rows(self, after: bytes, count: int) -> list[Row]:
        if after and not _POSITION.fullmatch(after):
            raise LogGap("that is no position of this question log")
        place = after.split(b":") if after else []
        known, rows = await self._nodes.run(0, _READ, [self._key], count, *place)
        if not known:
            raise LogGap("the question log was begun anew, or has dropped records since that position")
        return [_row(name, fields) for name, fields in rows]

    def _require_open(self) -> None:
        if self._closed:
            raise StoreError("the question log is closed")


def _parts(records: Sequence[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    """The records in order, divided so that none but a single one is larger than an append may be."""
    part: list[tuple[int, bytes]] = []
    size = 0
    for record in records:
        size += len(record[1])
        if part and size > _MOST_BYTES:
            yield part
            part, size = [], len(record[1])
        part.append(record)
    if part:
        yield part


def _row(name: bytes, fields: Sequence[bytes]) -> Row:
    return name + b":" + fields[1], fields[-1]
