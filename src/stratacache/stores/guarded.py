"""Keeps a store that is slow or down from slowing requests: a time budget for look-ups and a circuit breaker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from stratacache.errors import StoreDown, StoreError, StoreSlow
from stratacache.policy.breaker import FAILURES, Breaker, BreakerState
from stratacache.ports import Clock, Store
from stratacache.types import Absent, Entry, Invalidated, PutResult, StoreStats

log = logging.getLogger(__name__)


class GuardedStore:
    """A ``ports.Store`` whose ``get`` takes no longer than its budget, and none at all while the breaker is open.

    Writes pass unguarded, as nobody waits for them, and an administrator's invalidation is always tried.

    Args:
        budget: seconds that a look-up may take.
    """

    waits = True

    def __init__(self, store: Store, clock: Clock, *, budget: float) -> None:
        self._store = store
        self._clock = clock
        self._budget = budget
        self._breaker = Breaker()

    @property
    def breaker_state(self) -> BreakerState:
        return self._breaker.state(self._clock.monotonic())

    async def get(self, digest: bytes, tags: Sequence[str] = ()) -> Entry | Absent:
        if not self._breaker.allows(self._clock.monotonic()):
            raise StoreDown("the store is left alone for a while, as it failed too often")
        try:
            async with asyncio.timeout(self._budget):
                found = await self._store.get(digest, tags)
        except TimeoutError as error:
            self._failed()
            raise StoreSlow(f"the store did not answer within {self._budget:g} s") from error
        except StoreError:
            self._failed()
            raise
        if self._breaker.succeeded():
            log.warning("the store answers again")
        return found

    def _failed(self) -> None:
        if self._breaker.failed(self._clock.monotonic()):
            log.warning("the store failed %d times in a row: it is left alone for a while", FAILURES)

    async def put(self, digest: bytes, entry: Entry) -> PutResult:
        return await self._store.put(digest, entry)

    async def invalidate(
        self, tags: Sequence[str], digests: Sequence[bytes] = (), *, dry_run: bool = False
    ) -> Invalidated:
        return await self._store.invalidate(tags, digests, dry_run=dry_run)

    async def stats(self) -> StoreStats:
        return await self._store.stats()

    async def check(self) -> None:
        await self._store.check()

    async def close(self) -> None:
        await self._store.close()
