"""Shows figures as the JSON of ``/admin/stats``."""

from __future__ import annotations

from collections import defaultdict

from stratacache.observe.figures import Figures, Histogram
from stratacache.types import JSON


def summarise(figures: Figures) -> dict[str, JSON]:
    """Totals; times in seconds, quantiles as bucket bounds."""
    outcomes: dict[str, int] = defaultdict(int)
    reasons: dict[str, int] = defaultdict(int)
    tiers: dict[str, int] = defaultdict(int)
    for (_, _, _, outcome, tier, reason), count in figures.requests.items():
        outcomes[outcome] += count
        reasons[reason] += count
        if outcome == "hit":
            tiers[tier] += count
    counted, times = figures.counters, figures.histograms
    return {
        "requests": sum(outcomes.values()),
        "outcomes": dict(outcomes),
        "reasons": dict(reasons),
        "hits_by_tier": dict(tiers),
        "upstream_calls": {name: sum(h.counts) for name, h in times["upstream"].items()},
        "prompt_tokens": dict(counted["prompt_tokens"]),
        "completion_tokens": counted["completion_tokens"].get("", 0),
        "completion_limits": dict(counted["limits"]),
        "saved_tokens": dict(counted["saved"]),
        "singleflight_followers": counted["events"].get("follower", 0),
        "writeback": dict(counted["writeback"]),
        "withheld": dict(counted["withheld"]),
        "events": dict(counted["events"]),
        "semantic": {
            "lookups": dict(counted["looked"]),
            "learned": dict(counted["learned"]),
            "labels": dict(counted["judged"]),
            "shadow": dict(counted["shadow"]),
            "reviewed": dict(counted["reviewed"]),
        },
        "replicas": dict(counted["replicas"]),
        "retries": dict(counted["retries"]),
        "placed": dict(counted["placed"]),
        "refusals": dict(counted["refused"]),
        "tenants": dict(counted["tenants"]),
        "users": dict(counted["users"]),
        "saved_usd": dict(figures.amounts["saved_usd"]),
        "spent_usd": dict(figures.amounts["spent_usd"]),
        "stages": {name: _times(h) for name, h in times["stages"].items()},
        "upstreams": {name: _times(h) for name, h in times["upstream"].items()},
    }


def _times(histogram: Histogram) -> dict[str, JSON]:
    count = sum(histogram.counts)
    bounds = {name: histogram.quantile(q) for name, q in (("p50", 0.5), ("p99", 0.99))}
    finite = {name: None if bound == float("inf") else bound for name, bound in bounds.items()}
    return {"count": count, "mean": histogram.sum / count if count else None, **finite}
