"""The settings of what is told to others about requests."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from stratacache.settings.section import HOUR, WORD, WORD_PATTERN, Section, duration, meta


class OtelSettings(Section, frozen=True, kw_only=True):
    """Traces, sent to an OpenTelemetry collector as OTLP over HTTP."""

    endpoint: Annotated[
        str, Meta(description="http(s) URL of the collector; /v1/traces is added when it has no path")
    ]
    service_name: Annotated[
        str, meta("what this gateway is called in traces", WORD, pattern=WORD_PATTERN)
    ] = "stratacache"
    sample: Annotated[
        float,
        meta(
            "share of requests that are traced, but for those whose caller has decided",
            "a number from 0 to 1",
            ge=0,
            le=1,
        ),
    ] = 1.0
    per_second: Annotated[
        int,
        meta(
            "at most so many requests a second are traced, but for those whose caller has decided",
            "a whole number from 1 to 100000",
            ge=1,
            le=100_000,
        ),
    ] = 20
    timeout: Annotated[float, duration("a batch of spans may take this long to be sent", 0.1, HOUR)] = 5.0


class ObserveSettings(Section, frozen=True, kw_only=True):
    """Who else hears of requests."""

    otel: Annotated[OtelSettings | None, Meta(description="traces; null for none")] = None
