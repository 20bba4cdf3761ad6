"""Invalidates: gives tags new versions in the store, tells this instance at once, and notes it in the audit log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

import msgspec

from stratacache.consistency.audit import AuditLog, Record, moment, noted
from stratacache.consistency.selection import Selection
from stratacache.errors import RequestError, StoreError
from stratacache.ports import Clock, Store
from stratacache.types import Invalidated

log = logging.getLogger(__name__)

TIMEOUT = 8.0  # seconds for the store; below what the command line waits


class Outcome(msgspec.Struct, frozen=True):
    """What was done, or with ``dry_run`` would be: the answer of ``POST /admin/invalidate``.

    ``affected``: at most so many entries, None when the store cannot tell. ``versions`` of the tags after it.
    ``audited``: it stands in the audit log.
    """

    affected: int | None
    versions: Mapping[str, int]
    dry_run: bool
    audited: bool


class Invalidator:
    """The one way by which entries are invalidated.

    Args:
        audit: None when there is no log.
        hear: told of every success at once, for what this instance keeps beside the store.
    """

    def __init__(
        self,
        store: Store,
        audit: AuditLog | None,
        clock: Clock,
        hear: Callable[[Invalidated, Sequence[bytes]], None],
    ) -> None:
        self._store = store
        self._audit = audit
        self._clock = clock
        self._hear = hear

    async def invalidate(self, selection: Selection, *, actor: str) -> Outcome:
        """Do it, or with ``dry_run`` only tell. When it returns, no instance serves what was selected.

        Raises:
            RequestError: 503 when the store failed or took longer than 8 s; some instances may not have heard. A log
                that cannot be written is no failure.
        """
        try:
            async with asyncio.timeout(TIMEOUT):
                done = await self._store.invalidate(
                    selection.tags, selection.digests, dry_run=selection.dry_run
                )
        except (StoreError, TimeoutError) as error:
            log.error("an invalidation by %s failed: %s", actor, error or "the store did not answer")
            await self._note(selection, actor, None)
            raise RequestError(
                "the store failed; some instances may still serve what was selected; try again",
                status=503,
                code="store_unavailable",
            ) from error
        if not selection.dry_run:
            self._hear(done, selection.digests)
        audited = await self._note(selection, actor, done)
        return Outcome(done.affected, dict(done.versions), selection.dry_run, audited)

    async def _note(self, selection: Selection, actor: str, done: Invalidated | None) -> bool:
        """Write to the log; ``done`` is None for a failure. Returns whether it stands there."""
        record = Record(
            time=moment(self._clock.now()),
            actor=actor,
            selection=selection.asked,
            dry_run=selection.dry_run,
            outcome="failed" if done is None else "done",
            affected=done.affected if done else None,
            versions=dict(done.versions) if done else {},
        )
        return await noted(self._audit, record, "an invalidation")
