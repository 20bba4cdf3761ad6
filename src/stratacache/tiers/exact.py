"""L1: the answer to the same request, letter for letter after normalisation."""

from __future__ import annotations

import asyncio
import logging

from stratacache.errors import StoreError
from stratacache.ports import Clock, Store
from stratacache.types import Hit, Key, Miss

log = logging.getLogger(__name__)


class ExactTier:
    """Looks entries up by digest and trusts none whose canonical form differs.

    Args:
        store: where entries live.
        clock: for ages.
        budget: seconds a lookup may take before it counts as a miss.
    """

    def __init__(self, store: Store, clock: Clock, *, budget: float) -> None:
        self._store = store
        self._clock = clock
        self._budget = budget

    async def lookup(self, key: Key, *, max_age: float | None = None) -> Hit | Miss:
        """The entry for ``key`` if its form is equal and it is younger than ``max_age`` s. Never raises."""
        try:
            if self._store.waits:
                async with asyncio.timeout(self._budget):
                    entry = await self._store.get(key.digest)
            else:
                entry = await self._store.get(key.digest)
        except TimeoutError:
            return Miss("store_slow")
        except StoreError as error:
            log.warning("exact lookup failed: %s", error)
            return Miss("store_error")
        except Exception:
            log.exception("exact lookup failed in a way that its store does not announce")
            return Miss("store_error")
        if entry is None:
            return Miss("not_found")
        if entry.form != key.form:
            return Miss("collision")
        age = max(0.0, self._clock.now() - entry.created_at)
        if max_age is not None and age > max_age:
            return Miss("too_old")
        return Hit(entry, "exact", "exact", age)
