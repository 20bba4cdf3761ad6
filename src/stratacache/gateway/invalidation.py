"""The administrator's endpoints for invalidation: do it, and read who did."""

from __future__ import annotations

from stratacache.consistency.audit import AuditLog
from stratacache.consistency.invalidation import Invalidator
from stratacache.consistency.selection import read_selection
from stratacache.dialects.wire import decode_body
from stratacache.errors import RequestError
from stratacache.gateway.auth import Authenticator
from stratacache.gateway.http import ASGIScope, Receive, Send, read_body, read_number, send_json
from stratacache.gateway.prepare import join_headers

MAX_BODY = 1 << 20  # bytes: 1,000 tags or ids need a tenth of it
MAX_RECORDS = 1000
_DEFAULT_RECORDS = 100


class Invalidation:
    """``POST /admin/invalidate`` and ``GET /admin/audit``.

    Args:
        audit: None when there is no log.
    """

    def __init__(
        self, authenticator: Authenticator, invalidator: Invalidator, audit: AuditLog | None
    ) -> None:
        self._authenticator = authenticator
        self._invalidator = invalidator
        self._audit = audit

    async def invalidate(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """``{tags?, keys?, entries?, tenant?, all?, dry_run?}`` → ``{affected, versions, dry_run, audited}``."""
        headers = join_headers(scope["headers"])
        self._authenticator.identify(headers, "admin")
        selection = read_selection(decode_body(await read_body(receive, MAX_BODY)))
        outcome = await self._invalidator.invalidate(selection, actor=self._authenticator.actor(headers))
        await send_json(send, outcome)

    async def audit(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """``?limit=100`` → ``{enabled, records}``, the newest first."""
        self._authenticator.identify(join_headers(scope["headers"]), "admin")
        limit = read_number(scope, "limit", default=_DEFAULT_RECORDS, most=MAX_RECORDS)
        if self._audit is None:
            await send_json(send, {"enabled": False, "records": []})
            return
        try:
            records = await self._audit.last(limit)
        except (OSError, TimeoutError) as error:
            raise RequestError(
                f"the audit log cannot be read: {getattr(error, 'strerror', None) or 'the disk is slow'}",
                status=500,
                code="audit_unreadable",
            ) from error
        await send_json(send, {"enabled": True, "records": records})
