"""The metrics that Stratacache shows: names, help texts and labels, each once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec


class Counter(msgspec.Struct, frozen=True):
    """``name`` is Prometheus', without its ``_total``; values are kept by their labels joined by spaces, "" without."""

    name: str
    help: str
    labels: tuple[str, ...] = ()


COUNTERS: Mapping[str, Counter] = {
    "tenants": Counter(
        "stratacache_tenant_requests", "Requests by tenant and what happened.", ("tenant", "outcome", "tier")
    ),
    "users": Counter(
        "stratacache_user_requests", "Requests of new and of returning users.", ("user", "outcome")
    ),
    "refused": Counter(
        "stratacache_refusals", "Requests that the gateway itself refused.", ("endpoint", "status", "code")
    ),
    "saved": Counter("stratacache_saved_tokens", "Tokens no upstream was asked for.", ("tier",)),
    "prompt_tokens": Counter("stratacache_prompt_tokens", "Prompt tokens sent.", ("kind",)),
    "completion_tokens": Counter("stratacache_completion_tokens", "Completion tokens received."),
    "limits": Counter(
        "stratacache_completion_limit_tokens",
        "Of calls that limit their answer: the tokens that were allowed, and that were used.",
        ("kind",),
    ),
    "writeback": Counter("stratacache_writeback", "Settled write-backs.", ("result",)),
    "withheld": Counter("stratacache_withheld", "Answers not stored, by reason.", ("reason",)),
    "events": Counter("stratacache_events", "What happened beside answering.", ("event",)),
    "looked": Counter("stratacache_semantic_lookups", "Semantic look-ups by outcome.", ("result",)),
    "learned": Counter(
        "stratacache_semantic_learned", "Stored answers by what became of their question.", ("result",)
    ),
    "judged": Counter("stratacache_semantic_labels", "Stored answers compared with fresh ones.", ("result",)),
    "shadow": Counter(
        "stratacache_semantic_shadow",
        "Answers that shadow mode would have given, by how they compared.",
        ("scene", "result"),
    ),
    "reviewed": Counter(
        "stratacache_review_verdicts", "Verdicts of people on the review queue.", ("verdict",)
    ),
    "replicas": Counter("stratacache_replica_calls", "Calls of replicas.", ("replica", "result")),
    "retries": Counter("stratacache_upstream_retries", "Calls made again.", ("upstream", "why")),
    "planned": Counter(
        "stratacache_prompt_plans",
        "Calls by what was done for their provider's prompt cache.",
        ("provider", "decision"),
    ),
    "diverged": Counter(
        "stratacache_prompt_divergences", "Prompts that part from the one before them, by cause.", ("cause",)
    ),
    "siblings": Counter(
        "stratacache_prompt_siblings",
        "Calls that waited for another that wrote their prefix, by how that ended.",
        ("result",),
    ),
    "prompt_read": Counter(
        "stratacache_prompt_reads", "Marked calls by what the provider read of them.", ("provider", "result")
    ),
    "placed": Counter("stratacache_placements", "Choices of a replica.", ("upstream", "why")),
}
"""By the short name that counts travel under."""

AMOUNTS: Mapping[str, Counter] = {
    "saved_usd": Counter("stratacache_saved_usd", "US dollars saved, by the price table.", ("tier",)),
    "spent_usd": Counter("stratacache_spent_usd", "US dollars spent on calls, by the same.", ("purpose",)),
    "write_premium_usd": Counter(
        "stratacache_write_premium_usd",
        "Of them, for writing to providers' prompt caches beyond the list price.",
    ),
}
"""As :data:`COUNTERS`, of US dollars."""


class Gauge(msgspec.Struct, frozen=True):
    """``label`` names the one label, None without; ``combine`` makes one level of those that several processes have.

    Without ``combine`` all processes see the same level, and the one that is asked tells it.
    """

    help: str
    label: str | None = None
    combine: Literal["sum", "max"] | None = None


GAUGES = {
    "stratacache_store_entries": Gauge(
        "Entries in the store; of Redis and Memcached all keys of the servers."
    ),
    "stratacache_store_bytes": Gauge(
        "Bytes in the store; of Redis and Memcached what the servers use in all."
    ),
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
