"""Whatever a client sends: one clear error in OpenAI's shape, and a gateway that goes on working."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fakes.upstream import FakeUpstream, Reply
from tests.harness import Gateway, question, running_gateway

LIMIT = 64 * 1024
CHAT = "/v1/chat/completions"


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[tuple[FakeUpstream, Gateway]]:
    """One gateway for all tests: each proves that it works on after the others' input."""
    async with FakeUpstream() as server, running_gateway(server, {"server": {"max_body": LIMIT}}) as running:
        yield server, running


@pytest.fixture
def fake(shared: tuple[FakeUpstream, Gateway]) -> FakeUpstream:
    server, _ = shared
    server.calls.clear()
    server.default = Reply()
    return server


@pytest.fixture
def gateway(fake: FakeUpstream, shared: tuple[FakeUpstream, Gateway]) -> Gateway:
    return shared[1]


class Wire:
    """One connection, written and read by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(
        self, method: str, path: str, body: bytes = b"", headers: Iterator[bytes] | list[bytes] | None = None
    ) -> tuple[int, dict[str, str], Any]:
        lines = [f"{method} {path} HTTP/1.1".encode(), b"host: localhost", *(headers or [])]
        lines.append(b"content-length: %d" % len(body))
        self.writer.write(b"\r\n".join(lines) + b"\r\n\r\n" + body)
        return await self.answer()

    async def answer(self) -> tuple[int, dict[str, str], Any]:
        """Status, headers and the JSON body; the body must have a length."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        body = await self.reader.readexactly(int(headers["content-length"]))
        return int(head[0].split()[1]), headers, msgspec.json.decode(body)


@pytest_asyncio.fixture(loop_scope="module")
async def wire(gateway: Gateway) -> AsyncIterator[Wire]:
    """A connection on which a good request must work at the end: the same one, never opened again."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    made = Wire(reader, writer)
    yield made
    status, _, _ = await made.send("POST", CHAT, json.dumps(question("Are you well?")).encode())
    assert status == 200
    writer.close()


def error_of(body: Any) -> dict[str, Any]:
    """The error object; asserts OpenAI's shape."""
    assert set(body) == {"error"}
    error: dict[str, Any] = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert isinstance(error["code"], str)
    return error


def nested(depth: int) -> bytes:
    return b'{"model":"fake-model","messages":' + b"[" * depth + b"]" * depth + b"}"


BAD_BODIES: list[tuple[bytes, str]] = [
    (b"", "empty_body"),
    (b"  \n", "empty_body"),
    (b"{", "invalid_json"),
    (b"{'model': 1}", "invalid_json"),
    (b"[]", "invalid_json"),
    (b"null", "invalid_json"),
    (b"NaN", "invalid_json"),
    (b'{"model":"fake-model","messages":[{"role":"user","content":"\\ud800"}]}', "invalid_json"),
    (b'{"temperature":1e999}', "invalid_json"),
    (b"\xef\xbb\xbf{}", "invalid_json"),
    (b'{"model":"\xff"}', "invalid_encoding"),
    ('{"model":"é"}'.encode("utf-16"), "invalid_encoding"),
    (nested(200), "nesting_too_deep"),
    (nested(20_000), "nesting_too_deep"),
    (b"{}", "missing_required_parameter"),
    (b'{"model":7,"messages":[]}', "invalid_type"),
    (b'{"model":"fake-model","messages":{}}', "invalid_type"),
    (b'{"model":"fake-model","messages":[]}', "empty_array"),
    (b'{"model":"fake-model","messages":[1]}', "invalid_type"),
    (b'{"model":"fake-model","messages":[{"role":null}]}', "invalid_type"),
    (b'{"model":"fake-model","messages":[{"role":"user","content":5}]}', "invalid_type"),
    (b'{"model":"fake-model","messages":[{"role":"user"}],"stream":"yes"}', "invalid_type"),
    (b'{"model":"fake-model","messages":[{"role":"user"}],"cache":1}', "invalid_type"),
    (b'{"model":"fake-model","messages":[{"role":"user"}],"cache":{"x":1}}', "invalid_cache_control"),
    (b'{"model":" ","messages":[{"role":"user"}]}', "invalid_value"),
    (b'{"model":"fake-modle","messages":[{"role":"user"}]}', "model_not_found"),
]


@pytest.mark.parametrize(("body", "code"), BAD_BODIES, ids=[f"{b[:30]!r}-{c}" for b, c in BAD_BODIES])
async def test_a_bad_body_gets_one_clear_error(
    wire: Wire, fake: FakeUpstream, body: bytes, code: str
) -> None:
    status, headers, told = await wire.send("POST", CHAT, body)
    error = error_of(told)
    assert (status, error["code"]) == (404 if code == "model_not_found" else 400, code)
    assert error["type"] == "invalid_request_error"
    assert headers["content-type"] == "application/json"
    assert fake.calls == []


@pytest.mark.parametrize("size", [LIMIT + 1, 3 * LIMIT, 40 * LIMIT])
async def test_a_body_over_the_limit_is_413_and_the_client_sees_it(wire: Wire, size: int) -> None:
    status, _, told = await wire.send("POST", CHAT, b"x" * size)
    assert (status, error_of(told)["code"]) == (413, "body_too_large")
    assert str(LIMIT) in told["error"]["message"]


async def test_a_body_of_exactly_the_limit_is_read(wire: Wire, fake: FakeUpstream) -> None:
    body = json.dumps(question("x")).encode()
    status, _, _ = await wire.send("POST", CHAT, body + b" " * (LIMIT - len(body)))
    assert status == 200


@pytest.mark.parametrize("size", [LIMIT + 1, 40 * LIMIT])
async def test_a_chunked_body_over_the_limit_is_413(wire: Wire, size: int) -> None:
    wire.writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    piece = b"x" * 1000
    for _ in range(size // len(piece) + 1):
        wire.writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
    wire.writer.write(b"0\r\n\r\n")
    status, _, told = await wire.answer()
    assert (status, error_of(told)["code"]) == (413, "body_too_large")


async def test_other_endpoints_bound_their_bodies_too(wire: Wire, fake: FakeUpstream) -> None:
    for path in ("/v1/embeddings", "/admin/explain"):
        status, _, told = await wire.send("POST", path, b"x" * (LIMIT + 1))
        assert (status, error_of(told)["code"]) == (413, "body_too_large")
    assert fake.calls == []


async def test_a_client_that_leaves_in_the_middle_of_its_body_harms_nobody(
    gateway: Gateway, fake: FakeUpstream
) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n{")
    await writer.drain()
    writer.close()
    assert (await gateway.ask(question("Who left?")))[0] == 200
    assert fake.chat_calls == 1


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", CHAT, "POST"),
        ("GET", CHAT, "POST"),
        ("DELETE", "/healthz", "GET, HEAD"),
        ("POST", "/v1/models", "GET, HEAD"),
        ("PUT", "/v1/models/fake-model", "GET, HEAD"),
        ("POST", "/metrics", "GET, HEAD"),
        ("GET", "/admin/explain", "POST"),
    ],
)
async def test_a_wrong_method_is_405_and_names_the_right_ones(
    wire: Wire, method: str, path: str, allowed: str
) -> None:
    status, headers, told = await wire.send(method, path)
    assert (status, headers["allow"].upper()) == (405, allowed)
    assert error_of(told)["code"] == "method_not_allowed"


@pytest.mark.parametrize("path", ["/", "/v1", "/v2/models", "//v1/models", "/admin/nothing", "/v1%2Fx", "*"])
async def test_an_unknown_path_is_404(wire: Wire, path: str) -> None:
    status, _, told = await wire.send("GET", path)
    assert (status, error_of(told)["code"]) == (404, "not_found")


async def test_long_paths_are_not_repeated_back(wire: Wire) -> None:
    for path in ("/" + "x" * 30_000, "/v1/models/" + "x" * 30_000):
        for method in ("GET", "PUT"):
            status, _, told = await wire.send(method, path)
            assert status in (404, 405)
            assert len(error_of(told)["message"]) < 400


@pytest.mark.parametrize(
    "headers",
    [
        [b"x-request: caf\xc3\xa9"],
        [b"openai-organization: \xff\xfe"],
        [b"authorization: Bearer \xff"],
        [b"x-strata-unknown: whatever"],
        [b"content-type: text/plain"],
        [b"x-empty:"],
        [b"x-filler-%d: %d" % (n, n) for n in range(100)],
        [b"cache-control: max-age=100", b"cache-control: no-transform", b"Cache-Control:"],
        [b"openai-beta: a", b"openai-beta: b"],
        [b"accept-encoding: gzip", b"te: trailers"],
    ],
    ids=lambda headers: repr(headers[0]),
)
async def test_odd_headers_do_not_disturb(wire: Wire, headers: list[bytes]) -> None:
    status, got, _ = await wire.send("POST", CHAT, json.dumps(question(repr(headers))).encode(), headers)
    assert (status, got["x-strata-cache"]) == (200, "miss")


@pytest.mark.parametrize(
    ("headers", "status", "param"),
    [
        ([b"x-strata-ttl: soon"], 400, "x-strata-ttl"),
        ([b"x-strata-ttl: 5", b"x-strata-ttl: 6"], 400, "x-strata-ttl"),
        ([b"x-strata-tiers: exact,nothing"], 400, "x-strata-tiers"),
        ([b"x-strata-scene: none-such"], 400, "x-strata-scene"),
        ([b"x-strata-tags: a b"], 400, "x-strata-tags"),
        ([b"x-strata-namespace: caf\xc3\xa9"], 400, "x-strata-namespace"),
        ([b"x-strata-profile: " + b"p" * 65], 400, "x-strata-profile"),
        ([b"x-strata-min-confidence: 2"], 400, "x-strata-min-confidence"),
        ([b"cache-control: max-age=x"], 400, "cache-control: max-age"),
        ([b"origin: http://["], 403, "origin"),
        ([b"origin: https://evil.example"], 403, "origin"),
    ],
    ids=repr,
)
async def test_bad_values_of_headers_that_count_are_refused(
    wire: Wire, fake: FakeUpstream, headers: list[bytes], status: int, param: str
) -> None:
    got, _, told = await wire.send("POST", CHAT, json.dumps(question()).encode(), headers)
    assert (got, error_of(told)["param"]) == (status, param)
    assert fake.calls == []


@pytest.mark.parametrize(
    "sent",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"GET /v1/a b HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: -5\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ntransfer-encoding: chunked"
        b"\r\n\r\nx",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET /healthz HTTP/1.1\r\nx: a\x00b\r\n\r\n",
        b"GET /v1/\xff\xfe HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ],
    ids=lambda sent: repr(sent[:40]),
)  # fmt: skip
async def test_what_is_not_http_is_refused_and_harms_nobody(gateway: Gateway, sent: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(sent)
    assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
    writer.close()
    assert (await gateway.ask(question()))[0] == 200


UPSTREAM_ANSWERS: list[Any] = [
    {"error": {"message": "no"}}, {"choices": [{"message": None}]}, {"choices": []}, {"choices": [1]}, [], "x", 7,
    {"choices": [{"index": 0, "finish_reason": "length", "message": {"content": [1]}}, {"index": 1}]},
    {"choices": [{"finish_reason": "length", "message": {"tool_calls": [1]}}]},
    {"choices": [{"error": {"message": "no"}}]},
]  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("answer", UPSTREAM_ANSWERS, ids=repr)
async def test_odd_answers_of_an_upstream_are_passed_on_as_they_are(
    fake: FakeUpstream, gateway: Gateway, answer: Any, stream: bool
) -> None:
    fake.default = Reply(body=answer)
    await gateway.stored()
    before = (await gateway.system.store.stats()).entries
    status, headers, got = await gateway.ask(question(f"{answer!r} {stream}", stream=stream))
    assert (status, headers["content-type"], got) == (200, "application/json", answer)
    await gateway.stored()
    assert (await gateway.system.store.stats()).entries == before


# --- Hypothesis: whatever comes, no failure of our own making ---

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
PARTS = st.fixed_dictionaries({}, optional={"type": st.just("text") | JSON, "text": st.text() | JSON})
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "system", "assistant", "tool", "developer"]) | JSON},
    optional={"content": st.text() | st.lists(PARTS, max_size=3) | JSON, "tool_calls": JSON, "name": JSON},
)
FIELDS = [
    "stream_options", "tools", "tool_choice", "response_format", "temperature", "seed", "n", "stop", "logit_bias",
    "cache", "user", "metadata", "store", "modalities", "audio", "functions", "echo", "web_search_options",
    "kv_transfer_params", "prediction", "plugins", "prompt_logprobs", "chat_template_kwargs", "", "zürich",
]  # fmt: skip
REQUESTS = st.fixed_dictionaries(
    {
        "model": st.just("fake-model"),
        "messages": st.lists(MESSAGES, min_size=1, max_size=3) | JSON,
    },
    optional={
        "stream": st.booleans() | JSON,
        "stream_options": st.fixed_dictionaries({}, optional={"include_usage": st.booleans()}) | JSON,
        **{name: JSON for name in FIELDS if name != "stream_options"},
    },
)
BODIES = st.one_of(REQUESTS.map(msgspec.json.encode), JSON.map(msgspec.json.encode), st.binary(max_size=200))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(body=BODIES)
async def test_no_body_makes_a_failure_of_our_own(shared: tuple[FakeUpstream, Gateway], body: bytes) -> None:
    fake, gateway = shared
    fake.default = Reply()
    status, _, got = await gateway.ask(body)
    assert status in (200, 400), got
    if status == 400:
        error_of(got)
        return
    again = await gateway.ask(body)
    assert again[0] == 200
    assert _text(again[2]) == _text(got)


def _text(got: Any) -> str:
    if isinstance(got, Mapping):
        return got["choices"][0]["message"]["content"]
    pieces = [json.loads(line[6:]) for line in got.decode().split("\n\n") if line.startswith("data: {")]
    return "".join(p["choices"][0]["delta"].get("content") or "" for p in pieces if p["choices"])
