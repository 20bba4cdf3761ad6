"""Several instances on one store: one upstream call per question among all of them, streams included, whatever dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.fakes.relay import FakeRelay, SharedRelays
from tests.fakes.upstream import FakeUpstream, Gate, Reply
from tests.harness import Gateway, question, running_gateway

from stratacache import wiring
from stratacache.errors import StoreError
from stratacache.pipeline import fleet
from stratacache.ports import Clock, Store
from stratacache.stores import Backend, open_backend
from stratacache.stores.guarded import GuardedStore

INSTANCES = 3
CONFIG = {"scenes": {"default": {"ttl": 100, "jitter": 0, "early_refresh": 100}}}


class SharedStore(GuardedStore):
    """Outlives the instances that use it, as a server does."""

    async def close(self) -> None:
        """Nothing."""


class Fleet:
    """Gateways with one store and one relay between them."""

    def __init__(self, gateways: list[Gateway], relays: list[FakeRelay], shared: SharedRelays) -> None:
        self.gateways = gateways
        self.relays = relays
        self.shared = shared

    def ask_all(self, body: Any, each: int = 1) -> list[asyncio.Task[tuple[int, Any, Any]]]:
        return [asyncio.ensure_future(gateway.ask(body)) for gateway in self.gateways for _ in range(each)]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "RENEWAL", 0.01)


@pytest.fixture
async def instances(fake: FakeUpstream, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fleet]:
    shared, relays = SharedRelays(), []
    stores: list[Store] = []

    def build(url: str, *, max_bytes: int, clock: Clock) -> Backend:
        if not stores:
            stores.append(
                SharedStore(open_backend(url, max_bytes=max_bytes, clock=clock).store, clock, budget=5)
            )
        relays.append(FakeRelay(shared))
        return Backend(stores[0], relay=relays[-1])

    monkeypatch.setattr(wiring, "open_backend", build)
    async with AsyncExitStack() as stack:
        gateways = [await stack.enter_async_context(running_gateway(fake, CONFIG)) for _ in range(INSTANCES)]
        yield Fleet(gateways, relays, shared)


async def listening(instances: Fleet, each: int) -> None:
    for gateway in instances.gateways:
        await gateway.listening(each)


def texts(answers: list[tuple[int, Any, Any]]) -> set[Any]:
    return {body["choices"][0]["message"]["content"] for _, _, body in answers}


async def test_identical_cold_requests_on_all_instances_make_one_call(
    fake: FakeUpstream, instances: Fleet
) -> None:
    gate = Gate()
    fake.default = Reply(header_gate=gate)
    asking = instances.ask_all(question(), each=20)
    await gate.reached.wait()
    await listening(instances, 20)
    gate.open()
    answers = await asyncio.gather(*asking)
    assert {status for status, _, _ in answers} == {200}
    assert fake.chat_calls == 1
    verdicts = [headers["x-strata-reason"] for _, headers, _ in answers]
    assert (verdicts.count("not_found"), verdicts.count("coalesced")) == (1, 59)


async def test_a_stream_reaches_the_other_instances_live(fake: FakeUpstream, instances: Fleet) -> None:
    gate = Gate()
    fake.default = Reply(text="one two three", gates={2: gate})
    url = [f"{gateway.base_url}/chat/completions" for gateway in instances.gateways]
    streams = [
        await gateway.http.post(url[n], json=question(stream=True))
        for n, gateway in enumerate(instances.gateways)
    ]
    await gate.reached.wait()
    for stream in streams:  # each has the first words while the upstream is still at it
        while b"one" not in await stream.content.readuntil(b"\n\n"):
            pass
    gate.open()
    rests = [await stream.read() for stream in streams]
    assert all(rest.endswith(b"data: [DONE]\n\n") for rest in rests)
    assert len(set(rests)) == 1
    assert fake.chat_calls == 1


async def test_what_must_not_be_stored_still_reaches_the_followers(
    fake: FakeUpstream, instances: Fleet
) -> None:
    gate = Gate()
    fake.default = Reply(text="cut sho", finish_reason="length", header_gate=gate)
    asking = instances.ask_all(question())
    await gate.reached.wait()
    await listening(instances, 1)
    while not all(place.wanted for place in instances.shared.places.values()):  # noqa: ASYNC110
        await asyncio.sleep(0)
    gate.open()
    assert texts(await asyncio.gather(*asking)) == {"cut sho"}
    assert fake.chat_calls == 1


async def test_a_dead_leader_is_replaced(fake: FakeUpstream, instances: Fleet) -> None:
    first, second = Gate(), Gate()
    fake.script(Reply(text="Never heard.", header_gate=first))
    fake.default = Reply(text="Second.", header_gate=second)
    leading = asyncio.ensure_future(instances.gateways[0].ask(question()))
    await first.reached.wait()
    following = [asyncio.ensure_future(gateway.ask(question())) for gateway in instances.gateways[1:]]
    for gateway in instances.gateways[1:]:
        await gateway.listening(1)
    instances.shared.kill()
    await second.reached.wait()
    second.open()
    assert texts(await asyncio.gather(*following)) == {"Second."}
    assert fake.chat_calls == 2
    first.open()
    await leading


async def test_a_leader_whose_clients_left_goes_on_for_the_others(
    fake: FakeUpstream, instances: Fleet
) -> None:
    gate = Gate()
    fake.default = Reply(header_gate=gate)
    leading = asyncio.ensure_future(instances.gateways[0].ask(question()))
    await gate.reached.wait()
    following = asyncio.ensure_future(instances.gateways[1].ask(question()))
    await instances.gateways[1].listening(1)
    await instances.gateways[0].listening(2)  # the other instance counts as a listener by now
    leading.cancel()
    gate.open()
    assert (await following)[0] == 200
    assert fake.chat_calls == 1


async def test_a_leader_that_gives_up_before_it_knows_of_followers_is_replaced(
    fake: FakeUpstream, instances: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "RENEWAL", 60)
    gate = Gate()
    fake.script(Reply(header_gate=gate))
    leading = asyncio.ensure_future(instances.gateways[0].ask(question()))
    await gate.reached.wait()
    following = asyncio.ensure_future(instances.gateways[1].ask(question()))
    await instances.gateways[1].listening(1)
    leading.cancel()
    assert (await following)[0] == 200
    assert fake.chat_calls == 2


async def test_a_failure_of_the_upstream_is_shared_like_an_answer(
    fake: FakeUpstream, instances: Fleet
) -> None:
    gate = Gate()
    fake.default = Reply(status=500, header_gate=gate)
    asking = instances.ask_all(question(), each=3)
    await gate.reached.wait()
    await listening(instances, 3)
    while not all(place.wanted for place in instances.shared.places.values()):  # noqa: ASYNC110
        await asyncio.sleep(0)
    gate.open()
    answers = await asyncio.gather(*asking)
    assert {status for status, _, _ in answers} == {500}
    assert fake.chat_calls == 1


async def raises(step: str) -> None:
    raise StoreError(f"{step} failed")


async def hangs(step: str) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("fault", [raises, hangs])
@pytest.mark.parametrize("step", ["claim", "renew", "publish", "follow", "release"])
async def test_a_relay_that_fails_costs_calls_and_no_answer(
    fake: FakeUpstream, instances: Fleet, monkeypatch: pytest.MonkeyPatch, fault: Any, step: str
) -> None:
    monkeypatch.setattr(fleet, "STEP", 0.05)

    async def only(at: str) -> None:
        if at == step:
            await fault(at)

    for relay in instances.relays:
        relay.fault = only
    for number in range(2):
        asking = instances.ask_all(question(f"Question {number}?", stream=False), each=2)
        await asyncio.sleep(0)
        async with asyncio.timeout(10):
            while not all(task.done() for task in asking):
                await asyncio.wait(asking, timeout=0.1)
                instances.shared.kill()
        assert {status for status, _, _ in await asyncio.gather(*asking)} == {200}
    assert fake.chat_calls <= 2 * INSTANCES
    assert all(not gateway.system.flights._joinable for gateway in instances.gateways)


async def test_an_entry_that_is_too_old_for_the_caller_does_not_answer_through_the_fleet(
    fake: FakeUpstream, instances: Fleet
) -> None:
    gateway = instances.gateways[0]
    await gateway.ask(question())
    await gateway.stored()
    for gateway in instances.gateways:
        gateway.clock.advance(10)
    fake.default = Reply(text="Newer.")
    for gateway in instances.gateways[:2]:
        _, headers, body = await gateway.ask(question(), {"cache-control": "max-age=5"})
        await gateway.stored()
    assert fake.chat_calls == 2
    assert body["choices"][0]["message"]["content"] == "Newer."
    assert headers["x-strata-cache"] == "hit", "the second instance finds what the first one stored"


async def test_an_early_refresh_is_one_call_among_all_instances(fake: FakeUpstream, instances: Fleet) -> None:
    gate, late = Gate(), Gate()
    fake.script(Reply(header_gate=gate), Reply(text="Renewed.", header_gate=late))
    first = asyncio.ensure_future(instances.gateways[0].ask(question()))
    await gate.reached.wait()
    instances.gateways[0].clock.advance(1)  # what the answer takes; the others' clocks are a second behind
    gate.open()
    await first
    await instances.gateways[0].stored()
    for gateway in instances.gateways:
        gateway.clock.advance(99.9)
    for gateway in instances.gateways:
        assert (await gateway.ask(question()))[1]["x-strata-cache"] == "hit"
    await late.reached.wait()
    late.open()
    for gateway in instances.gateways:
        while gateway.system.pipeline.refreshing:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await gateway.stored()
        assert (await gateway.ask(question()))[2]["choices"][0]["message"]["content"] == "Renewed."
    assert fake.chat_calls == 2
