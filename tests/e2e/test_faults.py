"""Faults of the store and the upstream: never an error that the upstream did not give, always visible."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import aiohttp
import msgspec
import pytest
from tests.fakes.upstream import FakeUpstream, Gate, Reply
from tests.harness import Gateway, question, running_gateway

from stratacache import wiring
from stratacache.errors import StoreError
from stratacache.pipeline import writeback
from stratacache.ports import Clock, Store
from stratacache.stores import Backend, open_backend
from stratacache.stores.null import NullStore
from stratacache.types import Absent, Entry, PutResult, StoreStats

Fault = Callable[[], Awaitable[None]]


async def well() -> None:
    """No fault."""


async def raises_store_error() -> None:
    raise StoreError("the disk is on fire")


async def raises_a_bug() -> None:
    raise ZeroDivisionError("a bug in a store")


async def hangs() -> None:
    await asyncio.Event().wait()


class FaultyStore(NullStore):
    """A memory store whose operations first do what the test says."""

    waits = True

    def __init__(self, inner: Store) -> None:
        super().__init__()
        self.inner = inner
        self.on_get: Fault = well
        self.on_put: Fault = well
        self.on_stats: Fault = well
        self.tried_puts = asyncio.Event()

    async def get(self, digest: bytes, tags: Sequence[str] = ()) -> Entry | Absent:
        await self.on_get()
        return await self.inner.get(digest, tags)

    async def put(self, digest: bytes, entry: Entry) -> PutResult:
        self.tried_puts.set()
        await self.on_put()
        return await self.inner.put(digest, entry)

    async def stats(self) -> StoreStats:
        await self.on_stats()
        return await self.inner.stats()

    async def check(self) -> None:
        await self.inner.check()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> list[FaultyStore]:
    """Every gateway of the test is built with a faulty store; the last one made is ``[-1]``."""
    made: list[FaultyStore] = []

    def build(url: str, *, max_bytes: int, clock: Clock) -> Backend:
        made.append(FaultyStore(open_backend(url, max_bytes=max_bytes, clock=clock).store))
        return Backend(made[-1])

    monkeypatch.setattr(wiring, "open_backend", build)
    return made


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writeback, "BACKOFF", (0.0, 0.0, 0.0))


@pytest.fixture
async def gateway(fake: FakeUpstream, store: list[FaultyStore]) -> AsyncIterator[Gateway]:
    async with running_gateway(fake, {"tiers": {"exact": {"budget": 0.02}}}) as running:
        yield running


async def stats(gateway: Gateway) -> Any:
    async with gateway.http.get(f"{gateway.root}/admin/stats") as response:
        assert response.status == 200
        return await response.json()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fault", "reason"),
    [(raises_store_error, "store_error"), (raises_a_bug, "store_error"), (hangs, "store_slow")],
)
async def test_a_store_that_cannot_be_read_is_a_named_miss(
    gateway: Gateway, store: list[FaultyStore], fault: Fault, reason: str, stream: bool
) -> None:
    await gateway.ask(question())
    await gateway.stored()
    store[-1].on_get = fault
    status, headers, got = await gateway.ask(question(stream=stream))
    assert (status, headers["x-strata-cache"], headers["x-strata-reason"]) == (200, "miss", reason)
    assert "Hello from the fake." in (got["choices"][0]["message"]["content"] if not stream else _text(got))
    assert (await stats(gateway))["reasons"][reason] == 1
    await gateway.stored()
    store[-1].on_get = well
    assert (await gateway.ask(question()))[1]["x-strata-cache"] == "hit"


def _text(raw: bytes) -> str:
    payloads = [part.removeprefix("data: ") for part in raw.decode().split("\n\n") if part]
    assert payloads.pop() == "[DONE]"
    chunks = [msgspec.json.decode(payload) for payload in payloads]
    return "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])


@pytest.mark.parametrize("fault", [raises_store_error, raises_a_bug, hangs])
async def test_a_store_that_cannot_be_written_costs_hits_and_nothing_else(
    gateway: Gateway, store: list[FaultyStore], fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writeback, "PUT_TIMEOUT", 0.01)
    store[-1].on_put = fault
    for _ in range(2):
        status, headers, _ = await gateway.ask(question())
        assert (status, headers["x-strata-reason"]) == (200, "not_found")
        await gateway.stored()
    assert (await stats(gateway))["writeback"] == {"failed": 2}
    assert len(gateway.system.flights) == 0
    store[-1].on_put = well
    await gateway.ask(question())
    await gateway.stored()
    assert (await gateway.ask(question()))[1]["x-strata-cache"] == "hit"


async def test_an_answer_does_not_wait_for_the_store(gateway: Gateway, store: list[FaultyStore]) -> None:
    gate = Gate()
    store[-1].on_put = gate.pass_through
    assert (await gateway.ask(question()))[0] == 200  # the put has not ended
    await store[-1].tried_puts.wait()
    status, headers, _ = await gateway.ask(question())
    # Until the entry can be read, an equal question gets the answer of the call that has just ended.
    assert (status, headers["x-strata-cache"], headers["x-strata-reason"]) == (200, "hit", "coalesced")
    gate.open()
    await gateway.stored()
    assert (await gateway.ask(question()))[1]["x-strata-reason"] == "exact"


@pytest.mark.parametrize("fault", [raises_store_error])
async def test_a_store_without_figures_leaves_the_others(
    gateway: Gateway, store: list[FaultyStore], fault: Fault
) -> None:
    store[-1].on_stats = fault
    assert (await stats(gateway))["store"] is None
    async with gateway.http.get(f"{gateway.root}/metrics") as response:
        text = await response.text()
    assert response.status == 200
    assert "stratacache_store_entries" not in text
    assert "stratacache_upstream_ready" in text
    store[-1].on_stats = well


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("make", "status", "code"),
    [
        (lambda: Reply(header_gate=Gate()), 504, "upstream_timeout"),
        (
            lambda: Reply(raw=[b"{", b"}"], gates={1: Gate()}, content_type="application/json"),
            504,
            "upstream_timeout",
        ),
        (lambda: Reply(raw=[b"{", b"}"], cut_after=1, content_type="application/json"), 502, "upstream_cut"),
    ],
    ids=["silent", "stalls", "cut"],
)
async def test_an_upstream_that_fails_is_told_apart(
    fake: FakeUpstream, make: Callable[[], Reply], status: int, code: str, stream: bool
) -> None:
    fake.default = make()
    upstream = {
        "name": "fake", "kind": "openai", "base_url": fake.base_url, "models": ["fake-model"],
        "timeout": 0.2, "idle_timeout": 0.05,
    }  # fmt: skip
    async with running_gateway(fake, {"upstreams": [upstream]}) as gateway:
        got, headers, body = await gateway.ask(question(stream=stream))
        assert (got, body["error"]["code"], body["error"]["type"]) == (status, code, "api_error")
        assert (headers["x-strata-cache"], headers["x-strata-reason"]) == ("miss", code)
        assert "x-strata-entry" not in headers
        assert (await stats(gateway))["reasons"] == {code: 1}
        fake.default = Reply()
        assert (await gateway.ask(question(stream=stream)))[0] == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_garbage_instead_of_http_is_a_502(fake: FakeUpstream, stream: bool) -> None:
    async def garble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"\x00\x01 this is not HTTP\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(garble, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        upstream = {
            "name": "g",
            "kind": "openai",
            "base_url": f"http://127.0.0.1:{port}/v1",
            "models": ["fake-model"],
        }
        async with running_gateway(fake, {"upstreams": [upstream]}) as gateway:
            status, headers, body = await gateway.ask(question(stream=stream))
    assert (status, headers["x-strata-reason"], body["error"]["code"]) == (
        502,
        "upstream_cut",
        "upstream_cut",
    )


@pytest.mark.parametrize(
    "raw",
    [
        [b"data: {not json}\n\n", b"data: [DONE]\n\n"],
        [b"data: [1, 2]\n\ndata: [DONE]\n\n"],
        [b"\xff\xfe\x00garbage"],
        [b""],
    ],
    ids=repr,
)
async def test_a_garbled_stream_reaches_a_plain_client_as_an_error_and_is_not_stored(
    fake: FakeUpstream, gateway: Gateway, raw: list[bytes]
) -> None:
    fake.default = Reply(raw=raw, content_type="text/event-stream")
    status, _, body = await gateway.ask(question())
    assert (status, body["error"]["code"]) == (502, "upstream_cut")
    assert (await gateway.ask(question(stream=True)))[0] == 200  # as it came; its status was sent before
    await gateway.stored()
    assert (await gateway.system.store.stats()).entries == 0


async def test_a_stream_cut_short_is_an_error_for_those_who_wanted_it_whole(
    fake: FakeUpstream, gateway: Gateway
) -> None:
    gate = Gate()
    fake.default = Reply(text="one two three", gates={2: gate}, cut_after=3)
    leader = asyncio.ensure_future(gateway.ask(question(stream=True)))
    await gate.reached.wait()
    follower = asyncio.ensure_future(gateway.ask(question()))
    await gateway.listening(2)
    gate.open()
    status, headers, body = await follower
    assert (status, headers["x-strata-reason"], body["error"]["code"]) == (
        502,
        "upstream_cut",
        "upstream_cut",
    )
    assert b"upstream_cut" in (await leader)[2]
    assert len(gateway.system.flights) == 0


async def test_a_stream_without_its_end_mark_is_not_an_answer(fake: FakeUpstream, gateway: Gateway) -> None:
    chunk = {"id": "c", "choices": [{"index": 0, "delta": {"content": "Half"}, "finish_reason": None}]}
    fake.default = Reply(
        raw=[b"data: " + msgspec.json.encode(chunk) + b"\n\n"], content_type="text/event-stream"
    )
    assert (await gateway.ask(question()))[0] == 502
    _, _, raw = await gateway.ask(question(stream=True))
    assert b"[DONE]" not in raw
    await gateway.stored()
    assert (await gateway.system.store.stats()).entries == 0


async def test_a_slow_client_does_not_hold_up_another(fake: FakeUpstream, gateway: Gateway) -> None:
    gate = Gate()
    fake.default = Reply(text="x" * 1000 + " " + "word " * 20_000, gates={1: gate})
    url = f"{gateway.base_url}/chat/completions"
    slow = await gateway.http.post(url, json=question(stream=True))
    await gate.reached.wait()
    quick = asyncio.ensure_future(gateway.ask(question(stream=True)))
    await gateway.listening(2)
    gate.open()
    status, headers, raw = await quick  # the slow one has read nothing but its headers
    assert (status, headers["x-strata-reason"]) == (200, "coalesced")
    assert raw.endswith(b"data: [DONE]\n\n")
    assert await slow.read() == raw


async def test_a_call_that_nobody_waits_for_is_aborted(fake: FakeUpstream, gateway: Gateway) -> None:
    for body in (question(), question(stream=True)):
        gate = Gate()
        fake.default = Reply(gates={0: gate})
        asking = asyncio.ensure_future(gateway.ask(body))
        await gate.reached.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    await fake.aborts(2)
    assert len(gateway.system.flights) == 0


async def test_usage_reaches_a_follower_of_a_leader_that_neither_stores_nor_asks_for_it(
    fake: FakeUpstream, gateway: Gateway
) -> None:
    with_usage = question(stream=True, stream_options={"include_usage": True})
    for leader, follower, wanted in (
        (question(stream=True), with_usage, True),
        (with_usage, question(stream=True), False),
    ):
        gate = Gate()
        fake.default = Reply(gates={1: gate})
        leading = asyncio.ensure_future(gateway.ask(leader, {"x-strata-ttl": "0"}))
        await gate.reached.wait()
        following = asyncio.ensure_future(gateway.ask(follower, {"x-strata-ttl": "0"}))
        await gateway.listening(2)
        gate.open()
        for asked, (_, _, raw) in ((not wanted, await leading), (wanted, await following)):
            assert (b'"usage":{' in raw) == asked


async def test_a_store_that_is_closed_under_it_is_no_error_for_clients(
    fake: FakeUpstream, gateway: Gateway, store: list[FaultyStore]
) -> None:
    await gateway.ask(question())
    await gateway.stored()
    await store[-1].inner.close()
    status, headers, _ = await gateway.ask(question())
    assert (status, headers["x-strata-reason"]) == (200, "store_error")
    store[-1].inner = NullStore()


async def test_readiness_does_not_depend_on_the_store(gateway: Gateway, store: list[FaultyStore]) -> None:
    store[-1].on_get = store[-1].on_stats = raises_store_error
    async with aiohttp.ClientSession() as http, http.get(f"{gateway.root}/readyz") as response:
        assert response.status == 200
    store[-1].on_stats = well


async def test_followers_in_another_form_ask_an_upstream_in_trouble_once_more_not_once_each(
    fake: FakeUpstream, gateway: Gateway
) -> None:
    gate, second = Gate(), Gate()
    fake.script(Reply(status=500, header_gate=gate))
    fake.default = Reply(header_gate=second)
    leader = asyncio.ensure_future(gateway.ask(question(stream=True)))
    await gate.reached.wait()
    followers = [asyncio.ensure_future(gateway.ask(question())) for _ in range(5)]
    await gateway.listening(6)
    gate.open()
    assert (await leader)[0] == 500
    await gateway.listening(5)
    second.open()
    assert [status for status, _, _ in await asyncio.gather(*followers)] == [200] * 5
    assert fake.chat_calls == 2
