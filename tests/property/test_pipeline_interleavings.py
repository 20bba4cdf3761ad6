"""Random interleavings of requests, streams, hang-ups and failures: one call per key, no wrong or cut answer kept.

The whole gateway runs in-process, without sockets: clients speak ASGI, and the upstream is a double whose every
step the test decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.clock import FakeClock
from tests.harness import ENVIRON, question, settings_from

from stratacache.errors import UpstreamError
from stratacache.types import JSON, Request
from stratacache.wiring import System

QUESTIONS = ("rivers", "mountains")
SOLO = "solo"  # the ``user`` of requests that ask for a call of their own


class Call:
    """One upstream call as its server sees it; the test feeds it one step at a time."""

    def __init__(self, number: int, body: Mapping[str, JSON]) -> None:
        self.text = f"{body['messages'][0]['content']} answer {number} end"
        self.topic = body["messages"][0]["content"]
        self.stream = body.get("stream") is True
        self.solo = body.get("user") == SOLO
        self.open = True
        self.ended = False
        self.failed = False
        self.steps: asyncio.Queue[bytes | UpstreamError | None] = asyncio.Queue()
        self.status = 200
        self._words = self.text.split(" ")
        self._headers_out: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def headers(self) -> Mapping[str, str]:
        streams = self.stream and self.status == 200
        return {"content-type": "text/event-stream" if streams else "application/json"}

    async def begun(self) -> None:
        await self._headers_out

    def step(self, kind: str) -> None:
        """Go on as ``kind`` says; nothing happens once the call has ended."""
        if self.ended or not self.open:
            return
        self.failed = kind in ("refuse", "deny", "cut", "fade", "unreachable")
        if kind == "begin":
            self._begin(200)
        elif kind == "word":
            self._word()
        elif kind in ("finish", "truncate"):
            self._finish("stop" if kind == "finish" else "length")
        elif kind in ("refuse", "deny") and not self._headers_out.done():
            self._begin(500 if kind == "refuse" else 404)
            self.steps.put_nowait(b'{"error": {"message": "no"}}')
            self._end(None)
        elif kind == "cut" or (kind == "fade" and not self.stream):
            self._begin(200)
            self._end(UpstreamError("cut", code="upstream_cut"))
        elif kind == "fade":  # a stream that ends in order, but before its answer does
            self._begin(200)
            self._end(None)
        elif kind == "unreachable" and not self._headers_out.done():
            self._headers_out.set_exception(UpstreamError("nobody there"))
            self.ended = True

    def _begin(self, status: int) -> None:
        if not self._headers_out.done():
            self.status = status
            self._headers_out.set_result(None)

    def _word(self) -> None:
        self._begin(200)
        if self._words and self.stream:
            last = len(self._words) == 1
            self._chunk({"content": self._words.pop(0) + ("" if last else " ")}, None)

    def _finish(self, reason: str) -> None:
        self._begin(200)
        if self.stream:
            if reason == "stop":
                while self._words:
                    self._word()
            self._chunk({}, reason)
            self.steps.put_nowait(b"data: [DONE]\n\n")
        else:
            message = {"role": "assistant", "content": self.text if reason == "stop" else "half"}
            choice = {"index": 0, "message": message, "finish_reason": reason}
            self.steps.put_nowait(msgspec.json.encode({"id": "c", "choices": [choice]}))
        self._end(None)

    def _chunk(self, delta: dict[str, str], finish: str | None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        self.steps.put_nowait(b"data: " + msgspec.json.encode({"id": "c", "choices": [choice]}) + b"\n\n")

    def _end(self, how: UpstreamError | None) -> None:
        self.steps.put_nowait(how)
        self.ended = True

    # --- as a ports.UpstreamResponse ---

    async def chunks(self) -> AsyncIterator[bytes]:
        while True:
            piece = await self.steps.get()
            if isinstance(piece, UpstreamError):
                raise piece
            if piece is None:
                return
            yield piece

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self.chunks()])

    async def close(self) -> None:
        self.open = False


class Double:
    """An upstream that holds every call for the test, and watches that no key has two at a time."""

    name = "fake"
    forwards_credentials = False

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.most_at_a_time = 0  # of the calls for one key that may be shared

    async def send(self, request: Request, body: Mapping[str, JSON], headers: Mapping[str, str]) -> Call:
        call = Call(len(self.calls), body)
        self.calls.append(call)
        beside = [c for c in self.calls if c.open and c.topic == call.topic and not c.solo]
        if any(c.failed and c.topic == call.topic for c in self.calls):
            # Those who were refused in one form may ask again in the other, beside newcomers: one call each.
            beside = beside[2:]
        self.most_at_a_time = max(self.most_at_a_time, len(beside))
        try:
            await call.begun()
        except BaseException:
            call.open = False
            raise
        return call

    async def forward(self, *_: Any) -> Call:
        raise AssertionError("nothing is passed through here")

    async def start(self) -> None: ...
    async def close(self) -> None: ...
    async def ready(self) -> bool:
        return True


class Client:
    """One request in ASGI; ``leave`` hangs up."""

    def __init__(
        self, system: System, topic: str, *, stream: bool, solo: bool, headers: Mapping[str, str]
    ) -> None:
        body = question(topic, stream=stream, **({"user": SOLO} if solo else {}))
        self.topic = topic
        self.stream = stream
        self.status: int | None = None
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self.complete = False
        self._sent = [{"type": "http.request", "body": msgspec.json.encode(body), "more_body": False}]
        self._gone = asyncio.Event()
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        path = "/v1/chat/completions"
        scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "headers": raw}
        self.task = asyncio.create_task(system.app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._sent:
            return self._sent.pop()
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        assert not self.complete
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], dict(message["headers"])
        else:
            self.body += message["body"]
            self.complete = not message.get("more_body", False)

    def leave(self) -> None:
        self._gone.set()

    def check(self, failed: Collection[str] = QUESTIONS) -> None:
        """What was received as a whole answer is one, and to this very question; no error without a failure."""
        assert self.task.done()
        assert self.task.exception() is None
        if self._gone.is_set():
            return
        assert self.complete
        if self.status != 200:
            assert self.status in (500, 502, 504)
            assert b'"error"' in self.body
            assert self.topic in failed
            return
        text, finish = self._read()
        if finish is None:
            assert self.topic in failed
        else:
            assert finish in ("stop", "length")
            assert finish == "length" or (text or "").startswith(f"{self.topic} answer "), text
            assert finish == "length" or (text or "").endswith(" end"), text

    def _read(self) -> tuple[str | None, str | None]:
        """Text and finish reason; None for a stream that told its client that it broke off."""
        if self.headers[b"content-type"].startswith(b"application/json"):
            choice = msgspec.json.decode(self.body)["choices"][0]
            return choice["message"]["content"], choice["finish_reason"]
        parts = [part.removeprefix(b"data: ") for part in self.body.split(b"\n\n") if part]
        if not parts or parts.pop() != b"[DONE]":
            return None, None
        choices = [choice for part in parts for choice in msgspec.json.decode(part)["choices"]]
        return "".join(c["delta"].get("content") or "" for c in choices), choices[-1]["finish_reason"]


async def quiesce() -> None:
    """Let everything run that can."""
    for _ in range(30):
        await asyncio.sleep(0)


HEADERS: list[dict[str, str]] = [{}, {}, {}, {"x-strata-ttl": "0"}, {"cache-control": "max-age=5"}]
ASK = st.tuples(st.just("ask"), st.sampled_from(QUESTIONS), st.booleans(), st.sampled_from(HEADERS))
SOLO_ASK = st.tuples(
    st.just("solo"), st.sampled_from(QUESTIONS), st.booleans(), st.sampled_from(["no-cache", "no-store"])
)
LEAVE = st.tuples(st.just("leave"), st.integers(0, 30))
STEPS = ("begin", "word", "word", "finish", "finish", "truncate", "refuse", "cut", "fade", "unreachable")
STEP = st.tuples(st.sampled_from(STEPS), st.integers(0, 30))
REST = st.just(("rest",))
OPERATIONS = st.lists(
    ASK | ASK | SOLO_ASK | LEAVE | STEP | STEP | STEP | REST | REST, min_size=4, max_size=40
)


def new_system() -> tuple[System, Double]:
    upstream = {"name": "fake", "kind": "openai", "base_url": "http://h/v1", "models": ["fake-model"]}
    system = System(settings_from({"store": "memory://", "upstreams": [upstream]}), ENVIRON, FakeClock())
    double = Double()
    system.upstreams["fake"] = double
    return system, double


async def run(operations: list[tuple[Any, ...]]) -> None:
    system, double = new_system()
    await system.start()
    clients: list[Client] = []
    for operation in operations:
        kind, *args = operation
        if kind == "ask":
            topic, stream, headers = args
            clients.append(Client(system, topic, stream=stream, solo=False, headers=headers))
        elif kind == "solo":
            topic, stream, control = args
            clients.append(
                Client(system, topic, stream=stream, solo=True, headers={"cache-control": control})
            )
        elif kind == "rest":
            await quiesce()
        else:
            await _disturb(kind, args[0], double, clients)
        system.flights.check()
    await _finish(system, double, clients)
    await _check_stored(system)
    await system.stop()


async def _disturb(kind: str, which: int, double: Double, clients: list[Client]) -> None:
    """One client hangs up, or one call takes a step."""
    waiting = [client for client in clients if not client.task.done()]
    calls = [call for call in double.calls if call.open and not call.ended]
    if kind != "leave" and calls:
        calls[which % len(calls)].step(kind)
    elif kind == "leave" and waiting:
        leaver = waiting[which % len(waiting)]
        leaver.leave()
        await quiesce()
        assert leaver.task.done(), "the gateway did not notice that its client left"
        topics = {client.topic for client in waiting if not client.task.done()}
        assert all(call.topic in topics for call in calls if call.open), (
            "a call that nobody waits for goes on"
        )


async def _finish(system: System, double: Double, clients: list[Client]) -> None:
    """Let every call end, some of which only begin when others have failed."""
    await quiesce()
    while any(call.open for call in double.calls):
        for call in double.calls:
            call.step("finish")
        await quiesce()
    await asyncio.gather(*(client.task for client in clients))
    assert await system.writeback.drain(5)
    await quiesce()
    failed = {call.topic for call in double.calls if call.failed}
    for client in clients:
        client.check(failed)
    assert double.most_at_a_time <= 1
    assert len(system.flights) == 0
    assert system.flights.listeners == 0
    system.writeback.check()
    await system.store.check()


async def _check_stored(system: System) -> None:
    """Whatever is stored is whole and answers its own question, in either form."""
    stored = 0
    for topic in QUESTIONS:
        for stream in (False, True):
            client = Client(
                system, topic, stream=stream, solo=False, headers={"cache-control": "only-if-cached"}
            )
            await client.task
            client.check()
            if client.status == 200:
                assert client._read()[1] == "stop"
                assert client.headers[b"x-strata-cache"] == b"hit"
                stored += 1
    assert stored == 2 * (await system.store.stats()).entries


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(operations=OPERATIONS)
def test_any_interleaving_leaves_clients_and_store_with_whole_right_answers(
    operations: list[tuple[Any, ...]],
) -> None:
    asyncio.run(run(operations))
