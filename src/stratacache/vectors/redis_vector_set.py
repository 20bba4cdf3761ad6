"""An index in Redis' own vector sets: one set for each partition. Redis 8.2 or later.

Elements of a vector set have no expiry of their own: it is an attribute that searches filter by, and every addition
removes some that have expired. Keys, which share the hash tag ``{prefix}``, MARK being that of the embedder:

- ``{prefix}vs:MARK:PARTITION`` the set; its elements are digests
- ``{prefix}vo:MARK`` a hash: the partition of each digest
- ``{prefix}vx:MARK`` a sorted set: digests by expiry
- ``{prefix}vn:MARK`` a hash: how many elements each set has

A server that evicts keys may lose one without the others; what is lost is not found, and nothing worse.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import msgspec

from stratacache.errors import VectorIndexError
from stratacache.ports import Clock, Vector
from stratacache.stores.redis_nodes import Nodes, Script
from stratacache.types import Candidate, IndexStats, Question
from stratacache.vectors.rows import unit
from stratacache.vectors.served import BUDGET, Gate, mark_of, pack, unpack, until

_SWEEP = 16  # expired questions removed per addition: more than come, so the backlog shrinks
_LINKS = 16
_EXPANSION_ADD = 200
_EXPANSION_SEARCH = 128  # nodes that a search keeps in view
_ELEMENT_BYTES = 730  # beside the vector, measured by MEMORY USAGE

# KEYS: owners, due, counts. ARGV[1] is what the names of the sets begin with.
_FORGET = """
local owners, due, counts, sets = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local function leave(partition, digest)
  if redis.call('VREM', sets .. partition, digest) == 1
    and redis.call('HINCRBY', counts, partition, -1) <= 0 then
    redis.call('HDEL', counts, partition)
  end
end
local function forget(digest)
  local partition = redis.call('HGET', owners, digest)
  if partition then leave(partition, digest) end
  redis.call('HDEL', owners, digest)
  redis.call('ZREM', due, digest)
end
"""

# ARGV: sets, digests.
_REMOVE = Script(_FORGET + "for i = 2, #ARGV do forget(ARGV[i]) end")

# ARGV: sets, digest, partition, expiry, vector, attributes, now, how many to sweep, links, expansion.
# The element comes first: when that is refused, all is as it was.
_ADD = Script(
    _FORGET
    + """
local digest, partition = ARGV[2], ARGV[3]
local added = redis.call('VADD', sets .. partition, 'FP32', ARGV[5], digest, 'NOQUANT', 'EF', ARGV[10],
  'SETATTR', ARGV[6], 'M', ARGV[9])
local before = redis.call('HGET', owners, digest)
if before and before ~= partition then leave(before, digest) end
redis.call('HSET', owners, digest, partition)
redis.call('ZADD', due, ARGV[4], digest)
if added == 1 then redis.call('HINCRBY', counts, partition, 1) end
for _, old in ipairs(redis.call('ZRANGEBYSCORE', due, '-inf', ARGV[7], 'LIMIT', 0, ARGV[8])) do forget(old) end
"""
)


class _Attributes(msgspec.Struct, frozen=True):
    """``e``: seconds of expiry, for the server to filter by; ``q``: the packed question."""

    e: float
    q: bytes


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Attributes).decode


class RedisVectorSet:
    """A ``ports.VectorIndex`` in Redis' vector sets, with whole (float32) vectors.

    Args:
        nodes: one server; closed with the index.
        fingerprint: of the embedder; vectors of another are in other sets.
        clock: wall time judges expiry.
        budget: seconds for one operation.
    """

    def __init__(
        self, nodes: Nodes, dimension: int, fingerprint: str, clock: Clock, *, budget: float = BUDGET
    ) -> None:
        self._nodes = nodes
        self._dimension = dimension
        self._clock = clock
        self._gate = Gate("redis", budget)
        prefix, mark = nodes.prefixes[0], mark_of(fingerprint, dimension)
        self._sets = f"{prefix}vs:{mark}:"
        self._keys = [f"{prefix}{kind}:{mark}" for kind in ("vo", "vx", "vn")]

    async def search(self, partition: bytes, vector: Vector, count: int) -> Sequence[Candidate]:
        asked = unit(vector, self._dimension).tobytes()
        command = (
            *("VSIM", self._sets + partition.hex(), "FP32", asked, "WITHSCORES", "WITHATTRIBS"),
            *("COUNT", count, "EF", max(_EXPANSION_SEARCH, 2 * count)),
            *("FILTER", f".e > {self._clock.now()!r}"),
        )
        found = await self._gate.run(lambda: self._nodes.call(0, *command)) if count > 0 else []
        candidates = []
        for score, attributes in zip(found[1::3], found[2::3], strict=True):
            question = _question_in(attributes)
            if question is not None and question.partition == partition:
                # The server's score is (1 + cosine) / 2.
                candidates.append(Candidate(question, 2.0 * float(score) - 1.0))
        return candidates

    async def add(self, question: Question, vector: Vector) -> None:
        stored = unit(vector, self._dimension).tobytes()
        now = self._clock.now()
        if not question.expires_at > now:
            await self.remove([question.digest])
            return
        expires = until(question)
        words = (
            *(self._sets, question.digest, question.partition.hex(), repr(expires), stored),
            *(_encode(_Attributes(expires, pack(question))), repr(now), _SWEEP, _LINKS, _EXPANSION_ADD),
        )
        await self._gate.run(lambda: self._nodes.run(0, _ADD, self._keys, *words))

    async def remove(self, digests: Sequence[bytes]) -> None:
        if digests or self._gate.closed:
            await self._gate.run(lambda: self._nodes.run(0, _REMOVE, self._keys, self._sets, *digests))

    async def stats(self) -> IndexStats:
        """As ``ports.VectorIndex``; questions that expired and are not swept yet are counted."""
        vectors = await self._gate.run(lambda: self._nodes.call(0, "HLEN", self._keys[0]))
        partitions = await self._gate.run(lambda: self._nodes.call(0, "HLEN", self._keys[2]))
        return IndexStats(vectors, partitions, vectors * (4 * self._dimension + _ELEMENT_BYTES))

    async def check(self) -> None:
        """As ``ports.VectorIndex``; compares the counts. Says nothing of a moment at which others write."""
        owners, due, _ = self._keys
        held = await self._gate.run(lambda: self._nodes.call(0, "HLEN", owners))
        listed = await self._gate.run(lambda: self._nodes.call(0, "ZCARD", due))
        if held != listed:
            raise VectorIndexError(f"{held} questions have a partition and {listed} an expiry")
        counts = await self._counts()
        if sum(counts.values()) != held:
            raise VectorIndexError(f"{held} questions are known and {sum(counts.values())} are counted")
        for partition, count in counts.items():
            name = self._sets.encode() + partition
            there = await self._gate.run(lambda name=name: self._nodes.call(0, "VCARD", name))  # type: ignore[misc]
            if there != count:
                raise VectorIndexError(f"a set has {there} vectors where {count} are counted")

    async def close(self) -> None:
        if not self._gate.closed:
            self._gate.closed = True
            self._nodes.close()

    async def _counts(self) -> dict[bytes, int]:
        flat = await self._gate.run(lambda: self._nodes.call(0, "HGETALL", self._keys[2]))
        return dict(zip(flat[::2], map(int, flat[1::2]), strict=True))


def _question_in(attributes: bytes | None) -> Question | None:
    with contextlib.suppress(msgspec.MsgspecError):
        return unpack(_decode(attributes or b"").q)
    return None
