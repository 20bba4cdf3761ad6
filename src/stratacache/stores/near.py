"""Copies of a shared store's entries in this process: answers at memory speed that are never stale.

A copy answers only while this instance knows every invalidation that has returned anywhere (``Bulletin.current``),
and only if none of them hit it. So a lost message costs round trips, never a stale answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from stratacache.ports import Bulletin, Clock, Recorder, Store
from stratacache.stores.memory import MemoryStore
from stratacache.stores.versions import Floors
from stratacache.types import Absent, Entry, Invalidated, PutResult, StoreStats


class NearCache:
    """A ``ports.Store`` before a shared one.

    Args:
        store: the shared one; all writes go to it.
        bulletin: its news.
        max_bytes: bound of the copies.
    """

    waits = True

    def __init__(
        self, store: Store, bulletin: Bulletin, recorder: Recorder, clock: Clock, *, max_bytes: int
    ) -> None:
        self._store = store
        self._bulletin = bulletin
        self._recorder = recorder
        self._clock = clock
        self._max_bytes = max_bytes
        self._losses = 0
        self._burials: set[asyncio.Task[None]] = set()  # copies that are given up, a few at a time
        self._floors = Floors()
        self._copies = MemoryStore(max_bytes, clock, self._floors)

    async def get(self, digest: bytes, tags: Sequence[str] = ()) -> Entry | Absent:
        """From the copies when they may be trusted, else from the store."""
        if self._bulletin.current():
            copy = await self._copies.get(digest, tags)
            # An expired one is kept for when the upstream fails; another instance may have stored its successor.
            if isinstance(copy, Entry) and self._clock.now() < copy.expires_at:
                self._recorder.counted("near_hit")
                return copy
        return await self.fetch(digest, tags)

    async def fetch(self, digest: bytes, tags: Sequence[str] = ()) -> Entry | Absent:
        """From the store: its entry may be newer than the copy here, which it replaces."""
        losses = self._losses
        found = await self._store.get(digest, tags)
        if isinstance(found, Entry):
            await self._copy(digest, found, losses)
        return found

    async def put(self, digest: bytes, entry: Entry) -> PutResult:
        losses = self._losses
        result = await self._store.put(digest, entry)
        if result == "stored":
            await self._copy(digest, entry, losses)
        return result

    async def invalidate(
        self, tags: Sequence[str], digests: Sequence[bytes] = (), *, dry_run: bool = False
    ) -> Invalidated:
        done = await self._store.invalidate(tags, digests, dry_run=dry_run)
        if not dry_run:
            self.hear(done, digests)
        return done

    def hear(self, what: Invalidated | None, digests: Sequence[bytes]) -> None:
        """Take note of an invalidation anywhere; None when some went unheard. To be called on the event loop."""
        if what is None:
            self._start_afresh()
        self._bound()
        if what is not None:
            self._floors.hear(what.versions)
            self._copies.forget(digests)

    async def _copy(self, digest: bytes, entry: Entry, losses: int) -> None:
        """Keep what the store gave or took, unless news were lost meanwhile."""
        if losses == self._losses:
            await self._copies.put(digest, entry)
            self._bound()

    def _bound(self) -> None:
        """Callers name tags, so there may be any number of them to know of."""
        if self._floors.full:
            self._start_afresh()

    def _start_afresh(self) -> None:
        self._losses += 1  # what was fetched before is not copied after
        burial = asyncio.create_task(self._copies.close(), name="drop copies")
        self._burials.add(burial)
        burial.add_done_callback(self._burials.discard)
        self._floors = Floors()
        self._copies = MemoryStore(self._max_bytes, self._clock, self._floors)

    async def stats(self) -> StoreStats:
        """The shared store's own figures."""
        return await self._store.stats()

    async def check(self) -> None:
        await self._copies.check()
        await self._store.check()

    async def close(self) -> None:
        await self._copies.close()
        await asyncio.gather(*self._burials)
        await self._store.close()
