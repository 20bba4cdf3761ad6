"""Traces: spans per request, stage and call with the conventions' names, at a real OTLP receiver, and no prompts."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from tests.fakes.upstream import FakeUpstream, Reply
from tests.harness import Gateway, question, running_gateway, settings_from

from stratacache.errors import SettingsError
from stratacache.observe.tracing import Tracing
from stratacache.settings import OtelSettings
from stratacache.wiring import accounts
from stratacache.wiring.tracing import address, open_tracing

SECRET = "my secret prompt"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Where the spans of gateways go that are started now."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(accounts, "open_tracing", lambda settings: Tracing(provider, {"fake": "openai"}))
    yield exporter
    for span in exporter.get_finished_spans():
        assert SECRET not in span.to_json()
        assert "Hello from" not in span.to_json()


def named(spans: Sequence[ReadableSpan], name: str) -> list[ReadableSpan]:
    return [span for span in spans if span.name == name]


def told(span: ReadableSpan) -> dict[str, Any]:
    assert span.attributes is not None
    return dict(span.attributes)


async def test_a_miss_has_a_span_for_each_stage_and_one_for_the_call(
    spans: InMemorySpanExporter, fake: FakeUpstream
) -> None:
    async with running_gateway(fake) as gateway:
        fake.default = Reply(usage=(12, 5, 8))
        await gateway.ask(question(SECRET))
    found = spans.get_finished_spans()
    (server,) = named(found, "POST /v1/chat/completions")
    (call,) = named(found, "chat fake-model")
    assert (server.kind, call.kind) == (SpanKind.SERVER, SpanKind.CLIENT)
    stages = [span for span in found if span.name.startswith("stratacache.")]
    assert [span.name for span in stages] == ["stratacache.key", "stratacache.exact", "stratacache.upstream"]
    assert server.context is not None
    for child in (*stages, call):
        assert child.parent is not None
        assert child.parent.span_id == server.context.span_id
    ends = [span.end_time for span in stages]
    assert ends == sorted(ends, key=lambda end: end or 0)
    assert told(call) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "fake-model",
        "gen_ai.usage.input_tokens": 12,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 8,
        "http.response.status_code": 200,
        "stratacache.upstream": "fake",
        "stratacache.purpose": "answer",
    }
    facts = told(server)
    assert facts["http.response.status_code"] == 200
    assert (facts["stratacache.outcome"], facts["stratacache.reason"]) == ("miss", "not_found")
    assert not any(name.startswith("gen_ai.") for name in facts)


async def test_a_hit_calls_nobody_and_belongs_to_the_caller_s_trace(
    spans: InMemorySpanExporter, fake: FakeUpstream
) -> None:
    async with running_gateway(fake) as gateway:
        await gateway.ask(question(SECRET))
        await gateway.stored()
        spans.clear()
        trace = "4bf92f3577b34da6a3ce929d0e0e4736"
        await gateway.ask(question(SECRET), {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"})
    found = spans.get_finished_spans()
    (server,) = named(found, "POST /v1/chat/completions")
    assert server.context is not None
    assert f"{server.context.trace_id:032x}" == trace
    assert named(found, "chat fake-model") == []
    facts = told(server)
    assert (facts["stratacache.tier"], facts["stratacache.saved_tokens"]) == ("exact", 17)


async def test_streams_are_traced_to_their_end_and_failures_are_errors(
    spans: InMemorySpanExporter, fake: FakeUpstream
) -> None:
    async with running_gateway(fake) as gateway:
        await gateway.ask(question(SECRET, stream=True))
        await gateway.ask(b"{")
        fake.default = Reply(status=500)
        await gateway.ask(question(SECRET + "!"))
        await fake.stop()
        await gateway.ask(question(SECRET + "?"))
        await gateway.http.get(gateway.root + "/secret-path")
    servers = [span for span in spans.get_finished_spans() if span.kind == SpanKind.SERVER]
    statuses = [told(span)["http.response.status_code"] for span in servers]
    assert statuses == [200, 400, 500, 502, 404]
    assert [span.status.status_code for span in servers] == [
        StatusCode.UNSET, StatusCode.UNSET, StatusCode.ERROR, StatusCode.ERROR, StatusCode.UNSET,
    ]  # fmt: skip
    assert servers[-1].name == "GET other"
    failed = [
        span for span in named(spans.get_finished_spans(), "chat fake-model") if "error.type" in told(span)
    ]
    assert [told(span)["error.type"] for span in failed] == ["500"]


async def test_a_list_of_embeddings_has_the_stages_of_one(
    spans: InMemorySpanExporter, fake: FakeUpstream
) -> None:
    vectors = [{"object": "embedding", "index": n, "embedding": [0.1, 0.2]} for n in range(3)]
    fake.routes["/v1/embeddings"] = Reply(body={"object": "list", "model": "fake-model", "data": vectors})
    async with running_gateway(fake) as gateway:
        body = {"model": "fake-model", "input": [f"{SECRET} {n}" for n in range(3)]}
        async with gateway.http.post(f"{gateway.base_url}/embeddings", json=body) as response:
            assert response.status == 200
    found = spans.get_finished_spans()
    assert len(named(found, "stratacache.exact")) == 1
    assert named(found, "embeddings fake-model")


class Collector:
    """An OTLP/HTTP receiver that keeps what it gets."""

    def __init__(self) -> None:
        self.got: list[ExportTraceServiceRequest] = []
        self.port = 0

    async def __aenter__(self) -> Collector:
        app = web.Application()
        app.router.add_post("/v1/traces", self._take)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        message = ExportTraceServiceRequest()
        message.ParseFromString(await request.read())
        self.got.append(message)
        return web.Response(body=b"", content_type="application/x-protobuf")


def observed(port: int, **more: Any) -> dict[str, Any]:
    return {"observe": {"otel": {"endpoint": f"http://127.0.0.1:{port}", "sample": 1.0, **more}}}


async def test_spans_reach_a_collector_at_the_latest_when_the_gateway_stops(fake: FakeUpstream) -> None:
    async with Collector() as collector:
        config = observed(collector.port, service_name="my-gateway")
        async with running_gateway(fake, config) as gateway:
            await gateway.ask(question(SECRET))
    resources = [one for message in collector.got for one in message.resource_spans]
    names = {span.name for one in resources for scope in one.scope_spans for span in scope.spans}
    assert {"POST /v1/chat/completions", "chat fake-model", "stratacache.exact"} <= names
    attributes = {a.key: a.value.string_value for a in resources[0].resource.attributes}
    assert attributes["service.name"] == "my-gateway"
    assert SECRET not in str(collector.got)


async def test_a_collector_that_is_not_there_fails_no_answer(
    fake: FakeUpstream, unused_tcp_port: int
) -> None:
    async with running_gateway(fake, observed(unused_tcp_port, timeout=0.1)) as gateway:
        assert (await gateway.ask(question()))[0] == 200


async def test_what_is_not_sampled_is_not_sent_but_a_caller_may_have_decided(fake: FakeUpstream) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0"
    async with Collector() as collector:
        for flag, sent in (("0", False), ("1", True)):
            async with running_gateway(fake, observed(collector.port, sample=0)) as gateway:
                await ask_twice(gateway)
                await gateway.ask(question("Other?"), {"traceparent": trace + flag})
            assert bool(collector.got) == sent


def test_a_busy_gateway_traces_so_many_a_second_and_those_whose_caller_wants_it() -> None:
    now = [100.0]
    tracing = Tracing(TracerProvider(shutdown_on_exit=False), {}, per_second=3, monotonic=lambda: now[0])
    assert [tracing.wants([]) for _ in range(5)] == [True, True, True, False, False]
    assert tracing.wants([(b"host", b"x"), (b"traceparent", b"00-1-2-01")])
    now[0] = 101.5
    assert [tracing.wants([]) for _ in range(4)] == [True, True, True, False]


async def ask_twice(gateway: Gateway) -> None:
    for _ in range(2):
        assert (await gateway.ask(question()))[0] == 200


def test_without_the_extra_the_start_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(SettingsError, match=r"pip install 'stratacache\[otel\]'"):
        open_tracing(settings_from(observed(4318)))


def test_off_loads_no_library(tmp_path: Path) -> None:
    import subprocess

    script = (
        "import sys\nfrom stratacache.settings import load\nfrom stratacache.wiring import System\n"
        "System(load(None, {}), {})\nprint(any(name.startswith('opentelemetry.sdk') for name in sys.modules))\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert ran.stdout.strip() == "False", ran.stderr


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("http://collector:4318", "http://collector:4318/v1/traces"),
        ("https://collector/", "https://collector/v1/traces"),
        ("http://collector/custom/path", "http://collector/custom/path"),
    ],
)
def test_the_path_is_added_where_there_is_none(endpoint: str, expected: str) -> None:
    assert address(OtelSettings(endpoint=endpoint)) == expected


@pytest.mark.parametrize(
    ("endpoint", "said"),
    [
        ("collector:4318", "must be an http"),
        ("http://", "must be an http"),
        ("http://me:open-sesame@collector", "must hold no credentials"),
    ],
)
def test_an_endpoint_that_cannot_be_used_is_refused(endpoint: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said) as refused:
        settings_from({"observe": {"otel": {"endpoint": endpoint}}})
    assert "open-sesame" not in str(refused.value)
