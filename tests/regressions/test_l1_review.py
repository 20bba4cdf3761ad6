"""Faults that a review of the shared cache found: foreign chunks, old answers, lost limits, work left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from tests.clock import FakeClock
from tests.fakes.relay import FakeRelay, SharedRelays
from tests.fakes.upstream import FakeUpstream, Gate, Reply
from tests.harness import Gateway, question, running_gateway

from stratacache import wiring
from stratacache.errors import StoreError
from stratacache.observe.metrics import Metrics
from stratacache.pipeline import fleet
from stratacache.pipeline.flight import Flight, FlightTable, Head, Seat
from stratacache.pipeline.frames import FrameWriter
from stratacache.ports import Clock, Followed
from stratacache.stores import Backend, open_backend, versions
from stratacache.stores.memory import MemoryStore
from stratacache.stores.near import NearCache
from stratacache.types import Entry, Key

KEY = Key(b"d" * 16, b"form")
SCENE = {"ttl": 100, "jitter": 0, "early_refresh": 0}
STRICT = {"cache-control": "max-age=5"}


@pytest.fixture
async def fake() -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream() as fake:
        yield fake


def scenes(**changes: Any) -> dict[str, Any]:
    return {"scenes": {"default": {**SCENE, **changes}}}


def text_of(answer: tuple[int, Any, Any]) -> str:
    return str(answer[2]["choices"][0]["message"]["content"])


class LosingRelay(FakeRelay):
    """Another instance leads; its news break off after the head."""

    async def claim(self, place: bytes, seconds: float) -> bool:
        return False

    async def follow(self, place: bytes, heard: int) -> Followed:
        if heard:
            raise StoreError("connection lost")
        flight = Flight(KEY, None, {}, place, lambda _: None)
        flight.depart(Head(200, (), streaming=True, seconds=0.0))
        return Followed(FrameWriter(flight).news(), led=True)


async def test_a_stream_whose_relay_fails_midway_is_not_continued_by_another_call(
    fake: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(url: str, *, max_bytes: int, clock: Clock) -> Backend:
        store = open_backend(url, max_bytes=max_bytes, clock=clock).store
        return Backend(store, relay=LosingRelay(SharedRelays()))

    monkeypatch.setattr(wiring, "open_backend", build)
    async with running_gateway(fake) as gateway:
        _, _, raw = await gateway.ask(question(stream=True))
        assert b"upstream_cut" in raw
        assert fake.chat_calls == 0


class StillBulletin:
    """No other instance invalidates anything."""

    def current(self) -> bool:
        return True

    async def start(self, hear: Any) -> None:
        """There is nothing to hear."""

    async def close(self) -> None:
        """Nothing to release."""


class Shared(MemoryStore):
    """Outlives the instances that use it, and has a time limit as a server's would."""

    waits = True

    async def close(self) -> None:
        """Nothing."""


@pytest.fixture
async def pair(
    fake: FakeUpstream, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AsyncIterator[list[Gateway]]:
    """Two instances with copies beside one store; the scene as the test's parameter says."""
    shared, stores = SharedRelays(), []

    def build(url: str, *, max_bytes: int, clock: Clock) -> Backend:
        stores.append(Shared(1_000_000, clock))
        return Backend(stores[0], bulletin=StillBulletin(), relay=FakeRelay(shared))

    monkeypatch.setattr(wiring, "open_backend", build)
    async with running_gateway(fake, request.param) as one, running_gateway(fake, request.param) as two:
        yield [one, two]


def advance(gateways: Sequence[Gateway], seconds: float) -> None:
    for gateway in gateways:
        gateway.clock.advance(seconds)


@pytest.mark.parametrize("pair", [scenes(stale_if_error=50)], indirect=True)
async def test_an_expired_copy_does_not_hide_what_another_instance_stored(
    fake: FakeUpstream, pair: list[Gateway]
) -> None:
    for gateway in pair:
        await gateway.ask(question())
        await gateway.stored()
    advance(pair, 101)
    fake.default = Reply(text="Newer.")
    await pair[0].ask(question())
    await pair[0].stored()
    answer = await pair[1].ask(question())
    assert (answer[1]["x-strata-cache"], text_of(answer)) == ("hit", "Newer.")
    assert fake.chat_calls == 2


@pytest.mark.parametrize("pair", [scenes()], indirect=True)
async def test_a_copy_too_old_for_its_caller_does_not_hide_what_another_instance_stored(
    fake: FakeUpstream, pair: list[Gateway]
) -> None:
    for gateway in pair:
        await gateway.ask(question())
        await gateway.stored()
    advance(pair, 50)
    fake.default = Reply(text="Newer.")
    await pair[0].ask(question(), STRICT)
    await pair[0].stored()
    assert text_of(await pair[1].ask(question(), STRICT)) == "Newer."
    assert text_of(await pair[1].ask(question())) == "Newer.", "the old copy is replaced"
    assert fake.chat_calls == 2


@pytest.mark.parametrize("pair", [scenes()], indirect=True)
async def test_who_joined_a_call_takes_no_stored_answer_that_is_too_old_for_it(
    fake: FakeUpstream, pair: list[Gateway]
) -> None:
    """The one who leads accepts any age, and finds what was stored meanwhile; the one who joined does not."""
    one, two = pair
    relay = two.system.relay
    assert isinstance(relay, FakeRelay)
    claiming, go = asyncio.Event(), asyncio.Event()

    async def hold(step: str) -> None:
        if step == "claim":
            claiming.set()
            await go.wait()

    relay.fault = hold
    two.system.pipeline._caller._fleet._budget = 5.0  # type: ignore[union-attr]
    lax = asyncio.ensure_future(two.ask(question()))
    await claiming.wait()
    await one.ask(question())
    await one.stored()
    advance(pair, 20)
    fake.default = Reply(text="Newer.")
    strict = asyncio.ensure_future(two.ask(question(), STRICT))
    await two.listening(2)
    go.set()
    await lax
    assert text_of(await strict) == "Newer."
    assert (await lax)[1]["age"] == "20"


def entry(number: int) -> Entry:
    tags = (("*", 1), (f"order:{number}", 1))
    return Entry(b"form", b"{}", created_at=0.0, expires_at=1e12, versions=tags)


async def test_copies_of_ever_new_tags_keep_no_more_of_them_than_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(versions, "MAX_TAGS", 10)
    clock = FakeClock()
    copies = NearCache(MemoryStore(1_000_000, clock), StillBulletin(), Metrics(), clock, max_bytes=100_000)
    for number in range(50):
        await copies._copy(b"%016d" % number, entry(number), copies._losses)
    assert len(copies._floors._highest) <= 11
    await copies.close()


@pytest.mark.parametrize("headers", [{"x-strata-ttl": "0"}, {"cache-control": "only-if-cached"}])
async def test_a_caller_whose_answer_is_not_kept_or_who_wants_no_call_refreshes_nothing(
    fake: FakeUpstream, headers: dict[str, str]
) -> None:
    async with running_gateway(fake, scenes(early_refresh=100)) as gateway:
        gate = Gate()
        fake.script(Reply(header_gate=gate))
        first = asyncio.ensure_future(gateway.ask(question()))
        await gate.reached.wait()
        gateway.clock.advance(1)
        gate.open()
        await first
        await gateway.stored()
        gateway.clock.advance(99.999)
        assert (await gateway.ask(question(), headers))[1]["x-strata-cache"] == "hit"
        assert gateway.system.metrics.summary()["events"].get("refresh", 0) == 0
        assert fake.chat_calls == 1


async def idle(flight: Flight) -> None:
    await asyncio.Event().wait()


def board(table: FlightTable, snapshot: tuple[tuple[str, int], ...] | None) -> Seat:
    return table.board(KEY, snapshot, {}, idle, share=True)


async def test_many_invalidations_set_one_timer_for_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    table, timers = FlightTable(), []
    seat = board(table, (("*", 1),))
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", lambda *what: timers.append(what))
    for version in range(2, 100):
        table.hear((("*", version),), 30.0)
    assert len(timers) == 1
    seat.leave()


async def test_a_call_without_a_snapshot_is_joined_by_nobody_after_an_invalidation() -> None:
    table = FlightTable()
    before = board(table, None)
    assert not board(table, None).led
    table.hear((("prices", 2),), 30.0)
    after = board(table, None)
    assert after.led
    for seat in (before, after):
        seat.flight.fail(AssertionError())  # type: ignore[arg-type]


async def test_lost_news_close_the_calls_without_a_snapshot(fake: FakeUpstream) -> None:
    async with running_gateway(fake) as gateway:
        seat = board(gateway.system.flights, None)
        gateway.system.hear(None, ())
        assert not len(gateway.system.flights)
        seat.leave()


class SilentRelay(LosingRelay):
    """Another instance leads, and says nothing."""

    async def follow(self, place: bytes, heard: int) -> Followed:
        await asyncio.Event().wait()
        raise AssertionError


async def test_nothing_flies_on_when_the_gateway_has_stopped(
    fake: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "STEP", 60.0)
    async with running_gateway(fake, scenes(early_refresh=100)) as gateway:
        gate = Gate()
        fake.script(Reply(header_gate=gate))
        first = asyncio.ensure_future(gateway.ask(question()))
        await gate.reached.wait()
        gateway.clock.advance(1)
        gate.open()
        await first
        await gateway.stored()
        gateway.clock.advance(99.999)
        gateway.system.pipeline._caller._fleet = fleet.Fleet(
            SilentRelay(SharedRelays()), gateway.system.pipeline._exact, gateway.system.metrics, budget=5
        )
        await gateway.ask(question())
        assert gateway.system.pipeline.refreshing == 1
    names = {task.get_name() for task in asyncio.all_tasks()}
    assert not names & {"flight", "refresh"}


async def test_a_stand_in_is_judged_when_the_upstream_has_failed(fake: FakeUpstream) -> None:
    """It may be too old by then, though it was young enough when the call began."""
    async with running_gateway(fake, scenes(stale_if_error=20)) as gateway:
        await gateway.ask(question())
        await gateway.stored()
        gateway.clock.advance(10)
        gate = Gate()
        fake.default = Reply(status=503, header_gate=gate)
        demand = {"cache-control": "max-age=5, stale-if-error=20"}
        asking = asyncio.ensure_future(gateway.ask(question(), demand))
        await gate.reached.wait()
        gateway.clock.advance(30)
        gate.open()
        assert (await asking)[0] == 503


async def test_who_takes_no_stale_answer_gets_none_that_is_less_fresh_than_asked(fake: FakeUpstream) -> None:
    async with running_gateway(fake, scenes(stale_if_error=20)) as gateway:
        await gateway.ask(question())
        await gateway.stored()
        gateway.clock.advance(90)
        fake.default = Reply(status=503)
        demand = {"cache-control": "min-fresh=60, stale-if-error=0"}
        assert (await gateway.ask(question(), demand))[0] == 503


async def test_who_was_admitted_is_not_turned_away_when_the_call_is_begun_anew(fake: FakeUpstream) -> None:
    config = {
        **scenes(),
        "versions": {"grace": "0s"},
        "tiers": {"exact": {"admission": "shed", "shed_above": 1}},
    }
    async with running_gateway(fake, config) as gateway:
        gate = Gate()
        fake.script(Reply(header_gate=gate))
        asking = asyncio.ensure_future(gateway.ask(question()))
        await gate.reached.wait()
        everything = {"content-type": "application/json"}
        await gateway.http.post(f"{gateway.root}/admin/invalidate", data=b'{"all": true}', headers=everything)
        assert (await asking)[0] == 200
        gate.open()
