"""Erases a tenant: first nothing of it may answer, then nothing of it is kept."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from stratacache.consistency.invalidation import Invalidator
from stratacache.consistency.selection import Selection
from stratacache.policy.tags import tenant_tag
from stratacache.ports import Clock, Listing, QuestionLog, Store

log = logging.getLogger(__name__)

_TOGETHER = 200

Step = Callable[[str], Awaitable[int]]
"""Erases what is kept somewhere of a tenant; returns how many rows there were. Raises StoreError."""

Retract = Callable[[bytes, float], Awaitable[None]]


class Erased(msgspec.Struct, frozen=True):
    """How much of each kind was erased. ``entries`` is None where the store cannot list what it has: there they are
    unusable, and end with their lives. ``audited``: the invalidation stands in the audit log."""

    entries: int | None
    questions: int
    audited: bool
    elsewhere: Mapping[str, int]


class Eraser:
    """Erases tenants.

    Args:
        listing: None where the store cannot name its entries.
        question_log: None without a semantic tier, or where a vector server keeps the questions: then ``retract`` tells
            it of each.
        elsewhere: what else keeps something of tenants, by name.
    """

    def __init__(
        self,
        invalidator: Invalidator,
        store: Store,
        listing: Listing | None,
        question_log: QuestionLog | None,
        retract: Retract | None,
        elsewhere: Mapping[str, Step],
        clock: Clock,
    ) -> None:
        self._invalidator = invalidator
        self._store = store
        self._listing = listing
        self._question_log = question_log
        self._retract = retract
        self._elsewhere = elsewhere
        self._clock = clock

    async def erase(self, tenant: str, *, actor: str) -> Erased:
        """Erase all of ``tenant``. What it asks from now on is stored anew.

        A step that fails leaves the rest of it in place, though unusable: do it again.

        Raises:
            RequestError: 503, the invalidation failed.
            StoreError, VectorIndexError, TimeoutError: a later step failed.
        """
        began = self._clock.now()
        asked = {"tenant": tenant, "erase": True}
        selection = Selection((tenant_tag(tenant),), (), dry_run=False, asked=asked)
        outcome = await self._invalidator.invalidate(selection, actor=actor)
        entries, kept = await self._erase_entries(tenant, began)
        questions = 0
        if self._question_log is not None and kept is not None:
            questions = await self._question_log.forget(kept, began)
        elsewhere = {name: await step(tenant) for name, step in self._elsewhere.items()}
        return Erased(entries, questions, outcome.audited, elsewhere)

    async def _erase_entries(self, tenant: str, until: float) -> tuple[int | None, set[bytes] | None]:
        """How many entries were removed, and the digests of all others: questions of no entry may be the tenant's."""
        if self._listing is None:
            return None, None
        erased, kept = 0, set[bytes]()
        after: bytes | None = b""
        while after is not None:
            page = await self._listing.scan(after, _TOGETHER, dead=True)
            gone = {
                digest: entry
                for digest, entry in page.entries
                if entry.tenant == tenant and entry.created_at <= until
            }
            kept |= {digest for digest, _ in page.entries if digest not in gone}
            if gone:
                await self._store.invalidate((), [*gone])
            if self._question_log is None and self._retract is not None:
                for digest, entry in gone.items():
                    await self._retract(digest, entry.gone_at)
            erased += len(gone)
            after = page.after
        return erased, kept
