"""``GET /admin/divergences``: where prompts parted from those before them, and why."""

from __future__ import annotations

from stratacache.gateway.auth import Authenticator
from stratacache.gateway.http import ASGIScope, Receive, Send, send_json
from stratacache.gateway.prepare import join_headers
from stratacache.tiers.prefixes import Prefixes, told


class Divergences:
    """Tells administrators the last divergences of this process, the newest first.

    Args:
        prefixes: None when the prompt tier is off.
    """

    def __init__(self, authenticator: Authenticator, prefixes: Prefixes | None) -> None:
        self._authenticator = authenticator
        self._prefixes = prefixes

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """The list, with the shape of each place but no text."""
        self._authenticator.identify(join_headers(scope["headers"]), "admin")
        recent = self._prefixes.recent if self._prefixes is not None else ()
        await send_json(send, {"divergences": [told(one) for one in reversed(recent)]})
