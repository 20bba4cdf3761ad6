"""Tag versions in one process's memory, for stores that nobody else writes to."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from stratacache.ports import Clock
from stratacache.types import Absent, Entry, Version, Versions

MAX_TAGS = 65_536  # versions kept; callers name tags, so there may be any number of them


class VersionTable:
    """The version of every tag that was asked for lately, and how many entries carry each.

    Versions are microseconds since the epoch, and each is higher than any that was given out before, so a tag that was
    dropped and comes back has a version that no entry knows. ``generation`` changes whenever an entry may have become
    outdated: an entry that was current in this generation still is.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # The pairs themselves are kept: all entries that carry one share it.
        self._current: OrderedDict[str, Version] = OrderedDict()
        self._carried: dict[Version, int] = {}
        self._last = 0
        self.generation = 0

    def snapshot(self, tags: Iterable[str]) -> Versions:
        """The versions of ``tags``; one that has none is given one."""
        return tuple([self._ensure(tag) for tag in sorted(set(tags))])

    def refuse(self, entry: Entry, tags: Sequence[str]) -> Absent | None:
        """Why ``entry`` must not answer a request that names ``tags``, None when it may."""
        if not self.are_current(entry.versions):
            return Absent("outdated", self.snapshot((*entry.tags, *tags)))
        if not carries(entry, tags):
            return Absent("untagged", self.snapshot((*entry.tags, *tags)))
        return None

    def are_current(self, versions: Versions) -> bool:
        return all(self._current.get(pair[0]) == pair for pair in versions)

    def bump(self, tags: Iterable[str]) -> Versions:
        """Give each tag a version that it never had."""
        self.generation += 1
        changed = []
        for tag in sorted(set(tags)):
            self._current[tag] = pair = (tag, self._next())
            changed.append(pair)
        self._trim()
        return tuple(changed)

    def count(self, versions: Versions) -> int:
        """At most so many entries carry one of ``versions``."""
        return sum([self._carried.get(pair, 0) for pair in versions])

    def carry(self, entry: Entry) -> None:
        """An entry is kept."""
        for pair in entry.versions:
            self._carried[pair] = self._carried.get(pair, 0) + 1

    def drop(self, entry: Entry) -> None:
        """An entry that was kept is gone."""
        for pair in entry.versions:
            left = self._carried[pair] - 1
            if left:
                self._carried[pair] = left
            else:
                del self._carried[pair]

    def fault(self, entries: Iterable[Entry]) -> str:
        """The first broken invariant, or ""; ``entries`` are all that are kept."""
        carried: dict[Version, int] = {}
        for entry in entries:
            for pair in entry.versions:
                carried[pair] = carried.get(pair, 0) + 1
        if carried != self._carried:
            return "the count of entries per tag is not what is kept"
        if len(self._current) > MAX_TAGS:
            return f"{len(self._current)} tags are kept where {MAX_TAGS} are allowed"
        return ""

    def _ensure(self, tag: str) -> Version:
        pair = self._current.get(tag)
        if pair is None:
            self._current[tag] = pair = (tag, self._next())
            self._trim()
        else:
            self._current.move_to_end(tag)
        return pair

    def _next(self) -> int:
        self._last = max(self._last + 1, int(self._clock.now() * 1e6))
        return self._last

    def _trim(self) -> None:
        """Forget the tags that were asked for least recently: their entries will miss."""
        while len(self._current) > MAX_TAGS:
            self._current.popitem(last=False)
            self.generation += 1


class Floors:
    """A ``VersionTable`` for copies: the versions are a shared store's, and only what was heard of it counts.

    A copy is current unless an invalidation of one of its tags was heard since it was fetched: then its version is
    below the tag's floor. Tags that nobody invalidated need no floor.
    """

    def __init__(self) -> None:
        self._floors: dict[str, int] = {}
        self._highest: dict[str, int] = {}  # version of a tag among the copies ever kept
        self.generation = 0

    @property
    def full(self) -> bool:
        """Whether it is time to start afresh, with no copies."""
        return max(len(self._floors), len(self._highest)) >= MAX_TAGS

    def hear(self, versions: Versions) -> None:
        """Tags were invalidated and have these versions now."""
        self.generation += 1
        for tag, version in versions:
            if self._floors.get(tag, -1) < version:
                # A version that is not above all known ones comes from a server whose clock was set back.
                self._floors[tag] = max(version, self._highest.get(tag, -1) + 1)

    def snapshot(self, tags: Iterable[str]) -> Versions:
        return ()  # it is the shared store that gives snapshots

    def refuse(self, entry: Entry, tags: Sequence[str]) -> Absent | None:
        if not self.are_current(entry.versions):
            return Absent("outdated", ())
        return None if carries(entry, tags) else Absent("untagged", ())

    def are_current(self, versions: Versions) -> bool:
        floors = self._floors
        return not floors or all(version >= floors.get(tag, version) for tag, version in versions)

    def carry(self, entry: Entry) -> None:
        highest = self._highest
        for tag, version in entry.versions:
            if highest.get(tag, -1) < version:
                highest[tag] = version

    def drop(self, entry: Entry) -> None:
        """Nothing: ``highest`` is of all copies ever kept."""

    def fault(self, entries: Iterable[Entry]) -> str:
        for entry in entries:
            if any(self._highest.get(tag, -1) < version for tag, version in entry.versions):
                return "a copy has a version that was not noted"
        return ""


def carries(entry: Entry, tags: Sequence[str]) -> bool:
    """Whether ``entry`` is reached by an invalidation of any of ``tags``."""
    return not tags or set(tags) <= {tag for tag, _ in entry.versions}
