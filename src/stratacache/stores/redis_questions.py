"""The filter of handled questions in Redis, shared by all instances: ``stores.bloom`` on the server's bit strings."""

from __future__ import annotations

import os

from stratacache.errors import StoreError
from stratacache.ports import FilterStats
from stratacache.stores.bloom import Shape
from stratacache.stores.redis_nodes import Nodes, Script

_PROBES = 1_000  # random questions asked by stats

# KEYS: head, generation 0, generation 1. ARGV: the positions of one question. Gives: whether it is known.
_LOOK = """
local function holds(key)
  for _, at in ipairs(ARGV) do
    if redis.call('GETBIT', key, at) == 0 then return false end
  end
  return true
end
"""
_SEEN = Script(_LOOK + "return (holds(KEYS[2]) or holds(KEYS[3])) and 1 or 0")

# The same, and it is noted. The last of ARGV is the capacity.
_NOTE = Script(
    """
local capacity = tonumber(table.remove(ARGV))
"""
    + _LOOK
    + """
local current = tonumber(redis.call('HGET', KEYS[1], 'current') or '0')
local newer, older = KEYS[2 + current], KEYS[3 - current]
if holds(newer) then return 1 end
local known = holds(older)
for _, at in ipairs(ARGV) do redis.call('SETBIT', newer, at, 1) end
if redis.call('HINCRBY', KEYS[1], 'noted', 1) >= capacity then
  redis.call('DEL', older)
  redis.call('HSET', KEYS[1], 'current', 1 - current, 'noted', 0)
end
return known and 1 or 0
"""
)

# KEYS as above. ARGV: positions per question, then those of many questions. Gives how many are known.
_COUNT = Script("""
local each, known = tonumber(ARGV[1]), 0
for first = 2, #ARGV, each do
  for generation = 2, 3 do
    local all = true
    for i = first, first + each - 1 do
      if redis.call('GETBIT', KEYS[generation], ARGV[i]) == 0 then all = false; break end
    end
    if all then known = known + 1; break end
  end
end
return known
""")


class RedisQuestions:
    """A ``ports.QuestionFilter`` in Redis. On a cluster it lives on one server: it is small, and asked on misses only.

    Args:
        nodes: the store closes them.
        capacity: distinct questions that are never forgotten.
        error: false-positive rate of one full generation.
    """

    def __init__(self, nodes: Nodes, capacity: int, error: float) -> None:
        self._nodes = nodes
        self._shape = Shape.of(capacity, error)
        # The shape is in the names: instances that disagree on it must not set each other's bits.
        prefix = f"{nodes.prefixes[0]}q:{self._shape.bits}:{self._shape.positions}:"
        self._keys = [prefix + name for name in ("head", "0", "1")]
        self._closed = False

    async def seen(self, digest: bytes) -> bool:
        self._require_open()
        return bool(await self._nodes.run(0, _SEEN, self._keys, *self._shape.places(digest)))

    async def note(self, digest: bytes) -> bool:
        self._require_open()
        places = self._shape.places(digest)
        return bool(await self._nodes.run(0, _NOTE, self._keys, *places, self._shape.capacity))

    async def stats(self) -> FilterStats:
        self._require_open()
        fills = [await self._nodes.call(0, "BITCOUNT", key) / self._shape.bits for key in self._keys[1:]]
        strangers = [place for _ in range(_PROBES) for place in self._shape.places(os.urandom(16))]
        wrong = await self._nodes.run(0, _COUNT, self._keys, self._shape.positions, *strangers)
        return self._shape.stats(fills, wrong / _PROBES)

    async def close(self) -> None:
        self._closed = True

    def _require_open(self) -> None:
        if self._closed:
            raise StoreError("the question filter is closed")
