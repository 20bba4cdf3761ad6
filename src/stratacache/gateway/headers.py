"""Response headers: what happened to a request, in the names of the interface contract."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from stratacache.gateway.http import RawHeaders
from stratacache.types import Decision

_PASSED_ON = frozenset(
    {"retry-after", "x-request-id", "openai-organization", "openai-processing-ms", "openai-version"}
)


def decision_headers(decision: Decision) -> RawHeaders:
    """``x-strata-*``, ``Age`` and ``Server-Timing`` for one decision."""
    headers = [
        *_verdict_headers(decision.outcome, decision.tier, decision.reason),
        (b"server-timing", server_timing(decision.stages)),
    ]
    if decision.entry_id is not None:
        headers.append((b"x-strata-entry", decision.entry_id.encode()))
    if decision.age is not None:
        headers.append((b"age", b"%d" % decision.age))
        headers.append((b"x-strata-saved-tokens", b"%d" % decision.saved_tokens))
    if decision.similarity is not None and decision.confidence is not None:
        headers.append((b"x-strata-similarity", b"%.4f" % decision.similarity))
        headers.append((b"x-strata-confidence", b"%.4f" % decision.confidence))
    if decision.prompt_tokens_cached is not None:
        headers.append((b"x-strata-prompt-tokens-cached", b"%d" % decision.prompt_tokens_cached))
    if decision.prompt_divergence:
        headers.append((b"x-strata-prompt-divergence", decision.prompt_divergence.encode()))
    if decision.upstream is not None:
        headers.append((b"x-strata-upstream", decision.upstream.encode()))
    return headers


@lru_cache(maxsize=256)  # outcomes, tiers and reasons are words of short lists
def _verdict_headers(outcome: str, tier: str | None, reason: str) -> tuple[tuple[bytes, bytes], ...]:
    return (
        (b"x-strata-cache", outcome.encode()),
        (b"x-strata-tier", (tier or "none").encode()),
        (b"x-strata-reason", reason.encode()),
    )


def server_timing(stages: Iterable[tuple[str, float]]) -> bytes:
    """The Server-Timing value (W3C): durations in milliseconds."""
    return ", ".join([f"{name};dur={seconds * 1000:.3f}" for name, seconds in stages]).encode()


def passed_on(headers: Iterable[tuple[str, str]]) -> RawHeaders:
    """The upstream's headers that a client may rely on: rate limits, request ids, Retry-After."""
    return [
        (name.encode("latin-1"), value.encode("latin-1", "replace"))
        for name, value in headers
        if name in _PASSED_ON or name.startswith("x-ratelimit-")
    ]
