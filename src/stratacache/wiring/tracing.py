"""Opens tracing where the settings ask for it. Its libraries are loaded then and not before."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from stratacache import __version__
from stratacache.errors import SettingsError
from stratacache.settings import AnthropicSettings, EmbeddedSettings, OtelSettings, Settings

if TYPE_CHECKING:
    from stratacache.observe.tracing import Tracing

TRACES = "/v1/traces"


def open_tracing(settings: Settings) -> Tracing | None:
    """None when it is off. Raises SettingsError: the extra is not installed."""
    otel = settings.observe.otel
    if otel is None:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased

        from stratacache.observe.tracing import Tracing
    except ImportError as error:
        raise SettingsError(f"observe.otel needs {error.name}: pip install 'stratacache[otel]'") from error
    resource = Resource.create({"service.name": otel.service_name, "service.version": __version__})
    # What is begun here is drawn by us; who comes with a trace has decided.
    provider = TracerProvider(sampler=ParentBased(ALWAYS_ON), resource=resource, shutdown_on_exit=False)
    exporter = OTLPSpanExporter(address(otel), timeout=otel.timeout)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Tracing(provider, provider_names(settings), sample=otel.sample, per_second=otel.per_second)


def address(otel: OtelSettings) -> str:
    """Where spans are sent: ``http://host:4318`` → ``http://host:4318/v1/traces``."""
    parts = urlsplit(otel.endpoint)
    return urlunsplit(parts._replace(path=parts.path if parts.path.strip("/") else TRACES))


def provider_names(settings: Settings) -> dict[str, str]:
    """By upstream, what GenAI's conventions call who provides its models, as far as its kind says."""
    names = {}
    for one in settings.upstreams:
        if isinstance(one, AnthropicSettings):
            names[one.name] = "anthropic"
        else:
            names[one.name] = "stratacache" if isinstance(one, EmbeddedSettings) else "openai"
    return names
