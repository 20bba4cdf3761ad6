"""Takes note of what happens for all who want to know: metrics, the ledger, and traces where they are on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from stratacache.observe.ledger import CheapTier, UsageLedger
from stratacache.observe.metrics import Metrics
from stratacache.policy.prices import Bill, PriceTable, bill, worth
from stratacache.ports import Event
from stratacache.settings import Price
from stratacache.types import Call, Decision, Saving

BATCH = 32
"""Notes that wait to be counted together: a fraction of a millisecond, now and then."""


class Trace(Protocol):
    """Notes what belongs to the request that is being answered: ``observe.tracing``."""

    def decided(self, decision: Decision) -> None: ...
    def called(self, call: Call) -> None: ...


class Observer:
    """A ``ports.Recorder`` that also knows prices.

    Args:
        cheapened: by upstream, whose cache reads parts of prompts there; a provider's where it says nothing.
        trace: None where nothing is traced.
    """

    def __init__(
        self,
        metrics: Metrics,
        ledger: UsageLedger,
        prices: PriceTable,
        cheapened: Mapping[str, CheapTier],
        trace: Trace | None = None,
    ) -> None:
        self._metrics = metrics
        self._ledger = ledger
        self._prices = prices
        self._cheapened = cheapened
        self._trace = trace
        self._waiting: list[Decision | Saving] = []
        metrics.settle_with(self.settle)
        ledger.settle_with(self.settle)
        self._paid: dict[str, tuple[float, float]] = {}  # list price and cost of prompts, by pattern

    def decided(self, decision: Decision) -> None:
        self._wait(decision)
        if self._trace is not None:
            self._trace.decided(decision)

    def saved(self, saving: Saving) -> None:
        self._wait(saving)

    def _wait(self, what: Decision | Saving) -> None:
        # Counted a few at a time: between two requests the processor has forgotten the code and the counters, and
        # counting each by itself took twice the time.
        self._waiting.append(what)
        if len(self._waiting) >= BATCH:
            self.settle()

    def settle(self) -> None:
        """Count what waits; done before anything is read."""
        waiting, self._waiting = self._waiting, []
        for what in waiting:
            if isinstance(what, Decision):
                self._metrics.decided(what)
                self._ledger.decided(what)
            else:
                self._save(what)

    def called(self, call: Call) -> None:
        self.settle()
        price = self._prices.of(call.model)
        charged = bill(price, call.usage) if price is not None else None
        if price is not None and charged is not None and call.purpose == "answer":
            self._learn(price, call, charged)
        tier = self._cheapened.get(call.upstream, "prompt")
        self._metrics.called(call, charged, tier)
        self._ledger.called(call, charged, tier)
        if self._trace is not None:
            self._trace.called(call)

    def _save(self, saving: Saving) -> None:
        price = self._prices.of(saving.model)
        usd = None
        if price is not None:
            usd = worth(price, saving.prompt, saving.completion, share=self._share(price))
        self._metrics.saved(saving, usd)
        self._ledger.saved(saving, usd)

    def wrote(self, result: str) -> None:
        self._metrics.wrote(result)

    def withheld(self, reason: str) -> None:
        self._metrics.withheld(reason)

    def counted(self, event: Event) -> None:
        self._metrics.counted(event)

    def _learn(self, price: Price, call: Call, charged: Bill) -> None:
        listed, paid = self._paid.get(price.model, (0.0, 0.0))
        listed += (call.usage.prompt or 0) * price.input / 1e6
        self._paid[price.model] = (listed, paid + charged.prompt_at_list)

    def _share(self, price: Price) -> float:
        """What prompts at ``price`` have cost of their list price, since the provider's cache reads parts of them."""
        listed, paid = self._paid.get(price.model, (0.0, 0.0))
        return paid / listed if listed else 1.0
