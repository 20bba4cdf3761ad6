"""The counters: exact sums, bounded labels, a text that Prometheus reads."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from stratacache.observe.figures import BUCKETS, Figures, Histogram
from stratacache.observe.metrics import MAX_MODELS, Metrics
from stratacache.observe.names import GAUGES, Gauge
from stratacache.policy.prices import Bill
from stratacache.types import Call, Decision, Saving, Usage

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def decision(model: str = "m", **more: object) -> Decision:
    fields = {"endpoint": "chat.completions", "model": model, "scene": "default", "outcome": "miss",
              "reason": "not_found", **more}  # fmt: skip
    return Decision(**fields)  # type: ignore[arg-type]


def call(usage: Usage, upstream: str = "u", seconds: float = 0.5) -> Call:
    return Call(upstream, "m", usage, seconds=seconds)


def samples(metrics: Metrics, gauges: dict[str, dict[str, float]] | None = None) -> Samples:
    text = metrics.expose(gauges or {}).decode()
    return {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def test_a_fresh_gateway_exposes_no_nonsense() -> None:
    got = samples(Metrics())
    assert got[("stratacache_singleflight_followers_total", ())] == 0
    assert got[("stratacache_prompt_tokens_total", (("kind", "fresh"),))] == 0
    assert Metrics().summary()["requests"] == 0


def test_decisions_are_counted_by_their_labels() -> None:
    metrics = Metrics()
    for _ in range(3):
        metrics.decided(decision())
    metrics.decided(decision(outcome="hit", reason="exact", tier="exact", stages=(("key", 0.0002),)))
    got = samples(metrics)
    labels = {"endpoint": "chat.completions", "model": "m", "scene": "default"}
    miss = {**labels, "outcome": "miss", "tier": "none", "reason": "not_found"}
    hit = {**labels, "outcome": "hit", "tier": "exact", "reason": "exact"}
    assert got[("stratacache_requests_total", tuple(sorted(miss.items())))] == 3
    assert got[("stratacache_requests_total", tuple(sorted(hit.items())))] == 1
    assert got[("stratacache_stage_seconds_count", (("stage", "key"),))] == 1
    summary = metrics.summary()
    assert summary["outcomes"] == {"miss": 3, "hit": 1}
    assert summary["hits_by_tier"] == {"exact": 1}


def test_models_beyond_the_bound_share_a_label() -> None:
    metrics = Metrics()
    for number in range(MAX_MODELS + 200):
        metrics.decided(decision(f"model-{number}"))
    metrics.decided(decision("model-0"))
    got = samples(metrics)
    by_model = {
        dict(labels)["model"]: value for (name, labels), value in got.items() if "cache_requests" in name
    }
    assert len(by_model) == MAX_MODELS + 1
    assert by_model["other"] == 200
    assert by_model["model-0"] == 2


def test_label_values_are_escaped() -> None:
    metrics = Metrics()
    name = 'a"b\\c\nd {x="y"} 1'
    metrics.decided(decision(name))
    assert any(("model", name) in labels for _, labels in samples(metrics))


def test_tokens_are_split_into_read_and_fresh_and_unreported_ones_count_as_none() -> None:
    metrics = Metrics()
    metrics.called(call(Usage(prompt=100, completion=7, cached_prompt=64)))
    metrics.called(call(Usage(prompt=40, completion=None, cached_prompt=20, written_5m=4, written_1h=6)))
    metrics.called(call(Usage()))
    got = samples(metrics)
    assert got[("stratacache_prompt_tokens_total", (("kind", "read"),))] == 84
    assert got[("stratacache_prompt_tokens_total", (("kind", "write"),))] == 10
    assert got[("stratacache_prompt_tokens_total", (("kind", "fresh"),))] == 46
    assert got[("stratacache_completion_tokens_total", ())] == 7
    assert got[("stratacache_upstream_seconds_count", (("upstream", "u"),))] == 3
    assert got[("stratacache_upstream_seconds_sum", (("upstream", "u"),))] == 1.5


def test_gauges_carry_their_label() -> None:
    got = samples(
        Metrics(),
        {"stratacache_kv_blocks": {"free": 3, "cached": 2}, "stratacache_store_entries": {"": 7}},
    )
    assert got[("stratacache_kv_blocks", (("state", "free"),))] == 3
    assert got[("stratacache_store_entries", ())] == 7


@given(st.lists(st.floats(0, 200), max_size=50))
def test_a_histogram_counts_every_value_once(values: list[float]) -> None:
    histogram = Histogram()
    for value in values:
        histogram.observe(value)
    rows = histogram.cumulative()
    assert rows[-1] == ("+Inf", len(values))
    for (bound, count), limit in zip(rows, BUCKETS, strict=False):
        assert float(bound) == limit
        assert count == sum(value <= limit for value in values)
    assert histogram.sum == pytest.approx(sum(values))


@given(st.lists(st.floats(0, 200), min_size=1, max_size=50), st.sampled_from([0.01, 0.5, 0.99, 1.0]))
def test_a_quantile_is_the_bound_of_the_bucket_that_holds_it(values: list[float], q: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.observe(value)
    bound = histogram.quantile(q)
    assert bound is not None
    assert sum(value <= bound for value in values) >= q * len(values)
    lower = [b for b in BUCKETS if b < bound]
    if lower:
        assert sum(value <= lower[-1] for value in values) < q * len(values)


def test_without_data_there_is_no_quantile_and_an_endless_one_is_not_json_infinity() -> None:
    assert Histogram().quantile(0.5) is None
    metrics = Metrics()
    metrics.called(call(Usage(), seconds=1e6))
    assert metrics.summary()["upstreams"]["u"]["p50"] is None


def sent(metrics: Metrics) -> Figures:
    """The figures of ``metrics`` as another process gets them."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(metrics.figures()), type=Figures)


def total(parts: Sequence[Figures], models: set[str] | None = None) -> Metrics:
    whole = Metrics(models)
    for part in parts:
        whole.add(part)
    return whole


def happen(metrics: Metrics, kind: int, number: int) -> None:
    """One event of ``kind`` that differs by ``number``."""
    if kind == 0:
        metrics.decided(decision(f"model-{number}", stages=(("key", 2.0**-number), ("exact", number / 4))))
    elif kind == 1:
        usage = Usage(prompt=number, completion=3, cached_prompt=number // 2)
        # Sums of dollars that are exact in binary, whatever their order.
        bill = Bill(spent=number / 4, write_premium=0.25, read_saved=0.5, prompt_at_list=1.0)
        metrics.called(call(usage, f"u{number % 2}", number / 2), bill, "kv" if number % 3 else "prompt")
    elif kind == 2:
        metrics.saved(Saving("exact", "t", "m", number, 1), number / 8)
    elif kind == 3:
        metrics.wrote("stored" if number % 2 else "failed")
    elif kind == 4:
        metrics.withheld("truncated")
    else:
        metrics.counted("follower")


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5), st.integers(0, 9)), max_size=60))
def test_the_figures_of_several_processes_add_up_to_those_of_one(events: list[tuple[int, int, int]]) -> None:
    one, parts = Metrics(), [Metrics() for _ in range(3)]
    for part, kind, number in events:
        happen(one, kind, number)
        happen(parts[part], kind, number)
    whole = total([sent(part) for part in parts])
    assert samples(whole) == samples(one)
    assert whole.summary() == one.summary()
    assert samples(total([sent(whole)])) == samples(one)


def test_added_figures_are_copied() -> None:
    one = Metrics()
    one.decided(decision(stages=(("key", 0.1),)))
    figures = sent(one)
    whole = total([figures, figures])
    whole.decided(decision(stages=(("key", 0.1),)))
    assert samples(total([figures])) == samples(one)


def test_a_model_that_has_a_label_of_its_own_keeps_it_in_every_later_total() -> None:
    first, second = Metrics(), Metrics()
    for number in range(MAX_MODELS - 10):
        first.decided(decision(f"first-{number}"))
    for number in range(20):
        second.decided(decision(f"second-{number}"))
    models: set[str] = set()
    before = samples(total([sent(first), sent(second)], models))
    for number in range(50):
        first.decided(decision(f"late-{number}"))
    after = samples(total([sent(first), sent(second)], models))
    assert len(models) == MAX_MODELS
    assert all(after[row] >= count for row, count in before.items())
    assert sum(v for (name, _), v in after.items() if name == "stratacache_requests_total") == (
        MAX_MODELS - 10 + 20 + 50
    )


@pytest.mark.parametrize(("combine", "expected"), [("sum", {"a": 5, "b": 1}), ("max", {"a": 3, "b": 1})])
def test_levels_that_each_process_has_are_combined(
    combine: str, expected: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(GAUGES, "level", Gauge("A level.", "of", combine))  # type: ignore[arg-type]
    first, second = Metrics(), Metrics()
    now = {"a": 3.0}
    first.watch("level", lambda: now)
    second.watch("level", lambda: {"a": 2.0, "b": 1.0})
    whole = total([sent(first), sent(second)])
    got = samples(whole)
    assert {label: got[("level", (("of", label),))] for label in expected} == expected
    now["a"] = 9.0
    assert samples(first)[("level", (("of", "a"),))] == 9.0
