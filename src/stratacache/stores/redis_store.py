"""The store on Redis or Valkey: one server, a master behind sentinels, or a cluster."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Protocol

from stratacache.errors import StoreError
from stratacache.ports import Clock
from stratacache.stores import envelope
from stratacache.stores.redis_nodes import Nodes
from stratacache.stores.redis_scripts import ENSURE, INVALIDATE, MARK, PUT
from stratacache.stores.resp import Node
from stratacache.types import Absent, Entry, Invalidated, PutResult, StoreStats, Versions

_MARK_BYTES = 8  # before the envelope: stands for the entry's versions
_LONGEST = 366 * 86_400.0  # seconds that any key lives
_VERSION_SECONDS = 86_400.0  # a version outlives its last entry by so much; losing one is safe
_LARGEST = 32 << 20  # bytes of one entry: the server is busy for as long as it takes to copy it
_MOST_FLOORS = 65_536
_WAIT_MS = 50  # for a replica to have an invalidation


class Announcer(Protocol):
    """Tells the other instances of an invalidation and returns when none of them serves what it hit."""

    async def announce(self, done: Invalidated, digests: Sequence[bytes]) -> None:
        """Raises StoreError when that cannot be said."""
        ...


class RedisStore:
    """A ``ports.Store`` on Redis. The server bounds it (``maxmemory``); what it evicts is a miss.

    Connects when it is first used, so the server may come later. Only masters are asked.

    After a failover the new master may lack an invalidation that the old one had not passed on. So every instance
    remembers the versions that it made or heard of: what is older is refused, and the server is told again.

    ``announcer`` is None when no instance keeps copies.

    Args:
        clock: wall time judges ``gone_at``, beside the server's own expiry.
    """

    waits = True

    def __init__(self, nodes: Nodes, clock: Clock) -> None:
        self.announcer: Announcer | None = None
        self._nodes = nodes
        self._clock = clock
        self._floors: OrderedDict[str, int] = OrderedDict()
        self._rejections = 0
        self._closed = False

    async def get(self, digest: bytes, tags: Sequence[str] = ()) -> Entry | Absent:
        """As ``ports.Store``: one round trip for a hit that carries no more than ``tags``."""
        self._require_open()
        part = self._nodes.partition_of(digest)
        asked = sorted(set(tags))
        found = await self._nodes.call(
            part, "MGET", self._entry_key(part, digest), *self._keys(part, "v:", asked)
        )
        entry = self._decode(digest, found[0])
        versions = _numbers(asked, found[1:])
        if entry is not None and not self._clock.now() < entry.gone_at:
            # Removed, so that it stays gone if this clock is set back.
            await self._nodes.call(part, "DEL", self._entry_key(part, digest))
            entry = None
        if entry is None:
            return Absent("not_found", await self._snapshot(part, versions))
        extra = [tag for tag, _ in entry.versions if tag not in versions]
        if extra:
            more = await self._nodes.call(part, "MGET", *self._keys(part, "v:", extra))
            versions |= _numbers(extra, more)
        if not all(
            versions[tag] == version and self._is_high(tag, version) for tag, version in entry.versions
        ):
            return Absent("outdated", await self._snapshot(part, versions))
        if len(entry.versions) < len(versions):
            return Absent("untagged", await self._snapshot(part, versions))
        return entry

    async def put(self, digest: bytes, entry: Entry) -> PutResult:
        self._require_open()
        part = self._nodes.partition_of(digest)
        lifetime = entry.gone_at - self._clock.now()
        declined = not lifetime > 0 or entry.size > _LARGEST
        if not all(self._is_high(tag, version) for tag, version in entry.versions):
            return "outdated"
        keep = 0 if declined else math.ceil(min(lifetime, _LONGEST) * 1000)
        tags = entry.tags
        stored = await self._nodes.run(
            part,
            PUT,
            [self._entry_key(part, digest), *self._keys(part, "v:", tags), *self._keys(part, "n:", tags)],
            b"" if declined else self._encode(digest, entry),
            keep,
            keep + int(_VERSION_SECONDS * 1000),
            *[version for _, version in entry.versions],
        )
        if not stored:
            return "outdated"
        self._rejections += declined
        return "declined" if declined else "stored"

    async def invalidate(
        self, tags: Sequence[str], digests: Sequence[bytes] = (), *, dry_run: bool = False
    ) -> Invalidated:
        """As ``ports.Store``. A cluster's parts get the same versions, each in a step of its own."""
        self._require_open()
        names = sorted(set(tags))
        if dry_run:
            told = await self._bump(names, digests, 0, dry_run=True)
            return Invalidated(told.affected, tuple(dict(told.versions).items()))  # of the parts' the highest
        least = max([int(self._clock.now() * 1e6), *[self._floors.get(tag, 0) + 1 for tag in names]])
        done = await self._bump(names, digests, least)
        while len({version for _, version in done.versions}) > 1:
            # A part, or a tag, was ahead: all get one version that is above every other.
            least = max(version for _, version in done.versions) + 1
            again = await self._bump(names, (), least)
            done = Invalidated(done.affected, again.versions)
        self.raise_floors(done.versions)
        await self._replicated()
        if self.announcer is not None:
            await self.announcer.announce(done, digests)
        return done

    def raise_floors(self, versions: Versions) -> None:
        """Note what an invalidation made, here or elsewhere: nothing older is current from now on."""
        for tag, version in versions:
            self._floors[tag] = max(version, self._floors.get(tag, 0))
            self._floors.move_to_end(tag)
        while len(self._floors) > _MOST_FLOORS:
            self._floors.popitem(last=False)

    async def stats(self) -> StoreStats:
        """Keys and memory of the servers, whatever uses them; rejections of this process."""
        self._require_open()
        entries = size = evictions = 0
        for node in await self._nodes.masters():
            keys, memory, counts = await node.call_all([("DBSIZE",), ("INFO", "memory"), ("INFO", "stats")])
            entries += keys
            size += _figure(memory, b"used_memory")
            evictions += _figure(counts, b"evicted_keys")
        return StoreStats(entries, size, evictions, self._rejections)

    async def check(self) -> None:
        """That every master answers and is one. The entries are checked as they are read."""
        self._require_open()
        for node in await self._nodes.masters():
            if (await node.call("ROLE"))[0] != b"master":
                raise StoreError(f"Redis store: {node.address} is no master")

    async def close(self) -> None:
        self._closed = True
        self._nodes.close()

    def _require_open(self) -> None:
        if self._closed:
            raise StoreError("the Redis store is closed")

    def _entry_key(self, part: int, digest: bytes) -> str:
        return f"{self._nodes.prefixes[part]}e:{digest.hex()}"

    def _keys(self, part: int, kind: str, tags: Iterable[str]) -> list[str]:
        prefix = self._nodes.prefixes[part] + kind
        return [prefix + tag for tag in tags]

    def _is_high(self, tag: str, version: int) -> bool:
        return not self._floors or version >= self._floors.get(tag, 0)

    def _encode(self, digest: bytes, entry: Entry) -> bytes:
        mark = hashlib.blake2b(repr(entry.versions).encode(), digest_size=_MARK_BYTES).digest()
        try:
            return mark + envelope.encode(digest, entry)
        except UnicodeEncodeError as error:  # half of a surrogate pair, which JSON can smuggle into a name
            raise StoreError(f"Redis store: the entry holds text that has no UTF-8: {error}") from error

    def _decode(self, digest: bytes, value: bytes | None) -> Entry | None:
        """The entry, unless it is absent or none of ours."""
        return envelope.decode(digest, value[_MARK_BYTES:]) if value is not None else None

    async def _snapshot(self, part: int, versions: dict[str, int | None]) -> Versions:
        """``versions``, completed where the server has none, and raised where it has forgotten an invalidation."""
        missing = sorted(tag for tag, version in versions.items() if version is None)
        if missing:
            keep = int(_VERSION_SECONDS * 1000)
            made = await self._nodes.run(part, ENSURE, self._keys(part, "v:", missing), keep)
            versions = versions | _numbers(missing, made)
        known = {tag: version or 0 for tag, version in versions.items()}
        low = sorted(tag for tag, version in known.items() if not self._is_high(tag, version))
        if low:
            least = max(self._floors[tag] for tag in low)
            raised = await self._bump_part(part, low, (), least, dry_run=False)
            known |= dict(raised.versions)
        return tuple(sorted(known.items()))

    async def _bump(
        self, tags: Sequence[str], digests: Sequence[bytes], least: int, *, dry_run: bool = False
    ) -> Invalidated:
        """In all partitions; of each tag the highest version, and if the parts differ at all, more than one of them."""
        parts = range(len(self._nodes.prefixes))
        steps = [
            self._bump_part(
                part,
                tags,
                [d for d in digests if self._nodes.partition_of(d) == part],
                least,
                dry_run=dry_run,
            )
            for part in parts
        ]
        done = await asyncio.gather(*steps)
        affected = sum(one.affected or 0 for one in done)
        return Invalidated(affected, tuple(sorted({pair for one in done for pair in one.versions})))

    async def _bump_part(
        self, part: int, tags: Sequence[str], digests: Sequence[bytes], least: int, *, dry_run: bool
    ) -> Invalidated:
        keys = [
            *self._keys(part, "v:", tags),
            *self._keys(part, "n:", tags),
            *[self._entry_key(part, digest) for digest in set(digests)],
        ]
        if not keys:
            return Invalidated(0, ())
        keep = int((_LONGEST + _VERSION_SECONDS) * 1000)
        counted, removed, versions = await self._nodes.run(
            part, INVALIDATE, keys, len(tags), least, keep, "1" if dry_run else "0"
        )
        return Invalidated(counted + removed, tuple(zip(tags, map(int, versions), strict=True)))

    async def _replicated(self) -> None:
        """Let a replica of each master have the invalidation, where there are any and they keep up."""
        nodes = {await self._nodes.aside(part): part for part in range(len(self._nodes.prefixes))}
        await asyncio.gather(*[self._replicated_by(node, part) for node, part in nodes.items()])

    async def _replicated_by(self, node: Node, part: int) -> None:
        role = await node.call("ROLE")
        if role[0] == b"master" and role[2]:
            mark = ("EVAL", MARK.text, 1, f"{self._nodes.prefixes[part]}mark")
            await node.call_all([mark, ("WAIT", 1, _WAIT_MS)])


def _numbers(tags: Sequence[str], values: Sequence[bytes | None]) -> dict[str, int | None]:
    return {
        tag: int(value) if value is not None and value.isdigit() else None
        for tag, value in zip(tags, values, strict=True)
    }


def _figure(info: bytes, name: bytes) -> int:
    """The value of ``name:123`` in what INFO says; 0 when it is not there."""
    for line in info.splitlines():
        key, _, value = line.partition(b":")
        if key == name and value.isdigit():
            return int(value)
    return 0
