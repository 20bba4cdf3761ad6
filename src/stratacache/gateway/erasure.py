"""``POST /admin/erase``: all that is kept of a tenant goes."""

from __future__ import annotations

import msgspec

from stratacache.consistency.erasure import Eraser
from stratacache.consistency.selection import is_tenant
from stratacache.dialects.wire import decode_body
from stratacache.errors import RequestError, StoreError, VectorIndexError
from stratacache.gateway.auth import Authenticator
from stratacache.gateway.http import ASGIScope, Receive, Send, read_body, send_json
from stratacache.gateway.prepare import join_headers

MAX_BODY = 1 << 10


class Erasure:
    """For administrators."""

    def __init__(self, authenticator: Authenticator, eraser: Eraser) -> None:
        self._authenticator = authenticator
        self._eraser = eraser

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """``{tenant}`` → ``{entries, questions, audited, elsewhere}``, counts of what is erased."""
        headers = join_headers(scope["headers"])
        self._authenticator.identify(headers, "admin")
        body = decode_body(await read_body(receive, MAX_BODY))
        tenant = body.get("tenant")
        if not isinstance(tenant, str) or not is_tenant(tenant) or len(body) != 1:
            raise RequestError('the body must be {"tenant": its name}', param="tenant", code="invalid_value")
        try:
            erased = await self._eraser.erase(tenant, actor=self._authenticator.actor(headers))
        except (StoreError, VectorIndexError, TimeoutError) as error:
            raise RequestError(
                f"nothing of the tenant answers any more, but not all is erased yet: {error or 'it is slow'}",
                status=503,
                code="store_unavailable",
            ) from error
        await send_json(send, msgspec.to_builtins(erased))
