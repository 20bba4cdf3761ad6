"""Counts every decision in plain dictionaries, cheap enough for the hit path, and shows them to Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from stratacache.types import JSON, Decision, TierName, Usage

BUCKETS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
"""Upper bounds in seconds: a hit is well under a millisecond, a long answer takes a minute."""

MAX_MODELS = 100  # distinct model labels; wildcard upstreams let clients choose names, so the rest is "other"


class Histogram:
    """Counts of seconds per bucket of :data:`BUCKETS`, and their sum."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.sum += seconds

    def quantile(self, q: float) -> float | None:
        """The upper bound, in seconds, of the bucket that holds quantile ``q``; None without data."""
        total = sum(self.counts)
        if total == 0:
            return None
        below = 0
        for bound, count in zip((*BUCKETS, float("inf")), self.counts, strict=True):
            below += count
            if below >= q * total:
                return bound
        return float("inf")

    def cumulative(self) -> list[tuple[str, float]]:
        """Prometheus buckets: (le, count of values at or under it)."""
        below = 0
        rows = []
        for bound, count in zip((*map(str, BUCKETS), "+Inf"), self.counts, strict=True):
            below += count
            rows.append((bound, float(below)))
        return rows


class Metrics:
    """A Recorder that keeps totals since the process started."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, str, str, str, str, str], int] = defaultdict(int)
        self._stages: dict[str, Histogram] = defaultdict(Histogram)
        self._upstream: dict[str, Histogram] = defaultdict(Histogram)
        self._prompt_tokens = {"fresh": 0, "read": 0}
        self._completion_tokens = 0
        self._saved: dict[str, int] = defaultdict(int)
        self._writeback: dict[str, int] = defaultdict(int)
        self._withheld: dict[str, int] = defaultdict(int)
        self._followers = 0
        self._models: set[str] = set()

    def decided(self, decision: Decision) -> None:
        model = decision.model
        if model not in self._models:
            if len(self._models) < MAX_MODELS:
                self._models.add(model)
            else:
                model = "other"
        tier = decision.tier or "none"
        row = (decision.endpoint, model, decision.scene, decision.outcome, tier, decision.reason)
        self._requests[row] += 1
        for stage, seconds in decision.stages:
            self._stages[stage].observe(seconds)

    def called(self, upstream: str, seconds: float, usage: Usage) -> None:
        self._upstream[upstream].observe(seconds)
        read = usage.cached_prompt or 0
        self._prompt_tokens["read"] += read
        self._prompt_tokens["fresh"] += max(0, (usage.prompt or 0) - read)
        self._completion_tokens += usage.completion or 0

    def saved(self, tier: TierName, tokens: int) -> None:
        self._saved[tier] += tokens

    def wrote(self, result: str) -> None:
        self._writeback[result] += 1

    def withheld(self, reason: str) -> None:
        self._withheld[reason] += 1

    def followed(self) -> None:
        self._followers += 1

    def summary(self) -> dict[str, JSON]:
        """Totals as JSON for ``/admin/stats``; times in seconds, quantiles as bucket bounds."""
        outcomes: dict[str, int] = defaultdict(int)
        reasons: dict[str, int] = defaultdict(int)
        tiers: dict[str, int] = defaultdict(int)
        for (_, _, _, outcome, tier, reason), count in self._requests.items():
            outcomes[outcome] += count
            reasons[reason] += count
            if outcome == "hit":
                tiers[tier] += count
        return {
            "requests": sum(outcomes.values()),
            "outcomes": dict(outcomes),
            "reasons": dict(reasons),
            "hits_by_tier": dict(tiers),
            "upstream_calls": {name: sum(h.counts) for name, h in self._upstream.items()},
            "prompt_tokens": dict(self._prompt_tokens),
            "completion_tokens": self._completion_tokens,
            "saved_tokens": dict(self._saved),
            "singleflight_followers": self._followers,
            "writeback": dict(self._writeback),
            "withheld": dict(self._withheld),
            "stages": {name: _times(h) for name, h in self._stages.items()},
            "upstreams": {name: _times(h) for name, h in self._upstream.items()},
        }

    def expose(self, gauges: Mapping[str, Mapping[str, float]]) -> bytes:
        """The Prometheus text format; ``gauges`` maps a metric's name to its values by label value.

        A gauge's single label is ``state`` for ``kv_blocks`` and ``upstream`` for ``upstream_ready``; a value under
        "" has no label.
        """
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Snapshot([*self._families(), *_gauge_families(gauges)]))
        return generate_latest(registry)

    def _families(self) -> Iterable[Metric]:
        requests = CounterMetricFamily(
            "stratacache_requests",
            "Requests by what happened to them.",
            labels=["endpoint", "model", "scene", "outcome", "tier", "reason"],
        )
        for row, count in self._requests.items():
            requests.add_metric(list(row), count)
        yield requests
        yield _histograms("stratacache_stage_seconds", "Time per stage of a request.", "stage", self._stages)
        yield _histograms(
            "stratacache_upstream_seconds", "Time of whole upstream calls.", "upstream", self._upstream
        )
        yield _counters("stratacache_saved_tokens", "Tokens no upstream was asked for.", "tier", self._saved)
        yield _counters("stratacache_prompt_tokens", "Prompt tokens sent.", "kind", self._prompt_tokens)
        yield _counters("stratacache_writeback", "Settled write-backs.", "result", self._writeback)
        yield _counters("stratacache_withheld", "Answers not stored, by reason.", "reason", self._withheld)
        yield CounterMetricFamily(
            "stratacache_completion_tokens", "Completion tokens received.", value=self._completion_tokens
        )
        yield CounterMetricFamily(
            "stratacache_singleflight_followers",
            "Requests that joined another's upstream call.",
            value=self._followers,
        )


class _Snapshot:
    """What a registry collects: families computed at the time of the scrape."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _times(histogram: Histogram) -> dict[str, JSON]:
    count = sum(histogram.counts)
    bounds = {name: histogram.quantile(q) for name, q in (("p50", 0.5), ("p99", 0.99))}
    finite = {name: None if bound == float("inf") else bound for name, bound in bounds.items()}
    return {"count": count, "mean": histogram.sum / count if count else None, **finite}


def _counters(name: str, help_text: str, label: str, values: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, help_text, labels=[label])
    for value, count in values.items():
        family.add_metric([value], count)
    return family


def _histograms(name: str, help_text: str, label: str, values: Mapping[str, Histogram]) -> Metric:
    family = HistogramMetricFamily(name, help_text, labels=[label])
    for value, histogram in values.items():
        family.add_metric([value], histogram.cumulative(), histogram.sum)
    return family


GAUGES = {
    "stratacache_store_entries": ("Entries in the store.", None),
    "stratacache_store_bytes": ("Bytes in the store.", None),
    "stratacache_kv_blocks": ("KV blocks of the embedded engine.", "state"),
    "stratacache_upstream_ready": ("1 when the upstream can answer.", "upstream"),
}


def _gauge_families(gauges: Mapping[str, Mapping[str, float]]) -> Iterable[Metric]:
    for name, values in gauges.items():
        help_text, label = GAUGES[name]
        family = GaugeMetricFamily(name, help_text, labels=[label] if label else None)
        for value, number in values.items():
            family.add_metric([value] if label else [], number)
        yield family
