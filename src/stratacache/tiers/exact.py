"""L1: the answer to the same request, letter for letter after normalisation."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

from stratacache.errors import StoreDown, StoreError
from stratacache.ports import Clock
from stratacache.types import Absent, Entry, Hit, Key, Miss

log = logging.getLogger(__name__)

Get = Callable[[bytes, Sequence[str]], Awaitable[Entry | Absent]]


class ExactTier:
    """Looks entries up by digest and trusts none whose canonical form differs.

    Args:
        get: as ``ports.Store.get``. A store that waits is to have a time limit of its own (``stores.guarded``).
        clock: for ages.
    """

    def __init__(self, get: Get, clock: Clock) -> None:
        self._get = get
        self._clock = clock

    async def lookup(
        self, key: Key, tags: Sequence[str], *, max_age: float | None = None, min_fresh: float = 0.0
    ) -> Hit | Miss:
        """The entry for ``key`` if its form is equal and it carries ``tags``.

        It must be no older than ``max_age`` seconds and have ``min_fresh`` seconds left. Never raises. A miss brings
        the snapshot that a new answer may be stored under, unless the store failed.
        """
        try:
            found = await self._get(key.digest, tags)
        except StoreError as error:
            if not isinstance(error, StoreDown):  # which would be said at every request
                log.warning("exact lookup failed: %s", error)
            return Miss(error.code)
        except Exception:
            log.exception("exact lookup failed in a way that its store does not announce")
            return Miss("store_error")
        if isinstance(found, Absent):
            return Miss(found.reason, found.versions)
        if found.form != key.form:
            return Miss("collision", found.versions)
        now = self._clock.now()
        stale = staleness(found, now, max_age, min_fresh)
        if stale is not None:
            return Miss(stale, found.versions, found)
        return Hit(found, "exact", "negative" if found.negative else "exact", age_of(found, now))


def age_of(entry: Entry, now: float) -> float:
    """Seconds; not negative when a clock went back."""
    return max(0.0, now - entry.created_at)


def staleness(
    entry: Entry, now: float, max_age: float | None, min_fresh: float
) -> Literal["expired", "too_old"] | None:
    """Why ``entry`` is not young enough to answer, None when it is. All in seconds."""
    if now >= entry.expires_at:
        return "expired"
    if (max_age is not None and now - entry.created_at > max_age) or now + min_fresh > entry.expires_at:
        return "too_old"
    return None
