"""The shared store for those who run Memcached: plain values, and a version per tag under a key of its own.

Why no read is stale: an entry is served only if, in this very call, every tag that it records has the recorded version.
A version begins as a random number of 61 bits and the server counts it up, so neither loss and re-creation nor bumps at
once or delayed ones bring one back, whatever the clocks say. Hence ``put`` may check and then write without holding
anything: a bump in between makes the entry a miss. All that such a race can cost is that it replaced an entry newer
than itself.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from stratacache.errors import StoreError
from stratacache.ports import Clock
from stratacache.stores import envelope
from stratacache.stores import memcached_wire as wire
from stratacache.stores.memcached_ring import Ring
from stratacache.stores.versions import carries
from stratacache.types import Absent, Entry, Invalidated, PutResult, StoreStats, Versions

_LONGEST_EXPIRY = 30 * 86_400  # seconds; the server takes a larger number for a date, by its own clock
_TOO_LARGE = b"SERVER_ERROR object too large"


class MemcachedStore:
    """A ``ports.Store`` on Memcached servers, for any number of instances.

    A look-up is one round trip to each server concerned, and a second one if the entry carries tags that were not asked
    for. What the server loses (eviction, restart) is a miss. A server that is down makes look-ups and invalidations
    fail with StoreError for the keys that are its own, and no other server takes them over. After such a failed
    invalidation entries may still be served that it was to hit, by instances that reach the server, or once it can be
    reached again with its memory intact: repeat the invalidation until it succeeds.

    Args:
        ring: the servers. It belongs to the store, which closes it.
        clock: wall time judges ``gone_at``, beside the server's own expiry.
        prefix: of all keys; at most 64 characters without spaces.
    """

    waits = True

    def __init__(self, ring: Ring, clock: Clock, *, prefix: str) -> None:
        self._ring = ring
        self._clock = clock
        self._prefix = prefix
        self._rejections = 0

    async def get(self, digest: bytes, tags: Sequence[str] = ()) -> Entry | Absent:
        key = self._entry_key(digest)
        found = await self._ring.get((key, *self._version_keys(tags)))
        item = found.get(key)
        entry = None if item is None else envelope.decode(digest, item.value)
        if entry is None or not entry.gone_at > self._clock.now():
            if item is not None:
                # Foreign, or expired by our clock: it stays gone if that is set back.
                await self._ring.call([(key, wire.delete(key))])
            return Absent("not_found", await self._snapshot(tags, found))
        if not set(entry.tags) <= set(tags):
            found |= await self._ring.get([k for k in self._version_keys(entry.tags) if k not in found])
        if not self._are_current(entry.versions, found):
            return Absent("outdated", await self._snapshot((*entry.tags, *tags), found))
        if not carries(entry, tags):
            return Absent("untagged", await self._snapshot((*entry.tags, *tags), found))
        return entry

    async def put(self, digest: bytes, entry: Entry) -> PutResult:
        """As ``ports.Store``; declines what is expired or larger than the server's items may be (1 MB as it comes)."""
        key = self._entry_key(digest)
        if entry.versions and not self._are_current(
            entry.versions, await self._ring.get(self._version_keys(entry.tags))
        ):
            return "outdated"
        lifetime = entry.gone_at - self._clock.now()
        if not lifetime > 0:
            await self._ring.call([(key, wire.delete(key))])
            return self._decline()
        try:
            value = envelope.encode(digest, entry)
        except UnicodeEncodeError as error:  # half of a surrogate pair, which JSON can smuggle into a name
            raise StoreError(f"memcached: the entry holds text that has no UTF-8: {error}") from error
        try:
            await self._ring.call([(key, wire.store(b"set", key, value, _expiry(lifetime)))])
        except wire.Refused as refusal:
            if refusal.line.startswith(_TOO_LARGE):
                return self._decline()  # the server has removed what was there
            raise
        return "stored"

    async def invalidate(
        self, tags: Sequence[str], digests: Sequence[bytes] = (), *, dry_run: bool = False
    ) -> Invalidated:
        """As ``ports.Store``; ``affected`` is None when tags are named, as nobody counts who carries them."""
        names = sorted(set(tags))
        keys = [self._entry_key(digest) for digest in dict.fromkeys(digests)]
        if dry_run:
            found = await self._ring.get((*keys, *self._version_keys(names)))
            present = sum(key in found for key in keys)
            return Invalidated(None if names else present, await self._snapshot(names, found))
        # Entries go last: what an answer in flight puts after its removal is outdated already.
        versions = await self._bump(names)
        replies = await self._ring.call([(key, wire.delete(key)) for key in keys])
        removed = sum(reply.line == b"DELETED" for reply in replies)
        return Invalidated(None if names else removed, versions)

    async def stats(self) -> StoreStats:
        """Of the servers as a whole, whoever uses them; rejections are this process's."""
        replies = [reply.figures for reply in await self._ring.ask_all(b"stats\r\n")]
        return StoreStats(
            entries=sum(int(figures["curr_items"]) for figures in replies),
            bytes=sum(int(figures["bytes"]) for figures in replies),
            evictions=sum(int(figures["evictions"]) for figures in replies),
            rejections=self._rejections,
        )

    async def check(self) -> None:
        """Whether every server answers."""
        await self._ring.ask_all(b"version\r\n")

    async def close(self) -> None:
        self._ring.close()

    async def _snapshot(self, tags: Iterable[str], found: Mapping[bytes, wire.Item]) -> Versions:
        """The versions of ``tags``, of which ``found`` has those that were read; one that has none is given one."""
        names = sorted(set(tags))
        known = {name: _version_in(found, self._version_key(name)) for name in names}
        lacking = [name for name in names if known[name] is None]
        commands: list[tuple[bytes, bytes]] = []
        for name in lacking:
            key = self._version_key(name)
            verb = b"set" if key in found else b"add"  # set: what is there is foreign
            # Read back what is there: another instance may have been first.
            commands += [self._write_version(verb, name), (key, wire.get([key]))]
        replies = await self._ring.call(commands)
        for name, reply in zip(lacking, replies[1::2], strict=True):
            known[name] = _version_in(reply.items, self._version_key(name))
        return tuple([(name, _required(version)) for name, version in known.items()])

    async def _bump(self, names: Sequence[str]) -> Versions:
        """Give every tag a version that it never had, and read back what it is."""
        commands: list[tuple[bytes, bytes]] = []
        for name in names:
            key = self._version_key(name)
            commands += [(key, wire.count_up(key)), self._write_version(b"add", name), (key, wire.get([key]))]
        try:
            replies = await self._ring.call(commands)
        except wire.Refused:  # something foreign cannot be counted up
            commands = [self._write_version(b"set", name) for name in names]
            await self._ring.call(commands)
            return await self._snapshot(names, {})
        keys = [self._version_key(name) for name in names]
        found = [_version_in(reply.items, key) for reply, key in zip(replies[2::3], keys, strict=True)]
        return tuple([(name, _required(version)) for name, version in zip(names, found, strict=True)])

    def _are_current(self, versions: Versions, found: Mapping[bytes, wire.Item]) -> bool:
        return all(_version_in(found, self._version_key(tag)) == version for tag, version in versions)

    def _decline(self) -> PutResult:
        self._rejections += 1
        return "declined"

    def _entry_key(self, digest: bytes) -> bytes:
        return f"{self._prefix}:e:{digest.hex()}".encode()

    def _version_key(self, tag: str) -> bytes:
        return _version_key(self._prefix, tag)

    def _version_keys(self, tags: Iterable[str]) -> list[bytes]:
        return [_version_key(self._prefix, tag) for tag in tags]

    def _write_version(self, verb: bytes, tag: str) -> tuple[bytes, bytes]:
        key = self._version_key(tag)
        return key, wire.store(verb, key, b"%d" % (1 + secrets.randbits(61)), 0)


@lru_cache(maxsize=8192)
def _version_key(prefix: str, tag: str) -> bytes:
    """Tags may hold any text, keys neither spaces nor more than 250 bytes. Two tags in one key would share bumps."""
    return f"{prefix}:v:{hashlib.sha256(tag.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}".encode()


def _version_in(found: Mapping[bytes, wire.Item], key: bytes) -> int | None:
    """The version under ``key``, None when there is none or something foreign."""
    item = found.get(key)
    if item is None or not item.value.isdigit() or len(item.value) > 19:
        return None
    return int(item.value)


def _required(version: int | None) -> int:
    if version is None:
        raise StoreError("memcached: a new version was lost at once; the server keeps nothing")
    return version


def _expiry(lifetime: float) -> int:
    """Whole seconds for the server, never too few (its clock ticks once a second); 0, for ever, beyond 30 days.

    Then ``gone_at`` alone decides: a date would be judged by the server's clock, which may differ from ours.
    """
    seconds = math.ceil(lifetime) + 1 if lifetime < _LONGEST_EXPIRY else 0
    return seconds if seconds <= _LONGEST_EXPIRY else 0
