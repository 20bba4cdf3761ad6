"""An index by Redis' query engine (RediSearch): hashes that the server indexes by partition, expiry and vector.

The keys ``{prefix}vd:MARK:DIGEST`` expire on the server too, so nothing needs to be swept; searches filter by this
instance's clock. The index is made when a search misses it, such as after the server was flushed, and then the server
takes in what is there already, in the background.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from stratacache.errors import VectorIndexError
from stratacache.ports import Clock, Vector
from stratacache.stores.redis_nodes import Nodes, Script
from stratacache.stores.resp import Refused, Reply
from stratacache.types import Candidate, IndexStats, Question
from stratacache.vectors.rows import unit
from stratacache.vectors.served import BUDGET, Gate, mark_of, pack, unpack, until

_LONGEST_MS = 366 * 86_400_000  # no key is given a longer life
_LINKS = 16
_EXPANSION_ADD = 200
_EXPANSION_SEARCH = 128
_QUESTION_BYTES = 900  # of a hash and its places in the index beside the vector, which is there twice

# KEYS: the hash. ARGV: milliseconds to live, then fields and values.
_ADD = Script("""
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
return redis.call('PEXPIRE', KEYS[1], ARGV[1])
""")


class RedisSearchIndex:
    """A ``ports.VectorIndex`` by RediSearch, with whole (float32) vectors in a graph.

    Args:
        nodes: one server; closed with the index.
        fingerprint: of the embedder; vectors of another are in another index.
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
        self._name, self._docs = f"{prefix}vi:{mark}", f"{prefix}vd:{mark}:"
        self._is_there = False

    async def search(self, partition: bytes, vector: Vector, count: int) -> Sequence[Candidate]:
        asked = unit(vector, self._dimension).tobytes()
        if count <= 0:
            return []
        query = (
            f"(@p:{{{partition.hex()}}} @x:[({self._clock.now()!r} +inf])"
            f"=>[KNN {count} @v $asked EF_RUNTIME {max(_EXPANSION_SEARCH, 2 * count)} AS distance]"
        )
        found = await self._indexed(
            *("FT.SEARCH", self._name, query, "PARAMS", 2, "asked", asked, "SORTBY", "distance"),
            *("RETURN", 2, "distance", "q", "LIMIT", 0, count, "DIALECT", 2),
        )
        candidates = []
        for fields in found[2::2]:
            named = _named(fields or ())
            question = unpack(named.get(b"q", b""))
            if question is not None and question.partition == partition:
                candidates.append(Candidate(question, 1.0 - float(named[b"distance"])))
        return candidates

    async def add(self, question: Question, vector: Vector) -> None:
        stored = unit(vector, self._dimension).tobytes()
        left = question.expires_at - self._clock.now()
        if not left > 0:
            await self.remove([question.digest])
            return
        milliseconds = _LONGEST_MS if math.isinf(left) else min(_LONGEST_MS, math.ceil(left * 1000))
        expires, packed = repr(until(question)), pack(question)
        words = (milliseconds, "p", question.partition.hex(), "x", expires, "q", packed, "v", stored)

        async def write() -> None:
            await self._ensure()
            await self._nodes.run(0, _ADD, [self._docs + question.digest.hex()], *words)

        await self._gate.run(write)

    async def remove(self, digests: Sequence[bytes]) -> None:
        keys = [self._docs + digest.hex() for digest in digests]
        if keys or self._gate.closed:
            await self._gate.run(lambda: self._nodes.call(0, "DEL", *keys))

    async def stats(self) -> IndexStats:
        """As ``ports.VectorIndex``; partitions that have lost all their questions may still be counted."""
        told = await self._indexed("FT.INFO", self._name)
        vectors = int(float(_named(told)[b"num_docs"]))
        partitions = len(await self._indexed("FT.TAGVALS", self._name, "p"))
        return IndexStats(vectors, partitions, vectors * (8 * self._dimension + _QUESTION_BYTES))

    async def check(self) -> None:
        """As ``ports.VectorIndex``: whether the server could index all that it was given."""
        told = _named(await self._indexed("FT.INFO", self._name))
        failures = int(told.get(b"hash_indexing_failures", 0))
        if failures:
            raise VectorIndexError(f"{failures} questions could not be indexed")

    async def close(self) -> None:
        if not self._gate.closed:
            self._gate.closed = True
            self._nodes.close()

    async def _indexed(self, *command: bytes | str | int) -> Reply:
        """The reply to a command that needs the index. One that was lost since is made again."""

        async def ask() -> Reply:
            await self._ensure()
            try:
                return await self._nodes.call(0, *command)
            except Refused as refusal:
                if not _is_missing(refusal):
                    raise
            self._is_there = False
            await self._ensure()
            return await self._nodes.call(0, *command)

        return await self._gate.run(ask)

    async def _ensure(self) -> None:
        """Make the index, or see that the one that is there fits."""
        if self._is_there:
            return
        vector = (
            *("v", "VECTOR", "HNSW", 10, "TYPE", "FLOAT32", "DIM", self._dimension),
            *("DISTANCE_METRIC", "COSINE", "M", _LINKS, "EF_CONSTRUCTION", _EXPANSION_ADD),
        )
        tag = ("p", "TAG", "CASESENSITIVE", "x", "NUMERIC")
        try:
            await self._nodes.call(
                *(0, "FT.CREATE", self._name, "ON", "HASH", "PREFIX", 1, self._docs, "SCHEMA", *tag, *vector)
            )
        except Refused as refusal:
            if "already exists" not in refusal.text:
                raise
            await self._require_fit()
        self._is_there = True

    async def _require_fit(self) -> None:
        told = _named(await self._nodes.call(0, "FT.INFO", self._name))
        fields = [_named(field) for field in told.get(b"attributes", [])]
        dimensions = [int(field[b"dim"]) for field in fields if b"dim" in field]
        if dimensions != [self._dimension]:
            raise VectorIndexError(
                f"the index {self._name} is for vectors of {dimensions}, not of {self._dimension}: drop it, or use "
                "another prefix"
            )


def _named(flat: Sequence[Any]) -> dict[bytes, Any]:
    """A reply of names and values that take turns."""
    return dict(zip(flat[::2], flat[1::2], strict=False))  # the description of a field may end with a flag


def _is_missing(refusal: Refused) -> bool:
    text = refusal.text.lower()
    return "no such index" in text or "unknown index name" in text
