"""``GET /admin/feed``: what the dashboard asks for once a second."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping

from stratacache import __version__
from stratacache.gateway.auth import Authenticator
from stratacache.gateway.http import ASGIScope, Receive, Send, send_json
from stratacache.gateway.prepare import join_headers
from stratacache.observe.census import TakeCensus
from stratacache.observe.figures import BUCKETS, Histogram
from stratacache.ports import Clock
from stratacache.types import JSON

STANDING_SECONDS = 5.0
"""How long what the store and the engines say is good: to ask them costs more than all else here."""


class Feed:
    """Totals as counters and histograms, so that whoever asks twice has the time between.

    Args:
        standing: what the store, the index, the engines and the upstreams say of themselves.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        census: TakeCensus,
        standing: Callable[[], Awaitable[dict[str, JSON]]],
        clock: Clock,
    ) -> None:
        self._authenticator = authenticator
        self._census = census
        self._standing = standing
        self._clock = clock
        self._stood: dict[str, JSON] = {}
        self._good_until = float("-inf")

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """As ``/admin/stats``, but ``stages`` and ``upstreams`` are histograms over ``buckets``: upper bounds in
        seconds, and one more count for what is above the last. ``unanswered``: reasons of what was no hit."""
        self._authenticator.identify(join_headers(scope["headers"]), "admin")
        now = self._clock.monotonic()
        if now >= self._good_until:
            self._good_until = now + STANDING_SECONDS
            self._stood = await self._standing()
        census = await self._census()
        figures = census.metrics.figures()
        unanswered: dict[str, int] = defaultdict(int)
        for (_, _, _, outcome, _, reason), count in figures.requests.items():
            if outcome != "hit":
                unanswered[reason] += count
        await send_json(
            send,
            {
                "version": __version__,
                "now": self._clock.now(),
                **census.metrics.summary(),
                "unanswered": unanswered,
                "buckets": BUCKETS,
                "stages": _histograms(figures.histograms["stages"]),
                "upstreams": _histograms(figures.histograms["upstream"]),
                "levels": census.metrics.levels(),
                "workers": census.shares,
                **self._stood,
            },
        )


def _histograms(histograms: Mapping[str, Histogram]) -> dict[str, JSON]:
    return {name: {"sum": one.sum, "counts": one.counts} for name, one in histograms.items()}
