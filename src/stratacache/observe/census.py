"""What all processes of a gateway have counted together, and each one's share."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

import msgspec

from stratacache.observe.metrics import Metrics


class Share(msgspec.Struct, frozen=True):
    """How many requests a living process has decided."""

    pid: int
    requests: int


class Census(msgspec.Struct, frozen=True):
    """``metrics`` of all processes, those that have ended included; ``shares`` of the living ones."""

    metrics: Metrics
    shares: tuple[Share, ...]


TakeCensus = Callable[[], Awaitable[Census]]


def census_of_one(metrics: Metrics) -> TakeCensus:
    """The census of a gateway that is one process."""

    async def take() -> Census:
        return Census(metrics, (Share(os.getpid(), metrics.requests),))

    return take
