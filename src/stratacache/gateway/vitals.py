"""``GET /admin/config``: what the gateway runs with, for whoever examines it from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from stratacache.gateway.auth import Authenticator
from stratacache.gateway.http import ASGIScope, Receive, Send, send_json
from stratacache.gateway.prepare import join_headers
from stratacache.observe.machine import usable_cores
from stratacache.ports import Clock, Embedder
from stratacache.types import JSON


class Embedders(msgspec.Struct, frozen=True):
    """What makes the vectors: as ``configured``, and as those are of that ``serving`` looks among."""

    configured: Embedder
    serving: Embedder


class Vitals:
    """Tells administrators the settings in force, without secrets, and what no setting says.

    Args:
        settings: the masked settings in force.
        embedders: None without a semantic tier.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        settings: Callable[[], Mapping[str, JSON]],
        embedders: Embedders | None,
        clock: Clock,
    ) -> None:
        self._authenticator = authenticator
        self._settings = settings
        self._embedders = embedders
        self._clock = clock

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """``{settings, now, cores, embedder}``: seconds since the epoch, cores, and fingerprints or null."""
        self._authenticator.identify(join_headers(scope["headers"]), "admin")
        both = self._embedders
        embedder = (
            None
            if both is None
            else {"configured": both.configured.fingerprint, "serving": both.serving.fingerprint}
        )
        await send_json(
            send,
            {
                "settings": self._settings(),
                "now": self._clock.now(),
                "cores": usable_cores(),
                "embedder": embedder,
            },
        )
