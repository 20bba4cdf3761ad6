"""``GET`` and ``POST /admin/review``: people look at semantic answers, one after the other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

import msgspec

from stratacache.consistency.audit import AuditLog, Record, moment, noted
from stratacache.consistency.invalidation import Invalidator
from stratacache.consistency.selection import Selection
from stratacache.dialects.wire import decode_body
from stratacache.errors import RequestError, StoreError, VectorIndexError
from stratacache.gateway.auth import Authenticator
from stratacache.gateway.feedback import MAX_BODY, read_verdict
from stratacache.gateway.http import ASGIScope, Receive, Send, read_body, read_number, read_query, send_json
from stratacache.gateway.prepare import join_headers
from stratacache.pipeline.review import Shown
from stratacache.pipeline.semantic import Kindred
from stratacache.policy.review import Item, Verdict
from stratacache.policy.tags import bucket_tag
from stratacache.ports import Clock
from stratacache.types import JSON

log = logging.getLogger(__name__)

VERDICTS: Mapping[str, Verdict] = {"right": "right", "wrong": "wrong", "skip": "skip"}
MAX_ITEMS = 100
_DEFAULT_ITEMS = 20
_TIMEOUT = 8.0  # seconds for the queue and the store


class Reviewing:
    """The review queue, for administrators.

    Args:
        kindred: None without a semantic tier: then nothing waits.
        audit: None when there is no log.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        kindred: Kindred | None,
        invalidator: Invalidator,
        audit: AuditLog | None,
        clock: Clock,
    ) -> None:
        self._authenticator = authenticator
        self._kindred = kindred
        self._invalidator = invalidator
        self._audit = audit
        self._clock = clock

    async def waiting(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """``?limit=20&tenant=`` → ``{items, lengths, kept}``: some of every stratum in turn."""
        self._authenticator.identify(join_headers(scope["headers"]), "admin")
        limit = read_number(scope, "limit", default=_DEFAULT_ITEMS, most=MAX_ITEMS)
        shown: Sequence[Shown] = []
        lengths: Mapping[str, float] = {}
        kept = False
        if self._kindred is not None:
            queue = self._kindred.review
            try:
                async with asyncio.timeout(_TIMEOUT):
                    shown = await queue.shown(limit, tenant=read_query(scope, "tenant"))
            except (StoreError, TimeoutError) as error:
                raise _unavailable(error) from error
            lengths, kept = queue.lengths, queue.kept
        items = [{**msgspec.structs.asdict(one.item), "answer": one.answer} for one in shown]
        counts = {name: int(count) for name, count in lengths.items()}
        await send_json(send, {"items": items, "lengths": counts, "kept": kept})

    async def settle(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """``{id, verdict: right | wrong | skip, note?}`` → ``{id, verdict, removed, audited}``."""
        headers = join_headers(scope["headers"])
        self._authenticator.identify(headers, "admin")
        body = decode_body(await read_body(receive, MAX_BODY))
        identity, word = read_verdict(body, "id", "GET /admin/review", tuple(VERDICTS))
        verdict, actor = VERDICTS[word], self._authenticator.actor(headers)
        if self._kindred is None:
            raise _gone()
        try:
            async with asyncio.timeout(_TIMEOUT):
                item = await self._kindred.review.find(identity)
        except (StoreError, TimeoutError) as error:
            raise _unavailable(error) from error
        if item is None:
            raise _gone()
        removed = verdict == "wrong" and item.kind == "hit"
        audited = await self._note(item, body, actor, removed=removed)
        await self._settle(self._kindred, item, verdict)
        await send_json(send, {"id": identity, "verdict": verdict, "removed": removed, "audited": audited})

    async def _note(self, item: Item, body: Mapping[str, JSON], actor: str, *, removed: bool) -> bool:
        """Write to the log who judged what, after the answer is gone where it must; 503 while it is not."""
        asked = {"review": body, "entry": item.entry}
        if removed:
            digest = bytes.fromhex(item.entry)
            selection = Selection((bucket_tag(digest),), (digest,), dry_run=False, asked=asked)
            return (await self._invalidator.invalidate(selection, actor=actor)).audited
        record = Record(
            time=moment(self._clock.now()),
            actor=actor,
            outcome="done",
            dry_run=False,
            selection=asked,
            affected=0,
            versions={},
        )
        return await noted(self._audit, record, "a review")

    async def _settle(self, kindred: Kindred, item: Item, verdict: Verdict) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT):
                first = await kindred.review.settle(item, verdict)
        except (StoreError, TimeoutError) as error:
            raise _unavailable(error) from error
        if not first:
            raise _gone()
        if verdict == "skip":
            return
        try:
            await kindred.reviewed(item, right=verdict == "right")
        except (StoreError, VectorIndexError, TimeoutError) as error:
            # Its entry is gone, so what an index still finds answers nobody.
            log.warning("a question whose answer is wrong may still be in an index: %s", error)


def _gone() -> RequestError:
    return RequestError("no such pair waits (any more)", status=404, param="id", code="not_found")


def _unavailable(error: Exception) -> RequestError:
    return RequestError(
        f"the review queue cannot be used now: {error or 'it is slow'}; try again",
        status=503,
        code="store_unavailable",
    )
