"""Calls shared among instances: leases that nobody holds, frames out of order, refusals of another form."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.clock import FakeClock
from tests.fakes.relay import FakeRelay, SharedRelays

from stratacache.errors import StoreError, UpstreamError
from stratacache.observe.metrics import Metrics
from stratacache.pipeline.fleet import Fleet
from stratacache.pipeline.flight import STORED, Chunk, Flight, FlightTable, Head, Landing, Seat
from stratacache.pipeline.frames import FrameWriter, repeat
from stratacache.pipeline.outcome import may_fare_better
from stratacache.pipeline.plan import CachePolicy, Plan, ScenePolicy, plan_request
from stratacache.policy.fields import CHAT
from stratacache.policy.key import exact_key
from stratacache.stores.memory import MemoryStore
from stratacache.tiers.exact import ExactTier
from stratacache.types import CacheControl, Entry, Request, Scope, Usage

PLAIN = {"model": "m", "messages": [{"role": "user", "content": "What is a cache?"}]}
STREAM = {**PLAIN, "stream": True}
POLICY = CachePolicy(exact=True, scenes={"default": ScenePolicy(ttl=60, jitter=0)}, max_entry=1000)
JSON_HEAD = Head(200, (("content-type", "application/json"),), streaming=False, seconds=0.0)
STREAM_HEAD = Head(200, (("content-type", "text/event-stream"),), streaming=True, seconds=0.0)
LANDING = Landing(b"{}", {}, Usage(), done=True)


def request(body: dict[str, Any] = PLAIN) -> Request:
    return Request(CHAT, "m", "m", "fake", body, Scope(), CacheControl(), stream=body.get("stream") is True)


KEY = exact_key(request())
PLAN: Plan = plan_request(request(), KEY, POLICY)
SNAPSHOT = tuple((tag, 1) for tag in sorted(PLAN.tags))


class Call:
    """An upstream call that the test lets end."""

    def __init__(self) -> None:
        self.made = 0
        self.may_begin, self.may_end = asyncio.Event(), asyncio.Event()
        self.head = JSON_HEAD

    async def __call__(self, flight: Flight) -> None:
        self.made += 1
        await self.may_begin.wait()
        flight.depart(self.head)
        await self.may_end.wait()
        flight.land(LANDING)
        flight.closed.set()


class Instance:
    """One gateway's part in a fleet; ``call`` is what it asks of its upstream."""

    def __init__(self, shared: SharedRelays, store: MemoryStore, clock: FakeClock) -> None:
        self.relay = FakeRelay(shared)
        self.flights = FlightTable()
        self.fleet = Fleet(self.relay, ExactTier(store.get, clock), Metrics(), budget=0.05)
        self.call = Call()

    def ask(self, body: dict[str, Any] = PLAIN, *, alike: bool = False) -> Seat:
        async def run(flight: Flight) -> None:
            try:
                await self.fleet.fly(flight, PLAN, self.call)
            finally:
                self.flights.close_boarding(flight)

        return self.flights.board(KEY, SNAPSHOT, body, run, share=True, alike=alike)


@pytest.fixture
def shared() -> SharedRelays:
    return SharedRelays()


@pytest.fixture
def store(clock: FakeClock) -> MemoryStore:
    return MemoryStore(1_000_000, clock)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def one(shared: SharedRelays, store: MemoryStore, clock: FakeClock) -> Instance:
    return Instance(shared, store, clock)


@pytest.fixture
def other(shared: SharedRelays, store: MemoryStore, clock: FakeClock) -> Instance:
    return Instance(shared, store, clock)


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not true():  # noqa: ASYNC110 - production has no use for an event
            await asyncio.sleep(0)


def held(shared: SharedRelays) -> bool:
    return any(place.owner is not None for place in shared.places.values())


class Barrier:
    """Holds a step until it is opened."""

    def __init__(self, step: str) -> None:
        self.step = step
        self.reached, self.opened = asyncio.Event(), asyncio.Event()

    async def __call__(self, step: str) -> None:
        if step == self.step:
            self.reached.set()
            await self.opened.wait()


async def test_a_lease_that_comes_too_late_is_given_back(one: Instance, shared: SharedRelays) -> None:
    one.relay.fault = barrier = Barrier("claim")
    seat = one.ask()
    await until(lambda: one.call.made)  # the budget is spent
    barrier.opened.set()
    await until(lambda: shared.places or not held(shared))
    await until(lambda: not held(shared))
    one.call.may_begin.set()
    one.call.may_end.set()
    await seat.flight.wait_landing()


async def test_a_client_that_leaves_while_the_lease_is_granted_leaves_no_lease(
    one: Instance, shared: SharedRelays
) -> None:
    one.relay.fault = barrier = Barrier("claim")
    seat = one.ask()
    await barrier.reached.wait()
    seat.leave()
    await seat.flight.end()
    barrier.opened.set()
    await until(lambda: shared.places or one.fleet.idle)
    await until(lambda: one.fleet.idle)
    assert not held(shared)


async def test_a_client_that_leaves_while_the_leader_looks_again_leaves_no_lease(
    one: Instance, shared: SharedRelays, clock: FakeClock
) -> None:
    looking = asyncio.Event()

    async def stuck(digest: bytes, tags: object) -> Entry:
        looking.set()
        await asyncio.Event().wait()
        raise AssertionError

    one.fleet = Fleet(one.relay, ExactTier(stuck, clock), Metrics(), budget=0.05)
    seat = one.ask()
    await looking.wait()
    assert held(shared)
    seat.leave()
    await seat.flight.end()
    await until(lambda: not held(shared))


async def fails(step: str) -> None:
    raise StoreError(f"{step} failed")


async def test_a_stream_that_loses_its_leader_is_not_continued_with_another_answer(
    one: Instance, other: Instance
) -> None:
    one.call.head = STREAM_HEAD
    one.call.may_begin.set()
    leading = one.ask(STREAM)
    await leading.flight.wait_head()
    following = other.ask(STREAM)
    await following.flight.wait_head()
    other.relay.fault = fails
    with pytest.raises(UpstreamError):
        await following.flight.wait_landing()
    await until(following.flight.closed.is_set)
    assert other.call.made == 0
    assert following.flight.landing is None
    one.call.may_end.set()
    await leading.flight.wait_landing()


async def test_who_has_seen_nothing_of_a_lost_leader_gets_an_answer(one: Instance, other: Instance) -> None:
    """The head of an answer in one piece is no beginning that a client has seen."""
    one.call.may_begin.set()
    leading = one.ask()
    await leading.flight.wait_head()
    following = other.ask()
    await following.flight.wait_head()
    other.relay.fault = fails
    other.call.may_begin.set()
    other.call.may_end.set()
    assert await following.flight.wait_landing() == LANDING
    one.call.may_end.set()
    await leading.flight.wait_landing()


async def test_a_plain_follower_of_a_stream_that_lost_its_leader_may_ask_anew(
    one: Instance, other: Instance
) -> None:
    one.call.head = STREAM_HEAD
    one.call.may_begin.set()
    leading = one.ask(STREAM)
    await leading.flight.wait_head()
    following = other.ask()
    await following.flight.wait_head()
    other.relay.fault = fails
    await following.flight.end()
    assert may_fare_better(request(), following)
    one.call.may_end.set()
    await leading.flight.wait_landing()


@pytest.mark.parametrize("led_by", [STREAM, PLAIN])
async def test_a_refusal_of_another_form_on_another_instance_is_not_ones_own(
    one: Instance, other: Instance, led_by: dict[str, Any]
) -> None:
    one.call.head = Head(404, (), streaming=False, seconds=0.0)
    one.call.may_begin.set()
    leading = one.ask(led_by)
    own = PLAIN if led_by is STREAM else STREAM
    following, like_leader = other.ask(own), other.ask(led_by)
    await following.flight.wait_head()
    one.call.may_end.set()
    await following.flight.wait_landing()
    assert may_fare_better(request(own), following)
    assert not may_fare_better(request(led_by), like_leader)
    await leading.flight.wait_landing()


async def test_a_refusal_that_was_remembered_meanwhile_is_one_of_the_plain_form(
    one: Instance, store: MemoryStore, clock: FakeClock
) -> None:
    found = await store.get(KEY.digest, PLAN.tags)
    assert not isinstance(found, Entry)
    snapshot, now = found.versions, clock.now()
    refusal = Entry(KEY.form, b"{}", now, now + 60, versions=snapshot, status=404, negative=True)
    await store.put(KEY.digest, refusal)
    one.call.may_begin.set()
    one.call.may_end.set()

    async def run(flight: Flight) -> None:
        await one.fleet.fly(flight, PLAN, one.call)

    streaming = one.flights.board(KEY, snapshot, STREAM, run, share=True)
    await streaming.flight.wait_landing()
    assert (streaming.flight.head, one.call.made) == (JSON_HEAD, 1)
    plain = FlightTable().board(KEY, snapshot, PLAIN, run, share=True)
    await plain.flight.end()
    assert plain.flight.failure is not None
    assert (plain.flight.failure.code, one.call.made) == (STORED, 1)


async def test_one_instance_has_one_flight_at_a_place(one: Instance, shared: SharedRelays) -> None:
    """A relay knows an instance's flight by its place: two would publish into one another."""
    one.relay.fault = barrier = Barrier("release")
    one.call.may_begin.set()
    one.call.may_end.set()
    first = one.ask()
    await first.flight.wait_landing()
    await barrier.reached.wait()
    shared.kill()  # the lease ran out before the release
    one.flights.close_boarding(first.flight)
    second = one.ask()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not held(shared)
    barrier.opened.set()
    await second.flight.wait_landing()


def flight() -> Flight:
    return Flight(KEY, SNAPSHOT, PLAIN, b"place", lambda _: None)


def frames(*steps: Callable[[Flight], None]) -> list[bytes]:
    told = flight()
    writer = FrameWriter(told)
    said = []
    for step in steps:
        step(told)
        said += writer.news()
    return said


def test_an_end_without_a_beginning_is_no_answer() -> None:
    said = frames(
        lambda f: f.depart(STREAM_HEAD), lambda f: f.relay([Chunk(b"x", b"x")]), lambda f: f.land(LANDING)
    )
    for part in (said[1:], said[2:], [b"of another version"]):
        follower = flight()
        assert not repeat(part, follower)
        assert not follower.over


def test_nothing_is_heard_after_the_end() -> None:
    follower = flight()
    again = frames(lambda f: f.fail(UpstreamError("late")))
    assert repeat([*frames(lambda f: f.depart(JSON_HEAD), lambda f: f.land(LANDING)), *again], follower)
    assert (follower.landing, follower.failure) == (LANDING, None)


async def test_frames_that_cannot_be_read_cost_a_call_and_no_error(
    one: Instance, other: Instance, shared: SharedRelays
) -> None:
    leading = one.ask()
    await until(lambda: one.call.made)
    for place in shared.places.values():
        place.frames.append(b"of another version")
    other.call.may_begin.set()
    other.call.may_end.set()
    following = other.ask()
    assert await following.flight.wait_landing() == LANDING
    one.call.may_begin.set()
    one.call.may_end.set()
    await leading.flight.wait_landing()
