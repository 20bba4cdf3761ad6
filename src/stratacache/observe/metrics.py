"""Counts every decision in plain dictionaries, cheap enough for the hit path, and shows them to Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from stratacache.ports import Event
from stratacache.types import JSON, Decision, TierName, Usage

BUCKETS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
"""Upper bounds in seconds: a hit is well under a millisecond, a long answer takes a minute."""

MAX_MODELS = 100  # distinct model labels; wildcard upstreams let clients choose names, so the rest is OTHER
OTHER = "other"

Row = tuple[str, str, str, str, str, str]
"""endpoint, model, scene, outcome, tier, reason"""


class Histogram(msgspec.Struct):
    """Counts of seconds per bucket of :data:`BUCKETS`, and their sum."""

    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    sum: float = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.sum += seconds

    def add(self, other: Histogram) -> None:
        self.counts = [mine + more for mine, more in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum

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


class Figures(msgspec.Struct):
    """What one process has counted, or several together: plain values that can be sent and added up.

    ``levels`` are the gauges that each process has of its own, by name and label value.
    """

    requests: dict[Row, int] = {}
    histograms: dict[str, dict[str, Histogram]] = {}
    counters: dict[str, dict[str, int]] = {}
    levels: dict[str, dict[str, float]] = {}


class Metrics:
    """A Recorder that keeps totals: of this process since it started, or of all whose figures were added.

    Args:
        models: the model labels in use. Totals made again and again share one set, or a model's counts could move
            to "other" from one time to the next, and counters must not go back.
    """

    def __init__(self, models: set[str] | None = None) -> None:
        self._requests: dict[Row, int] = defaultdict(int)
        self._stages: dict[str, Histogram] = defaultdict(Histogram)
        self._upstream: dict[str, Histogram] = defaultdict(Histogram)
        self._prompt_tokens: dict[str, int] = defaultdict(int, fresh=0, read=0)
        self._completion_tokens: dict[str, int] = defaultdict(int)
        self._saved: dict[str, int] = defaultdict(int)
        self._writeback: dict[str, int] = defaultdict(int)
        self._withheld: dict[str, int] = defaultdict(int)
        self._events: dict[str, int] = defaultdict(int)
        self._looked: dict[str, int] = defaultdict(int)
        self._learned: dict[str, int] = defaultdict(int)
        self._judged: dict[str, int] = defaultdict(int)
        self._replicas: dict[str, int] = defaultdict(int)
        self._retries: dict[str, int] = defaultdict(int)
        self._placed: dict[str, int] = defaultdict(int)
        self._reviewed: dict[str, int] = defaultdict(int)
        # What travels between processes, by the name that it has there.
        self._histograms = {"stages": self._stages, "upstream": self._upstream}
        self._counters = {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": self._completion_tokens,
            "saved": self._saved,
            "writeback": self._writeback,
            "withheld": self._withheld,
            "events": self._events,
            "looked": self._looked,
            "learned": self._learned,
            "judged": self._judged,
            "replicas": self._replicas,
            "retries": self._retries,
            "placed": self._placed,
            "reviewed": self._reviewed,
        }
        self._levels: dict[str, dict[str, float]] = {}
        self._gauges: dict[str, Callable[[], Mapping[str, float]]] = {}
        self._models = models if models is not None else set()

    def watch(self, gauge: str, read: Callable[[], Mapping[str, float]]) -> None:
        """Show ``gauge``, one of :data:`GAUGES` that each process has of its own; ``read`` gives it by label value."""
        self._gauges[gauge] = read

    def figures(self) -> Figures:
        """Everything counted so far. Shares state with this object: encode it before anything else is counted."""
        return Figures(self._requests, {**self._histograms}, {**self._counters}, self.levels())

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
        for stage, seconds in decision.stages:
            self._stages[stage].observe(seconds)

    def called(self, upstream: str, seconds: float, usage: Usage) -> None:
        self._upstream[upstream].observe(seconds)
        read = usage.cached_prompt or 0
        self._prompt_tokens["read"] += read
        self._prompt_tokens["fresh"] += max(0, (usage.prompt or 0) - read)
        self._completion_tokens[""] += usage.completion or 0

    def saved(self, tier: TierName, tokens: int) -> None:
        self._saved[tier] += tokens

    def wrote(self, result: str) -> None:
        self._writeback[result] += 1

    def withheld(self, reason: str) -> None:
        self._withheld[reason] += 1

    def counted(self, event: Event) -> None:
        self._events[event] += 1

    def looked(self, result: str) -> None:
        """The semantic tier looked, and it came to ``result``."""
        self._looked[result] += 1

    def learned(self, result: str) -> None:
        """An answer was stored, and its question kept for the semantic tier or not."""
        self._learned[result] += 1

    def judged(self, result: str) -> None:
        """A stored answer was compared with a fresh one."""
        self._judged[result] += 1

    def reviewed(self, verdict: str) -> None:
        """Somebody worked off an item of the review queue."""
        self._reviewed[verdict] += 1

    def replied(self, replica: str, result: str) -> None:
        """A call to ``replica`` came to ``result``."""
        self._replicas[_pair(replica, result)] += 1

    def retried(self, upstream: str, why: str) -> None:
        """A call to ``upstream`` is made again, as it came to ``why``."""
        self._retries[_pair(upstream, why)] += 1

    def placed(self, upstream: str, why: str) -> None:
        """A replica of ``upstream`` was chosen for the reason ``why``."""
        self._placed[_pair(upstream, why)] += 1

    def _label(self, model: str) -> str:
        if model not in self._models and model != OTHER:
            if len(self._models) >= MAX_MODELS:
                return OTHER
            self._models.add(model)
        return model

    @property
    def requests(self) -> int:
        """How many requests were decided."""
        return sum(self._requests.values())

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
            "completion_tokens": self._completion_tokens[""],
            "saved_tokens": dict(self._saved),
            "singleflight_followers": self._events["follower"],
            "writeback": dict(self._writeback),
            "withheld": dict(self._withheld),
            "events": dict(self._events),
            "semantic": {
                "lookups": dict(self._looked),
                "learned": dict(self._learned),
                "labels": dict(self._judged),
                "reviewed": dict(self._reviewed),
            },
            "replicas": dict(self._replicas),
            "retries": dict(self._retries),
            "placed": dict(self._placed),
            "stages": {name: _times(h) for name, h in self._stages.items()},
            "upstreams": {name: _times(h) for name, h in self._upstream.items()},
        }

    def expose(self, gauges: Mapping[str, Mapping[str, float]]) -> bytes:
        """The Prometheus text format; ``gauges`` maps a name of :data:`GAUGES` to its values by label value."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Snapshot([*self._families(), *_gauge_families({**self.levels(), **gauges})]))
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
            "stratacache_completion_tokens", "Completion tokens received.", value=self._completion_tokens[""]
        )
        yield _counters("stratacache_events", "What happened beside answering.", "event", self._events)
        yield _counters(
            "stratacache_semantic_lookups", "Semantic look-ups by outcome.", "result", self._looked
        )
        yield _counters(
            "stratacache_semantic_learned",
            "Stored answers by what became of their question.",
            "result",
            self._learned,
        )
        yield _counters(
            "stratacache_semantic_labels", "Stored answers compared with fresh ones.", "result", self._judged
        )
        yield _counters(
            "stratacache_review_verdicts",
            "Verdicts of people on the review queue.",
            "verdict",
            self._reviewed,
        )
        yield _pairs("stratacache_replica_calls", "Calls of replicas.", ("replica", "result"), self._replicas)
        yield _pairs("stratacache_upstream_retries", "Calls made again.", ("upstream", "why"), self._retries)
        yield _pairs("stratacache_placements", "Choices of a replica.", ("upstream", "why"), self._placed)
        yield CounterMetricFamily(
            "stratacache_singleflight_followers",
            "Requests that joined another's upstream call.",
            value=self._events["follower"],
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


def _pair(one: str, other: str) -> str:
    """Two labels as one key: counts that travel between processes have one."""
    return f"{one} {other}"


def _pairs(name: str, help_text: str, labels: tuple[str, str], values: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, help_text, labels=labels)
    for pair, count in values.items():
        family.add_metric(pair.split(" ", 1), count)
    return family


def _histograms(name: str, help_text: str, label: str, values: Mapping[str, Histogram]) -> Metric:
    family = HistogramMetricFamily(name, help_text, labels=[label])
    for value, histogram in values.items():
        family.add_metric([value], histogram.cumulative(), histogram.sum)
    return family


class Gauge(msgspec.Struct, frozen=True):
    """``label`` names the one label, None without; ``combine`` makes one level of those that several processes have.

    Without ``combine`` all processes see the same level, and the one that is asked tells it.
    """

    help: str
    label: str | None = None
    combine: Literal["sum", "max"] | None = None


GAUGES = {
    "stratacache_store_entries": Gauge("Entries in the store."),
    "stratacache_store_bytes": Gauge("Bytes in the store."),
    "stratacache_kv_blocks": Gauge("KV blocks of the embedded engine.", "state"),
    "stratacache_upstream_ready": Gauge("1 when the upstream can answer.", "upstream"),
    "stratacache_question_filter_questions": Gauge("Questions that the filter knows, about."),
    "stratacache_question_filter_fill": Gauge("Share of the filter's bits that are set."),
    "stratacache_question_filter_false_positive_rate": Gauge(
        "New questions that it takes for known.", "kind"
    ),
    "stratacache_index_vectors": Gauge("Questions in the semantic index."),
    "stratacache_index_lag_seconds": Gauge(
        "Seconds since the index held all that the question log does.", combine="max"
    ),
    "stratacache_reindex_state": Gauge("1 for the state that embedding anew is in.", "state", "max"),
    "stratacache_reindex_questions": Gauge("Questions that are embedded anew.", "kind", "sum"),
    "stratacache_semantic_observed_error": Gauge(
        "Share of semantic answers that were wrong.", "scene", "max"
    ),
    "stratacache_semantic_observed_error_low": Gauge("Its lower confidence limit.", "scene", "max"),
    "stratacache_semantic_observed_error_high": Gauge("Its upper confidence limit.", "scene", "max"),
    "stratacache_semantic_alarm": Gauge(
        "1 while semantic answers are less right than believed.", "scene", "max"
    ),
    "stratacache_review_queue": Gauge("Pairs that wait for people.", "stratum", "max"),
    "stratacache_replica_up": Gauge("1 when the replica is well.", "replica", "max"),
    "stratacache_replica_active": Gauge("Calls that the replica is answering.", "replica", "sum"),
    "stratacache_replica_believed_blocks": Gauge(
        "Blocks of prompts (256 bytes) that the replica is believed to hold.", "replica", "max"
    ),
    "stratacache_engine_kv_usage": Gauge("Share of the engine's KV memory in use.", "replica", "max"),
    "stratacache_engine_capacity_tokens": Gauge("Tokens that its KV memory holds.", "replica", "max"),
    "stratacache_engine_prefix_queried_tokens": Gauge(
        "Prompt tokens looked up in the engine's prefix cache since it started.", "replica", "max"
    ),
    "stratacache_engine_prefix_hit_tokens": Gauge("Those of them that were found.", "replica", "max"),
    "stratacache_engine_prefix_hit_rate": Gauge(
        "Share found of late, of engines that tell no counts.", "replica", "max"
    ),
    "stratacache_engine_preemptions": Gauge("Sequences put back since it started.", "replica", "max"),
    "stratacache_engine_running": Gauge("Requests that the engine computes.", "replica", "max"),
    "stratacache_engine_waiting": Gauge("Requests that wait in the engine.", "replica", "max"),
    "stratacache_breaker_state": Gauge("0 closed, 1 half open, 2 open.", "dependency", "max"),
}


REPLICA_GAUGES = {
    "stratacache_replica_up": "up",
    "stratacache_replica_active": "active",
    "stratacache_replica_believed_blocks": "believed_blocks",
    "stratacache_engine_kv_usage": "kv_usage",
    "stratacache_engine_capacity_tokens": "capacity",
    "stratacache_engine_prefix_queried_tokens": "queried_tokens",
    "stratacache_engine_prefix_hit_tokens": "hit_tokens",
    "stratacache_engine_prefix_hit_rate": "hit_rate",
    "stratacache_engine_preemptions": "preemptions",
    "stratacache_engine_running": "running",
    "stratacache_engine_waiting": "waiting",
}
"""Gauges of replicas, by what ``upstream.replicas`` calls them."""


def _gauge_families(gauges: Mapping[str, Mapping[str, float]]) -> Iterable[Metric]:
    for name, values in gauges.items():
        gauge = GAUGES[name]
        family = GaugeMetricFamily(name, gauge.help, labels=[gauge.label] if gauge.label else None)
        for value, number in values.items():
            family.add_metric([value] if gauge.label else [], number)
        yield family
