"""OpenTelemetry spans: one a request, below it one a stage and one a call of a model. Never what was asked or answered.

Needs the extra ``otel``. Names of attributes are those of OpenTelemetry's conventions for HTTP and GenAI (of 2026-12,
still in development), and ``stratacache.*`` for what they have no word for. A request's own span has no ``gen_ai.*``:
tools that add up calls and tokens would count a hit as a call.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from stratacache import __version__
from stratacache.types import Call, Decision

OPERATIONS = {
    "chat.completions": "chat",
    "messages": "chat",
    "responses": "chat",
    "completions": "text_completion",
    "embeddings": "embeddings",
}
"""What GenAI's conventions call an endpoint; another one keeps its name."""

RawHeaders = list[tuple[bytes, bytes]]

_NANO = 1_000_000_000
_CONTEXT_HEADERS = frozenset({b"traceparent", b"tracestate"})

_traced: ContextVar[bool] = ContextVar("traced", default=False)
"""Whether there is a span above. Tasks that a request begins inherit it, and may outlive it."""


class Tracing:
    """Makes the spans of a gateway.

    Args:
        provider: where they go.
        kinds: by upstream, what GenAI's conventions call its provider.
        sample: the share of requests that are traced, but for those whose caller has decided.
        per_second: at most so many: a span costs a good part of a hit, and a busy gateway must not be slowed down.
        draw: uniform draws from [0, 1).
        now: nanoseconds since the epoch.
    """

    def __init__(
        self,
        provider: TracerProvider,
        kinds: Mapping[str, str],
        *,
        sample: float = 1.0,
        per_second: int = 1000,
        draw: Callable[[], float] = random.random,
        now: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("stratacache", __version__)
        self._context = TraceContextTextMapPropagator()
        self._kinds = kinds
        self._sample = sample
        self._draw = draw
        self._per_second = per_second
        self._monotonic = monotonic
        self._second, self._left = 0, 0
        self._now = now

    def wants(self, headers: RawHeaders) -> bool:
        """Whether a request with these headers is traced: it was drawn, or its caller has decided. One that is not
        costs no more than this."""
        if self._draw() < self._sample and self._has_place():
            return True
        for name, _ in headers:  # noqa: SIM110 - any() would make a generator for every request
            if name == b"traceparent":
                return True
        return False

    def _has_place(self) -> bool:
        second = int(self._monotonic())
        if second != self._second:
            self._second, self._left = second, self._per_second
        self._left -= 1
        return self._left >= 0

    @contextmanager
    def request(self, method: str, route: str, headers: RawHeaders) -> Iterator[Callable[[int], None]]:
        """Around a request: its span, a child of the caller's where ``traceparent`` names one. Gives what is to be
        told of the answer's status."""
        carrier = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in headers
            if name in _CONTEXT_HEADERS
        }
        span = self._tracer.start_span(
            f"{method} {route}",
            self._context.extract(carrier),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": method, "http.route": route},
        )

        def answered(status: int) -> None:
            span.set_attribute("http.response.status_code", status)
            if status >= 500:
                span.set_status(StatusCode.ERROR)

        traced = _traced.set(True)
        try:
            with trace.use_span(
                span, end_on_exit=True, record_exception=False, set_status_on_exception=False
            ):
                yield answered
        finally:
            _traced.reset(traced)

    def decided(self, decision: Decision) -> None:
        """Tell the request's span what happened, and make those of its stages, laid end to end before now.

        Of a request for several embeddings, the first input that was decided speaks for all.
        """
        if not _traced.get():
            return
        span = trace.get_current_span()
        if not isinstance(span, ReadableSpan) or not span.is_recording():
            return
        if span.attributes is not None and "stratacache.outcome" in span.attributes:
            return
        told: dict[str, Any] = {
            "model": decision.model,
            "endpoint": decision.endpoint,
            "scene": decision.scene,
            "outcome": decision.outcome,
            "tier": decision.tier,
            "reason": decision.reason,
            "tenant": decision.tenant,
            "upstream": decision.upstream,
            "entry": decision.entry_id,
            "similarity": decision.similarity,
            "confidence": decision.confidence,
            "age": decision.age,
            "saved_tokens": decision.saved_tokens if decision.tier is not None else None,
        }
        span.set_attributes({f"stratacache.{name}": v for name, v in told.items() if v is not None})
        start = self._now() - sum(round(seconds * _NANO) for _, seconds in decision.stages)
        for stage, seconds in decision.stages:
            end = start + round(seconds * _NANO)
            self._tracer.start_span(f"stratacache.{stage}", start_time=start).end(end)
            start = end

    def called(self, call: Call) -> None:
        """Make the span of a call that was answered in full, for a request that is traced; it may have ended."""
        if not _traced.get():
            return
        usage, operation = call.usage, OPERATIONS.get(call.endpoint, call.endpoint or call.purpose)
        end = self._now()
        told: dict[str, Any] = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": self._kinds.get(call.upstream, "openai"),
            "gen_ai.request.model": call.model,
            "gen_ai.usage.input_tokens": usage.prompt,
            "gen_ai.usage.output_tokens": usage.completion,
            "gen_ai.usage.cache_read.input_tokens": usage.cached_prompt,
            "gen_ai.usage.cache_creation.input_tokens": usage.written,
            "http.response.status_code": call.status,
            "stratacache.upstream": call.upstream,
            "stratacache.purpose": call.purpose,
        }
        span = self._tracer.start_span(
            f"{operation} {call.model}",
            kind=SpanKind.CLIENT,
            start_time=end - round(call.seconds * _NANO),
            attributes={name: value for name, value in told.items() if value is not None},
        )
        if call.status >= 400:
            span.set_attribute("error.type", str(call.status))
            span.set_status(StatusCode.ERROR)
        span.end(end)

    def close(self) -> None:
        """Send what waits; blocks for as long as one batch may take."""
        self._provider.shutdown()
