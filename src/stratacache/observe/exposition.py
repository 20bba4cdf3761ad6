"""Shows figures in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from stratacache.observe.figures import Figures, Histogram
from stratacache.observe.names import AMOUNTS, COUNTERS, GAUGES, Counter


def expose(figures: Figures, gauges: Mapping[str, Mapping[str, float]]) -> bytes:
    """The text; ``gauges`` maps a name of ``names.GAUGES`` to its values by label value."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Snapshot([*_families(figures), *_gauge_families({**figures.levels, **gauges})]))
    return generate_latest(registry)


class _Snapshot:
    """What a registry collects: families computed at the time of the scrape."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _families(figures: Figures) -> Iterable[Metric]:
    requests = CounterMetricFamily(
        "stratacache_requests",
        "Requests by what happened to them.",
        labels=["endpoint", "model", "scene", "outcome", "tier", "reason"],
    )
    for row, count in figures.requests.items():
        requests.add_metric(list(row), count)
    yield requests
    histograms = figures.histograms
    yield _histograms(
        "stratacache_stage_seconds", "Time per stage of a request.", "stage", histograms["stages"]
    )
    yield _histograms(
        "stratacache_upstream_seconds", "Time of whole upstream calls.", "upstream", histograms["upstream"]
    )
    for short, counter in COUNTERS.items():
        yield _counter(counter, figures.counters.get(short, {}))
    for short, counter in AMOUNTS.items():
        yield _counter(counter, figures.amounts.get(short, {}))
    yield CounterMetricFamily(
        "stratacache_singleflight_followers",
        "Requests that joined another's upstream call.",
        value=figures.counters["events"].get("follower", 0),
    )


def _counter(counter: Counter, values: Mapping[str, float]) -> Metric:
    if not counter.labels:
        return CounterMetricFamily(counter.name, counter.help, value=values.get("", 0))
    family = CounterMetricFamily(counter.name, counter.help, labels=counter.labels)
    for joined, count in values.items():
        family.add_metric(joined.split(" ", len(counter.labels) - 1), count)
    return family


def _histograms(name: str, help_text: str, label: str, values: Mapping[str, Histogram]) -> Metric:
    family = HistogramMetricFamily(name, help_text, labels=[label])
    for value, histogram in values.items():
        family.add_metric([value], histogram.cumulative(), histogram.sum)
    return family


def _gauge_families(gauges: Mapping[str, Mapping[str, float]]) -> Iterable[Metric]:
    for name, values in gauges.items():
        gauge = GAUGES[name]
        family = GaugeMetricFamily(name, gauge.help, labels=[gauge.label] if gauge.label else None)
        for value, number in values.items():
            family.add_metric([value] if gauge.label else [], number)
        yield family
