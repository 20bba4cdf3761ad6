"""The store on Redis or Valkey: one server, a master behind sentinels, or a cluster."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import math
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

from stratacache.errors import StoreError
from stratacache.ports import Clock, Page
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
_MOST_ROUNDS = (
    8  # until the parts of a cluster agree on a version; more than two take a server that loses data
)
_WAIT_MS = 50  # for a replica to have an invalidation

_Step: TypeAlias = Literal["bump", "raise", "tell"]


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
        value = b"" if declined else self._encode(digest, entry)
        keep = 0 if declined else math.ceil(min(lifetime, _LONGEST) * 1000)
        if not await self._put(part, digest, value, keep, entry.versions):
            # The versions may come from a look-up in another part of a cluster, and be unknown to this one.
            if part == 0 or tuple((await self._ensure(part, entry.tags)).items()) != entry.versions:
                return "outdated"
            if not await self._put(part, digest, value, keep, entry.versions):
                return "outdated"
        self._rejections += declined
        return "declined" if declined else "stored"

    async def _put(self, part: int, digest: bytes, value: bytes, keep: int, versions: Versions) -> bool:
        tags = [tag for tag, _ in versions]
        keys = [self._entry_key(part, digest), *self._keys(part, "v:", tags), *self._keys(part, "n:", tags)]
        keep_versions = keep + int(_VERSION_SECONDS * 1000)
        return bool(
            await self._nodes.run(part, PUT, keys, value, keep, keep_versions, *[v for _, v in versions])
        )

    async def invalidate(
        self, tags: Sequence[str], digests: Sequence[bytes] = (), *, dry_run: bool = False
    ) -> Invalidated:
        """As ``ports.Store``. A cluster's parts get the same versions, each in a step of its own."""
        self._require_open()
        names = sorted(set(tags))
        if dry_run:
            parts = range(len(self._nodes.prefixes))
            told = await self._steps(parts, "tell", dict.fromkeys(names, 0), digests)
            return Invalidated(sum(one.affected or 0 for one in told), told[0].versions)
        done = await self._bump(names, digests)
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

    async def scan(self, after: bytes, count: int, *, dead: bool = False) -> Page:
        """As ``ports.Listing``, in the server's order; one of a cluster walks its keys for each of its parts."""
        self._require_open()
        part, cursor = map(int, after.split(b" ")) if after else (0, 0)
        prefix = f"{self._nodes.prefixes[part]}e:"
        pattern = re.sub(r"([*?\[\]\\^-])", r"\\\1", prefix) + "*"
        told, keys = await self._nodes.call(part, "SCAN", cursor, "MATCH", pattern, "COUNT", count)
        entries = []
        for key in keys:
            digest = _digest_in(key, prefix.encode())
            if digest is None:
                continue
            raw = await self._nodes.call(part, "GET", key) if dead else None
            entry = self._decode(digest, raw) if dead else await self.get(digest)
            if isinstance(entry, Entry):
                entries.append((digest, entry))
        if int(told) == 0:
            part += 1
        return Page(entries, f"{part} {int(told)}".encode() if part < len(self._nodes.prefixes) else None)

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
            versions = versions | await self._ensure(part, missing)
        known = {tag: version or 0 for tag, version in versions.items()}
        low = sorted(tag for tag, version in known.items() if not self._is_high(tag, version))
        if low:
            known |= dict((await self._step(part, "raise", {tag: self._floors[tag] for tag in low})).versions)
        return tuple(sorted(known.items()))

    async def _ensure(self, part: int, tags: Sequence[str]) -> dict[str, int | None]:
        """The versions of ``tags``, made where there are none: in all parts of a cluster those of part 0."""
        first = await self._make(0, tags)
        if part == 0:
            return first
        versions = await self._make(part, tags, [version or 0 for version in first.values()])
        # An invalidation that came in between went to part 0 first. If this part lost what it said, say it again.
        first = await self._make(0, tags)
        low = {tag: version for tag, version in first.items() if version and version > (versions[tag] or 0)}
        if low:
            versions |= dict((await self._step(part, "raise", low)).versions)
        return versions

    async def _make(
        self, part: int, tags: Sequence[str], versions: Sequence[int] = ()
    ) -> dict[str, int | None]:
        keep = int(_VERSION_SECONDS * 1000)
        return _numbers(
            tags, await self._nodes.run(part, ENSURE, self._keys(part, "v:", tags), keep, *versions)
        )

    async def _bump(self, tags: Sequence[str], digests: Sequence[bytes]) -> Invalidated:
        """New versions, made by part 0 and copied to the others.

        A part that is ahead has heard of another invalidation, which went to part 0 after this one: what it keeps was
        not begun before this one either. Unless part 0 has lost the version: then all get one that is higher still.
        """
        now, parts = int(self._clock.now() * 1e6), len(self._nodes.prefixes)
        done = await self._step(
            0, "bump", {tag: max(now, self._floors.get(tag, 0) + 1) for tag in tags}, digests
        )
        affected, versions = done.affected or 0, dict(done.versions)
        for _ in range(_MOST_ROUNDS):
            others = await self._steps(range(1, parts), "raise", versions, digests)
            affected += sum(one.affected or 0 for one in others)
            ahead: dict[str, int] = {}
            for tag, version in itertools.chain.from_iterable(one.versions for one in others):
                if version > max(versions[tag], ahead.get(tag, 0)):
                    ahead[tag] = version
            known = dict((await self._step(0, "tell", ahead)).versions)
            lost = {tag: version + 1 for tag, version in ahead.items() if version > known[tag]}
            if not lost:
                return Invalidated(affected, tuple(versions.items()))
            versions |= dict((await self._step(0, "bump", lost)).versions)
        raise StoreError("redis: the parts of the cluster do not come to agree on a version")

    async def _steps(
        self, parts: Iterable[int], what: _Step, versions: Mapping[str, int], digests: Sequence[bytes]
    ) -> list[Invalidated]:
        return await asyncio.gather(*[self._step(part, what, versions, digests) for part in parts])

    async def _step(
        self, part: int, what: _Step, versions: Mapping[str, int], digests: Sequence[bytes] = ()
    ) -> Invalidated:
        """``redis_scripts.INVALIDATE`` in one part, for those of ``digests`` that are in it."""
        tags = list(versions)
        keys = [
            *self._keys(part, "v:", tags),
            *self._keys(part, "n:", tags),
            *[self._entry_key(part, one) for one in set(digests) if self._nodes.partition_of(one) == part],
        ]
        if not keys:
            return Invalidated(0, ())
        keep = int((_LONGEST + _VERSION_SECONDS) * 1000)
        counted, removed, now = await self._nodes.run(
            part, INVALIDATE, keys, len(tags), what, keep, *versions.values()
        )
        return Invalidated(counted + removed, tuple(zip(tags, map(int, now), strict=True)))

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


def _digest_in(key: bytes, prefix: bytes) -> bytes | None:
    """The digest that an entry's key names, None when it names none."""
    try:
        return bytes.fromhex(key.removeprefix(prefix).decode("ascii"))
    except ValueError:
        return None


def _figure(info: bytes, name: bytes) -> int:
    """The value of ``name:123`` in what INFO says; 0 when it is not there."""
    for line in info.splitlines():
        key, _, value = line.partition(b":")
        if key == name and value.isdigit():
            return int(value)
    return 0
