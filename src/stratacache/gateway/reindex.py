"""``POST /admin/reindex``: all stored questions embedded anew, in the background, while the old index serves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from stratacache.consistency.audit import AuditLog, Outcome, Record, moment, noted
from stratacache.dialects.wire import decode_body
from stratacache.errors import RequestError, VectorIndexError
from stratacache.gateway.auth import Authenticator
from stratacache.gateway.http import ASGIScope, Receive, Send, read_body, send_json
from stratacache.gateway.prepare import join_headers
from stratacache.ports import Clock
from stratacache.types import JSON

MAX_BODY = 1 << 10

STATES = ("idle", "running", "done", "failed")


class Progress(Protocol):
    """How far it is: ``vectors.swapping.ReindexProgress``."""

    @property
    def state(self) -> str: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def total(self) -> int: ...
    @property
    def done(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def reason(self) -> str: ...


class Reindexes(Protocol):
    """What makes the index anew: ``wiring.reindex.Reindexer``."""

    @property
    def progress(self) -> Progress: ...
    def begin(self, ended: Callable[[Progress], Awaitable[None]] | None = None) -> Progress:
        """Raises VectorIndexError: one is running already."""
        ...


class Reindexing:
    """``POST /admin/reindex`` begins, ``GET /admin/reindex`` tells how far it is.

    Args:
        reindexes: None where there is nothing to make anew, and then ``why_not`` says why.
        audit: None when there is no log.
        alone: this process is the whole gateway; else the others' indexes would stay as they are.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        reindexes: Reindexes | None,
        audit: AuditLog | None,
        clock: Clock,
        *,
        why_not: str,
        alone: bool,
    ) -> None:
        self._authenticator = authenticator
        self._reindexes = reindexes
        self._audit = audit
        self._clock = clock
        self._why_not = why_not
        self._alone = alone

    async def begin(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """``{}`` → 202 and the progress; 409 while one is running."""
        headers = join_headers(scope["headers"])
        self._authenticator.identify(headers, "admin")
        body = await read_body(receive, MAX_BODY)
        if body.strip() and decode_body(body):
            raise RequestError("the body must be empty or {}", code="unknown_parameter")
        reindexes = self._required()
        if not self._alone:
            raise RequestError(
                "every worker has an index of its own: restart the gateway, which embeds anew what needs it",
                status=409,
                code="several_workers",
            )
        actor = self._authenticator.actor(headers)
        try:
            progress = reindexes.begin(self.noted(actor))
        except VectorIndexError as error:
            raise RequestError(
                f"{error}; GET /admin/reindex tells how far", status=409, code="reindex_running"
            ) from error
        audited = await self._note(actor, progress, "begun")
        await send_json(send, {**told(progress), "audited": audited}, 202)

    async def progress(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """``{state, fingerprint, total, done, failed, reason}``."""
        self._authenticator.identify(join_headers(scope["headers"]), "admin")
        await send_json(send, told(self._required().progress))

    def noted(self, actor: str) -> Callable[[Progress], Awaitable[None]]:
        """Writes into the audit log how it ended."""

        async def ended(progress: Progress) -> None:
            await self._note(actor, progress, "done" if progress.state == "done" else "failed")

        return ended

    def levels(self) -> dict[str, float]:
        """1 for the state that it is in."""
        now = self._reindexes.progress.state if self._reindexes is not None else "idle"
        return {state: float(state == now) for state in STATES}

    def counts(self) -> dict[str, float]:
        """Questions of the one that is running, or of the last one."""
        if self._reindexes is None:
            return {}
        progress = self._reindexes.progress
        return {name: float(getattr(progress, name)) for name in ("total", "done", "failed")}

    def _required(self) -> Reindexes:
        if self._reindexes is None:
            raise RequestError(self._why_not, status=409, code="no_local_index")
        return self._reindexes

    async def _note(self, actor: str, progress: Progress, outcome: Outcome) -> bool:
        """Write to the log; returns whether it stands there."""
        selection = {"reindex": True, **({"reason": progress.reason} if progress.reason else {})}
        record = Record(
            time=moment(self._clock.now()),
            actor=actor,
            selection=selection,
            dry_run=False,
            outcome=outcome,
            affected=None if outcome == "begun" else progress.done,
            versions={},
        )
        return await noted(self._audit, record, "a reindexing")


def told(progress: Progress) -> Mapping[str, JSON]:
    """The progress as JSON."""
    fields = ("state", "fingerprint", "total", "done", "failed", "reason")
    return {name: getattr(progress, name) for name in fields}
