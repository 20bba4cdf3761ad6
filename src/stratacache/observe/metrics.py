"""Counts every decision in plain dictionaries, cheap enough for the hit path."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping

from stratacache.observe.exposition import expose
from stratacache.observe.figures import Figures, Histogram, Row
from stratacache.observe.ledger import CheapTier
from stratacache.observe.names import AMOUNTS, COUNTERS, GAUGES
from stratacache.observe.summary import summarise
from stratacache.observe.visitors import Visitors
from stratacache.policy.prices import Bill
from stratacache.ports import Event
from stratacache.types import JSON, Call, Decision, Saving

MAX_MODELS = 100  # distinct model labels; wildcard upstreams let clients choose names, so the rest is OTHER
OTHER = "other"

_BESIDE = frozenset({"judge", "embedding"})
"""Purposes of calls that are no upstream's answer to a request."""


class Metrics:
    """A Recorder that keeps totals: of this process since it started, or of all whose figures were added.

    Args:
        models: the model labels in use. Totals made again and again share one set, or a model's counts could move
            to "other" from one time to the next, and counters must not go back.
        tenants: those that get a label of their own.
    """

    def __init__(self, models: set[str] | None = None, *, tenants: Collection[str] = ()) -> None:
        self._requests: dict[Row, int] = defaultdict(int)
        self._stages: dict[str, Histogram] = defaultdict(Histogram)
        self._upstream: dict[str, Histogram] = defaultdict(Histogram)
        self._counters: dict[str, dict[str, int]] = {name: defaultdict(int) for name in COUNTERS}
        self._amounts: dict[str, dict[str, float]] = {name: defaultdict(float) for name in AMOUNTS}
        self._histograms = {"stages": self._stages, "upstream": self._upstream}
        self._prompt_tokens = self._counters["prompt_tokens"]
        self._prompt_tokens.update(fresh=0, read=0, write=0)
        self._saved = self._counters["saved"]
        self._levels: dict[str, dict[str, float]] = {}
        self._gauges: dict[str, Callable[[], Mapping[str, float]]] = {}
        self._models = models if models is not None else set()
        self._tenants = frozenset(tenants)
        self._by_tenant, self._by_user = self._counters["tenants"], self._counters["users"]
        self._visitors = Visitors()
        self._settle: Callable[[], None] = lambda: None

    def watch(self, gauge: str, read: Callable[[], Mapping[str, float]]) -> None:
        """Show ``gauge``, of ``names.GAUGES`` and one that each process has of its own; ``read`` gives it by label
        value."""
        self._gauges[gauge] = read

    def settle_with(self, settle: Callable[[], None]) -> None:
        """``settle`` counts what waits to be; it is called before anything is read."""
        self._settle = settle

    def figures(self) -> Figures:
        """Everything counted so far. Shares state with this object: encode it before anything else is counted."""
        self._settle()
        return Figures(
            self._requests, {**self._histograms}, {**self._counters}, {**self._amounts}, self.levels()
        )

    def add(self, figures: Figures) -> None:
        """Add what another process has counted."""
        for (endpoint, model, scene, outcome, tier, reason), count in figures.requests.items():
            self._requests[(endpoint, self._label(model), scene, outcome, tier, reason)] += count
        for name, histograms in figures.histograms.items():
            for label, histogram in histograms.items():
                self._histograms[name][label].add(histogram)
        for name, counters in figures.counters.items():
            for label, count in counters.items():
                self._counters[name][label] += count
        for name, amounts in figures.amounts.items():
            for label, amount in amounts.items():
                self._amounts[name][label] += amount
        for name, levels in figures.levels.items():
            combine = max if GAUGES[name].combine == "max" else sum
            held = self._levels.setdefault(name, {})
            for label, level in levels.items():
                held[label] = combine((held[label], level)) if label in held else level

    def levels(self) -> dict[str, dict[str, float]]:
        """The gauges that processes have of their own, as of now."""
        return self._levels | {name: dict(read()) for name, read in self._gauges.items()}

    def decided(self, decision: Decision) -> None:
        model = self._label(decision.model)
        tier = decision.tier or "none"
        row = (decision.endpoint, model, decision.scene, decision.outcome, tier, decision.reason)
        self._requests[row] += 1
        tenant = decision.tenant if decision.tenant in self._tenants else OTHER
        self._by_tenant[f"{tenant} {decision.outcome} {tier}"] += 1
        self._by_user[f"{self._visitors.age(decision.tenant, decision.user)} {decision.outcome}"] += 1
        for stage, seconds in decision.stages:
            self._stages[stage].observe(seconds)

    def called(self, call: Call, bill: Bill | None = None, tier: CheapTier = "prompt") -> None:
        """``bill`` is what it cost, None when that is not known; ``tier`` read what was read of its prompt."""
        usage, amounts = call.usage, self._amounts
        if call.purpose not in _BESIDE:
            self._upstream[call.upstream].observe(call.seconds)
            self._prompt_tokens["read"] += usage.cached_prompt or 0
            self._prompt_tokens["write"] += usage.written or 0
            self._prompt_tokens["fresh"] += usage.fresh or 0
            self._counters["completion_tokens"][""] += usage.completion or 0
            if call.limit is not None and usage.completion is not None:
                limits = self._counters["limits"]
                limits["allowed"] += call.limit
                limits["used"] += usage.completion
        if bill is None:
            return
        amounts["spent_usd"][call.purpose] += bill.spent
        amounts["write_premium_usd"][""] += bill.write_premium
        if usage.cached_prompt is not None:
            amounts["saved_usd"][tier] += bill.read_saved

    def saved(self, saving: Saving, usd: float | None = None) -> None:
        """``usd`` is what that would have cost, None when that is not known."""
        self._saved[saving.tier] += saving.prompt + saving.completion
        if usd is not None:
            self._amounts["saved_usd"][saving.tier] += usd

    def refused(self, endpoint: str, status: int, code: str) -> None:
        """The gateway itself refused a request to ``endpoint``, a route of its own, or failed to answer it."""
        self._counters["refused"][f"{endpoint} {status} {code}"] += 1

    def wrote(self, result: str) -> None:
        self._counters["writeback"][result] += 1

    def withheld(self, reason: str) -> None:
        self._counters["withheld"][reason] += 1

    def counted(self, event: Event) -> None:
        self._counters["events"][event] += 1

    def looked(self, result: str) -> None:
        """The semantic tier looked, and it came to ``result``."""
        self._counters["looked"][result] += 1

    def learned(self, result: str) -> None:
        """An answer was stored, and its question kept for the semantic tier or not."""
        self._counters["learned"][result] += 1

    def judged(self, result: str) -> None:
        """A stored answer was compared with a fresh one."""
        self._counters["judged"][result] += 1

    def shadowed(self, scene: str, result: str) -> None:
        """An answer that would have been given compared to ``result`` with the one that was."""
        self._counters["shadow"][f"{scene} {result}"] += 1

    def reviewed(self, verdict: str) -> None:
        """Somebody worked off an item of the review queue."""
        self._counters["reviewed"][verdict] += 1

    def replied(self, replica: str, result: str) -> None:
        """A call to ``replica`` came to ``result``."""
        self._counters["replicas"][f"{replica} {result}"] += 1

    def retried(self, upstream: str, why: str) -> None:
        """A call to ``upstream`` is made again, as it came to ``why``."""
        self._counters["retries"][f"{upstream} {why}"] += 1

    def placed(self, upstream: str, why: str) -> None:
        """A replica of ``upstream`` was chosen for the reason ``why``."""
        self._counters["placed"][f"{upstream} {why}"] += 1

    def planned(self, provider: str, decision: str) -> None:
        """A call of ``provider`` was sent with ``decision`` about its prompt cache."""
        self._counters["planned"][f"{provider} {decision}"] += 1

    def diverged(self, cause: str) -> None:
        """A prompt parted from the one before it, for ``cause``."""
        self._counters["diverged"][cause] += 1

    def sibling(self, result: str) -> None:
        """A call waited for another that wrote its prefix, which ended with ``result``."""
        self._counters["siblings"][result] += 1

    def prompt_read(self, provider: str, result: str) -> None:
        """A marked call of ``provider`` was answered, and its prompt read from the cache with ``result``."""
        self._counters["prompt_read"][f"{provider} {result}"] += 1

    def _label(self, model: str) -> str:
        if model not in self._models and model != OTHER:
            if len(self._models) >= MAX_MODELS:
                return OTHER
            self._models.add(model)
        return model

    def requests_by_scene(self) -> dict[str, int]:
        """How many requests of each scene were decided."""
        counts: dict[str, int] = defaultdict(int)
        for (_, _, scene, *_), count in self._requests.items():
            counts[scene] += count
        return counts

    @property
    def requests(self) -> int:
        """How many requests were decided."""
        self._settle()
        return sum(self._requests.values())

    def summary(self) -> dict[str, JSON]:
        """Totals for ``/admin/stats``."""
        return summarise(self.figures())

    def expose(self, gauges: Mapping[str, Mapping[str, float]]) -> bytes:
        """The Prometheus text format; ``gauges`` maps a name of ``names.GAUGES`` to its values by label value."""
        return expose(self.figures(), gauges)
