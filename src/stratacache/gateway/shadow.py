"""``GET /admin/shadow``: what the semantic tier would have answered in shadow mode, and how often rightly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from stratacache.gateway.auth import Authenticator
from stratacache.gateway.http import ASGIScope, Receive, Send, send_json
from stratacache.gateway.prepare import join_headers
from stratacache.observe.census import TakeCensus
from stratacache.pipeline.semantic import Kindred
from stratacache.policy.shadow import shadow_scene


class ShadowReport:
    """Tells administrators.

    Args:
        kindred: None without a semantic tier.
        max_error: of a scene.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        kindred: Kindred | None,
        census: TakeCensus,
        max_error: Callable[[str], float],
    ) -> None:
        self._authenticator = authenticator
        self._kindred = kindred
        self._census = census
        self._max_error = max_error

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """``{mode, lookups, hits, scenes}``, since the gateway started; scenes as ``policy.shadow``."""
        self._authenticator.identify(join_headers(scope["headers"]), "admin")
        census = await self._census()
        semantic = census.metrics.summary()["semantic"]
        results: dict[str, dict[str, int]] = defaultdict(dict)
        for label, count in semantic["shadow"].items():
            scene, _, result = label.rpartition(" ")
            results[scene][result] = count
        requests = census.metrics.requests_by_scene()
        scenes = [
            shadow_scene(scene, counts, requests.get(scene, 0), self._max_error(scene))
            for scene, counts in sorted(results.items())
        ]
        await send_json(
            send,
            {
                "mode": self._kindred.tier.mode if self._kindred is not None else "off",
                "lookups": sum(semantic["lookups"].values()),
                "hits": semantic["lookups"].get("shadow_hit", 0),
                "scenes": scenes,
            },
        )
