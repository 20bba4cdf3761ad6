"""The work of a RocksDB store, as plain calls for the one thread that does it; so each is atomic."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import cast

import msgspec
from rocksdict import DbClosedError, Rdict

from stratacache.ports import Page
from stratacache.stores import envelope
from stratacache.stores import rocksdb_rows as rows
from stratacache.stores.rocksdb_file import file_bytes
from stratacache.stores.rocksdb_rows import Change, Head
from stratacache.stores.versions import carries
from stratacache.types import Absent, Entry, Invalidated, PutResult, Versions

LARGEST_SHARE = 4  # an entry above max_bytes / 4 is declined, as in the memory store
MAX_IDLE_TAGS = 65_536  # tags beyond this, of which no entry has one, are forgotten
_IDLE_SECONDS = 3600  # that a version is kept for answers in flight
_SWEEP = 16  # expired entries given back per put: more than a put can add, so the backlog shrinks
_TAGS_SEEN = 512  # tags looked at by one sweep, for each 256 that are new
_BEHIND = 2  # steps of garbage that may gather while earlier ones are being cleared away
_SWOLLEN = 1.1  # files above this share of max_bytes are cleared as a whole
_USE_SECONDS = 60  # a use is not written again within this
_USES = 256  # uses that wait for a put before they are written on their own


class Shelf:
    """Entries, their order of use and expiry, and the tags' versions and counts in one database.

    Args:
        open_database: opens it, at once and again after a write failed.
        max_bytes: bound of what the entries are charged.
    """

    def __init__(self, open_database: Callable[[], Rdict], max_bytes: int) -> None:
        self._open = open_database
        self._database = open_database()
        self._failed = False
        self._max_bytes = max_bytes
        self._uses: dict[bytes, int] = {}
        # Below these there are only deleted keys, which would be passed over one by one.
        self._first_place = self._first_gone = 0
        self._garbage = self._cleared = 0  # bytes; place below which the files hold nothing useless
        self._step = file_bytes(max_bytes)
        self._cleaner = ThreadPoolExecutor(1, thread_name_prefix="rocksdb-cleaner")
        self._clearing: Future[None] | None = None
        self._tag_cursor = b"v"
        self._new_tags = 0
        self.totals = rows.read_totals(self._database)
        self.evictions = 0
        self.rejections = 0

    def get(self, digest: bytes, tags: Sequence[str], now: float) -> Entry | Absent:
        stored, *versions = self._read((rows.head_key(digest), *map(rows.version_key, tags)))
        head = rows.head_in(stored)
        if head is None:
            return Absent("not_found", self._snapshot(tags, now))
        entry = envelope.decode(digest, self._value(digest, head))
        if entry is None or not entry.gone_at > now:
            self._discard(digest, head)
            return Absent("not_found", self._snapshot(tags, now))
        current = dict(zip(tags, map(rows.number_in, versions), strict=True))
        if not self._are_current(entry.versions, current):
            self._discard(digest, head)
            return Absent("outdated", self._snapshot((*entry.tags, *tags), now))
        if not carries(entry, tags):
            return Absent("untagged", self._snapshot((*entry.tags, *tags), now))
        if abs(now - head.used) >= _USE_SECONDS:
            self._uses[digest] = int(now)
            if len(self._uses) >= _USES:
                self.write_uses()
        return entry

    def put(self, digest: bytes, entry: Entry, now: float) -> PutResult:
        self._recover()
        if not self._are_current(entry.versions, {}):
            return "outdated"
        value = envelope.encode(digest, entry)
        cost = rows.cost_of(entry)
        self.write_uses()
        change = Change(self._database, self.totals)
        previous = self._head(digest)
        if previous is not None:
            change.remove(digest, previous)
        if not entry.gone_at > now or cost * LARGEST_SHARE > self._max_bytes:
            self._commit(change)
            self.rejections += 1
            return "declined"
        gone = _milliseconds(entry.gone_at)
        change.add(digest, value, Head(0, int(now), gone, cost, entry.versions))
        first_gone = self._reclaim(change, now)
        first_place, evicted = self._evict(change)
        self._commit(change)
        self._first_gone = min(first_gone, rows.LAST_MOMENT if gone is None else gone)
        self._first_place = first_place
        self.evictions += evicted
        if self._garbage >= self._step:
            self._clear_away()
        return "stored"

    def invalidate(
        self, tags: Sequence[str], digests: Sequence[bytes], now: float, *, dry_run: bool
    ) -> Invalidated:
        self._recover()
        before = self._snapshot(tags, now)
        carried = sum([rows.number_in(self._database.get(rows.count_key(*pair))) or 0 for pair in before])
        heads = {digest: head for digest in digests if (head := self._head(digest)) is not None}
        affected = carried + len(heads)
        if dry_run:
            return Invalidated(affected, before)
        change = Change(self._database, self.totals)
        for digest, head in heads.items():
            change.remove(digest, head)
        after = tuple([(tag, self._renew(change, tag, now)) for tag, _ in before])
        self._commit(change)
        self._database.flush_wal(True)  # else a power cut could undo it, and revive what it hit
        return Invalidated(affected, after)

    def write_uses(self) -> None:
        """Note what was read lately as used."""
        if not self._uses:
            return
        uses, self._uses = self._uses, {}
        change = Change(self._database, self.totals)
        for digest, used in uses.items():
            head = self._head(digest)
            if head is not None:
                change.move(digest, self._value(digest, head), head, used)
        self._commit(change)

    def close(self) -> None:
        """Release the folder, also if what waits cannot be written any more."""
        try:
            self.write_uses()
        finally:
            self._cleaner.shutdown()
            self._database.close()

    def scan(self, after: bytes, count: int, now: float | None) -> Page:
        """About ``count`` whole entries whose digests follow ``after``: those current at ``now``, or all of them."""
        heads = self._items(b"h", after + b"\0" if after else b"")
        taken = [(key[1:], rows.head_in(value)) for key, value in islice(heads, count)]
        entries = []
        for digest, head in taken:
            entry = envelope.decode(digest, self._value(digest, head)) if head is not None else None
            if entry is None:
                continue
            if now is None or (entry.gone_at > now and self._are_current(entry.versions, {})):
                entries.append((digest, entry))
        return Page(entries, taken[-1][0] if len(taken) == count else None)

    def fault(self) -> str:
        """The first broken invariant, or ""; reads everything."""
        heads = {key[1:]: msgspec.msgpack.decode(value, type=Head) for key, value in self._items(b"h")}
        if {key for key, _ in self._items(b"e")} != {rows.entry_key(h.place, d) for d, h in heads.items()}:
            return "the entries are not where their heads say"
        expiries = {key for key, _ in self._items(b"x")}
        if expiries != {rows.expiry_key(h.gone, d) for d, h in heads.items() if h.gone is not None}:
            return "the expiries are not of the entries"
        carried: dict[bytes, int] = {}
        for head in heads.values():
            for tag, version in head.versions:
                key = rows.count_key(tag, version)
                carried[key] = carried.get(key, 0) + 1
        if {key: rows.number_in(value) for key, value in self._items(b"c")} != carried:
            return "the count of entries per tag is not what is kept"
        size = sum(head.cost for head in heads.values())
        tags = sum(1 for _ in self._items(b"v"))
        if (self.totals.entries, self.totals.bytes, self.totals.tags) != (len(heads), size, tags):
            return (
                f"the totals {self.totals} are not those of {len(heads)} entries of {size} bytes, {tags} tags"
            )
        if size > self._max_bytes:
            return f"{size} bytes are kept where {self._max_bytes} are allowed"
        return ""

    def _head(self, digest: bytes) -> Head | None:
        return rows.head_in(self._database.get(rows.head_key(digest)))

    def _value(self, digest: bytes, head: Head) -> bytes:
        return cast(bytes | None, self._database.get(rows.entry_key(head.place, digest))) or b""

    def _commit(self, change: Change) -> None:
        self._failed = True
        self.totals = change.commit()
        self._failed = False
        self._garbage += change.garbage

    def _recover(self) -> None:
        """Open the database anew if a write failed: after one (a full disk) RocksDB refuses all others."""
        if not self._failed:
            return
        if self._clearing is not None:
            self._clearing.exception()  # wait for it; what failed is begun anew with the next garbage
            self._clearing = None
        with contextlib.suppress(DbClosedError):  # an earlier attempt closed it and could not open it
            self._database.close()
        self._database = self._open()
        self.totals = rows.read_totals(self._database)
        self._failed = False

    def _clear_away(self) -> None:
        """Have the files rid of what was evicted, which lies together, in a thread of its own.

        RocksDB would do so in time, but not before the folder is far larger than the bound. What uses and replacements
        left behind lies among the rest; once that is much, all is cleared.
        """
        if self._clearing is not None and not self._clearing.done():
            if self._garbage < _BEHIND * self._step:
                return
            self._clearing.exception()  # the disk cannot follow: puts wait for it; what fails comes up in writes
        size = cast(int, self._database.property_int_value("rocksdb.total-sst-files-size"))
        last = rows.LAST_MOMENT if size > _SWOLLEN * self._max_bytes else self._first_place
        start, end = rows.entry_key(self._cleared, b""), rows.entry_key(last, b"")
        self._clearing = self._cleaner.submit(self._database.compact_range, start, end)
        self._cleared, self._garbage = self._first_place, 0

    def _version(self, tag: str) -> int | None:
        return rows.number_in(self._database.get(rows.version_key(tag)))

    def _are_current(self, versions: Versions, known: dict[str, int | None]) -> bool:
        """Whether ``versions`` are those of now, of which some are ``known`` already."""
        lacking = [tag for tag, _ in versions if tag not in known]
        if lacking:
            found = self._read([rows.version_key(tag) for tag in lacking])
            known = known | dict(zip(lacking, map(rows.number_in, found), strict=True))
        return all(known[tag] == version for tag, version in versions)

    def _snapshot(self, tags: Iterable[str], now: float) -> Versions:
        """The versions of ``tags``; one that has none is given one."""
        names = sorted(set(tags))
        versions = {name: self._version(name) for name in names}
        lacking = [name for name in names if versions[name] is None]
        if lacking:
            change = Change(self._database, self.totals)
            made = {name: self._renew(change, name, now) for name in lacking}
            self._sweep_tags(change, now, len(made))
            self._commit(change)
            versions |= made
        return tuple([(name, version) for name, version in versions.items() if version is not None])

    def _renew(self, change: Change, tag: str, now: float) -> int:
        """Give ``tag`` a version above all that were given out: microseconds since the epoch, or one more."""
        totals = change.totals
        version = max(totals.version + 1, int(now * 1e6))
        new = self._version(tag) is None
        change.totals = msgspec.structs.replace(totals, version=version, tags=totals.tags + new)
        change.put(rows.version_key(tag), rows.number(version))
        return version

    def _discard(self, digest: bytes, head: Head) -> None:
        change = Change(self._database, self.totals)
        change.remove(digest, head)
        self._commit(change)

    def _reclaim(self, change: Change, now: float) -> int:
        """Remove a bounded number of expired entries; returns below which moment there are no more."""
        until, first = int(now * 1000), self._first_gone
        for taken, (key, _) in enumerate(self._items(b"x", rows.number(first))):
            gone, digest = rows.number_in(key[1:9]) or 0, key[9:]
            first = gone
            if gone > until or taken == _SWEEP:
                break
            head = self._head(digest)
            if head is not None:
                change.remove(digest, head)
        return first

    def _evict(self, change: Change) -> tuple[int, int]:
        """Remove what was used least recently until the rest is within the bound.

        Returns below which place there are no more, and how many were removed.
        """
        first, evicted = self._first_place, 0
        for key, _ in self._items(b"e", rows.number(first)):
            first, digest = rows.place_and_digest(key)
            if change.totals.bytes <= self._max_bytes:
                break
            head = self._head(digest)
            if head is not None:
                evicted += change.remove(digest, head)
        return first, evicted

    def _sweep_tags(self, change: Change, now: float, new: int) -> None:
        """Forget versions that no entry has, and that no answer in flight can have any more.

        Versions that entries have are bounded by the entries, which are charged for them.
        """
        self._new_tags += new
        if self.totals.tags <= MAX_IDLE_TAGS or self._new_tags < _TAGS_SEEN // 2:
            return
        self._new_tags = 0
        oldest = int((now - _IDLE_SECONDS) * 1e6)
        forgotten = 0
        cursor, self._tag_cursor = self._tag_cursor, b"v"
        for seen, (key, value) in enumerate(self._items(b"v", cursor[1:])):
            if seen == _TAGS_SEEN:
                self._tag_cursor = key
                break
            count = self._database.get(b"c" + value + key[1:])
            if count is None and (rows.number_in(value) or 0) < oldest:
                change.delete(key)
                forgotten += 1
        change.totals = msgspec.structs.replace(change.totals, tags=change.totals.tags - forgotten)

    def _items(self, kind: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Keys of one kind with their values, in order, from ``kind + start`` on."""
        for pair in self._database.items(from_key=kind + start):
            key, value = cast(tuple[bytes, bytes], pair)
            if not key.startswith(kind):
                return
            yield key, value

    def _read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return cast(list[bytes | None], self._database.get(list(keys)))


def _milliseconds(moment: float) -> int | None:
    """Rounded up, so that nothing goes early; None for a moment that never comes."""
    if math.isinf(moment) or moment * 1000 >= rows.LAST_MOMENT:
        return None
    return math.ceil(moment * 1000)
