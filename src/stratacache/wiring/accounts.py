"""Builds what keeps accounts: the price table, the ledger, and the recorder that feeds them and the metrics."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from stratacache.errors import StoreError
from stratacache.observe.ledger import CheapTier, UsageLedger
from stratacache.observe.metrics import Metrics
from stratacache.observe.recorder import Observer
from stratacache.policy.prices import PriceTable
from stratacache.ports import Clock
from stratacache.settings import (
    EmbeddedSettings,
    OpenAISettings,
    Settings,
    packaged_prices,
    read_prices,
)
from stratacache.stores.ledger_file import LedgerFile
from stratacache.types import Scope
from stratacache.wiring.learned import kept_beside
from stratacache.wiring.tracing import open_tracing

log = logging.getLogger(__name__)

MAX_TENANTS = 50


class Accounts:
    """Metrics, ledger and traces; ``recorder`` feeds them all."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.metrics = Metrics(tenants=labelled_tenants(settings))
        self.prices = build_prices(settings)
        self.ledger = build_ledger(settings, clock)
        self.tracing = open_tracing(settings)
        self.recorder = Observer(self.metrics, self.ledger, self.prices, cheapened(settings), self.tracing)

    def start(self) -> None:
        """Begin to write; needs a running loop."""
        self.ledger.start()

    async def close(self) -> None:
        """Write and send what waits. Idempotent."""
        await self.ledger.close()
        if self.tracing is not None:
            await asyncio.to_thread(self.tracing.close)


def build_prices(settings: Settings) -> PriceTable:
    """The configured rows, then the packaged examples."""
    own = () if settings.prices is None else read_prices(Path(settings.prices).expanduser())
    return PriceTable(own, packaged_prices())


def build_ledger(settings: Settings, clock: Clock) -> UsageLedger:
    """Kept beside the store, for all processes of this machine; in memory where there is no place for a file."""
    try:
        return UsageLedger(LedgerFile(kept_beside(settings, "ledger"), clock.now()), clock)
    except StoreError as error:
        log.warning("the ledger is in memory and ends with this process: %s", error)
        return UsageLedger(LedgerFile(None, clock.now()), clock)


def labelled_tenants(settings: Settings) -> list[str]:
    """The tenants that have a label in metrics: the first of the configuration, the same ones in every process."""
    keys = settings.auth.keys if settings.auth is not None else ()
    return list(dict.fromkeys([key.tenant for key in keys]))[:MAX_TENANTS] or [Scope().tenant]


def cheapened(settings: Settings) -> dict[str, CheapTier]:
    """By upstream, whose cache reads parts of prompts: an engine's of one's own, or a provider's."""
    return {
        one.name: "kv"
        if isinstance(one, EmbeddedSettings) or (isinstance(one, OpenAISettings) and one.engine is not None)
        else "prompt"
        for one in settings.upstreams
    }
