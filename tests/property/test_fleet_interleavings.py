"""Random interleavings on three instances that share a store: nothing stale, mixed or cut, one call, nothing left over.

Time is virtual: the event loop jumps to its next timer whenever it would wait, so every time limit is real, and none
takes any.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.clock import FakeClock
from tests.fakes.relay import FakeRelay, SharedRelays
from tests.harness import ENVIRON, settings_from
from tests.property.test_pipeline_interleavings import QUESTIONS, Call, Client, Double

from stratacache import wiring
from stratacache.errors import StoreError
from stratacache.ports import Clock, Standing
from stratacache.stores import Backend
from stratacache.stores.memory import MemoryStore
from stratacache.types import JSON, Absent, Entry, Invalidated, PutResult, Request
from stratacache.wiring import System

INSTANCES = 3
TTL, STALE, GRACE = 100.0, 50.0, 30.0
CONFIG = {
    "store": "memory://",
    "audit": {"path": None},
    "versions": {"grace": GRACE},
    "scenes": {"default": {"ttl": TTL, "jitter": 0, "early_refresh": 5, "stale_if_error": STALE}},
    "tiers": {"exact": {"negative_ttl": 60, "negative_on": [404], "near_cache_bytes": "1MB"}},
    "upstreams": [{"name": "fake", "kind": "openai", "base_url": "http://h/v1", "models": ["fake-model"]}],
}


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop without I/O whose clock jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self._passed = 0.0
        select = self._selector.select  # type: ignore[attr-defined]

        def jump(timeout: float | None) -> Any:
            assert timeout is not None, "everybody waits for nothing"
            self._passed += max(0.0, timeout)
            return select(0)

        self._selector.select = jump  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._passed


class World:
    """What is true: ``now`` counts the updates, ``told`` is the last one whose invalidation has returned."""

    def __init__(self) -> None:
        self.now = self.told = 0
        self.clock = FakeClock()
        self.shared: MemoryStore = MemoryStore(1_000_000, self.clock)
        self.relays = SharedRelays()
        self.leases: dict[bytes, float] = {}
        self.bulletins: list[Bulletin] = []
        self.faults = 0
        self.jumps = 0.0


class Bulletin:
    """Tells its instance before the invalidation returns, or that news were lost. Copies must not be used beside it
    while it is ``cut_off``."""

    def __init__(self) -> None:
        self.loses = self.cut_off = False
        self.hear: Callable[[Invalidated | None, Sequence[bytes]], None] = lambda what, digests: None

    def current(self) -> bool:
        return not self.cut_off

    async def start(self, hear: Callable[[Invalidated | None, Sequence[bytes]], None]) -> None:
        self.hear = hear

    async def close(self) -> None:
        """Nothing to release."""


class Trouble:
    """What happens to the next steps of one instance, in order: ``slow``, ``fails``, ``late`` (done, then fails)."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.next: list[str] = []

    async def before(self) -> str:
        if not self.next:
            return ""
        self.world.faults += 1
        kind = self.next.pop(0)
        if kind == "fails":
            raise StoreError("failed")
        if kind == "slow":
            await asyncio.sleep(0.3)
        return kind


class SharedStore:
    """One instance's way to the store that all share."""

    waits = True

    def __init__(self, world: World) -> None:
        self.world = world
        self.trouble = Trouble(world)

    async def get(self, digest: bytes, tags: Sequence[str] = ()) -> Entry | Absent:
        await self.trouble.before()
        found = await self.world.shared.get(digest, tags)
        await asyncio.sleep(0)
        return found

    async def put(self, digest: bytes, entry: Entry) -> PutResult:
        kind = await self.trouble.before()
        result = await self.world.shared.put(digest, entry)
        await asyncio.sleep(0)
        if kind == "late":
            raise StoreError("the word that it was stored is lost")
        return result

    async def invalidate(
        self, tags: Sequence[str], digests: Sequence[bytes] = (), *, dry_run: bool = False
    ) -> Invalidated:
        done = await self.world.shared.invalidate(tags, digests, dry_run=dry_run)
        for _ in range(5):
            await asyncio.sleep(0)
        for bulletin in self.world.bulletins:
            if bulletin.cut_off:
                bulletin.loses = True
            else:
                bulletin.hear(None if bulletin.loses else done, digests)
                bulletin.loses = False
        return done

    async def stats(self) -> Any:
        return await self.world.shared.stats()

    async def check(self) -> None:
        await self.world.shared.check()

    async def close(self) -> None:
        """It outlives the instance."""


class TimedRelay(FakeRelay):
    """With leases that run out, and steps whose word is lost."""

    def __init__(self, world: World) -> None:
        super().__init__(world.relays)
        self.world = world
        self.trouble = Trouble(world)

    async def claim(self, place: bytes, seconds: float) -> bool:
        kind = await self._before(place)
        claimed = await super().claim(place, seconds)
        if claimed:
            self.world.leases[place] = asyncio.get_running_loop().time() + seconds
        if kind == "late":
            await asyncio.sleep(0.3)
        return claimed

    async def renew(self, place: bytes, seconds: float) -> Standing:
        await self._before(place)
        standing = await super().renew(place, seconds)
        if standing.held:
            self.world.leases[place] = asyncio.get_running_loop().time() + seconds
        return standing

    async def publish(self, place: bytes, frames: Sequence[bytes]) -> None:
        kind = await self._before(place)
        await super().publish(place, frames)
        if kind == "late":
            raise StoreError("the word that it was published is lost")

    async def follow(self, place: bytes, heard: int) -> Any:
        await self._before(place)
        return await super().follow(place, heard)

    async def release(self, place: bytes, *, keep: float = 0.0) -> None:
        await self._before(place)
        await super().release(place, keep=keep)

    async def _before(self, place: bytes) -> str:
        kind = await self.trouble.before()
        for step in (place, *self.shared.places):
            known = self.shared.places.get(step)
            if known is not None and self.world.leases.get(step, 0.0) <= asyncio.get_running_loop().time():
                known.owner = None
        return kind


class Dated(Double):
    """Knows when each call began and ended."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.began: list[int] = []
        self.ended_at: dict[int, float] = {}

    async def send(self, request: Request, body: Mapping[str, JSON], headers: Mapping[str, str]) -> Call:
        self.began.append(self.world.now)
        return await super().send(request, body, headers)


class Asker(Client):
    """Knows what it may be told: what was true when it asked."""

    def __init__(
        self,
        system: System,
        world: World,
        topic: str,
        *,
        stream: bool,
        slow: bool,
        headers: Mapping[str, str],
    ) -> None:
        self.least = world.told
        self.asked_at = world.clock.now()
        self.slow = slow
        self.world = world
        super().__init__(system, topic, stream=stream, solo=False, headers=headers)

    async def _send(self, message: Any) -> None:
        await super()._send(message)
        if self.slow:
            await asyncio.sleep(0.7)

    def judge(self, upstream: Dated) -> None:
        assert self.task.done()
        assert self.task.exception() is None
        if self._gone.is_set():
            return
        assert self.complete
        calls = [call for call in upstream.calls if call.topic == self.topic]
        failed = any(call.failed for call in calls)
        if self.status != 200:
            excused = failed or upstream.world.faults > 1
            assert excused, (self.status, self.body)
            assert self.status in (404, 500, 502, 504)
            if self.status == 404:
                assert any(call.status == 404 and call.stream == self.stream for call in calls)
            return
        text, finish = self._read()
        if finish is None:
            assert failed or upstream.world.faults, self.body
            return
        if finish == "length":
            return
        assert text is not None
        subject, _, number, end = text.split(" ")
        assert (subject, end) == (self.topic, "end")
        assert upstream.began[int(number)] >= self.least, "a stale answer"
        ended = upstream.ended_at.get(int(number))
        if ended is not None:
            oldest = TTL if self.headers[b"x-strata-cache"] != b"stale" else TTL + STALE
            assert self.asked_at - ended <= oldest + self.world.jumps, "an answer that has expired"


class Run:
    """One example."""

    def __init__(self) -> None:
        self.world = World()
        self.upstream = Dated(self.world)
        self.systems: list[System] = []
        self.stores: list[SharedStore] = []
        self.relays: list[TimedRelay] = []
        self.clients: list[Asker] = []
        self.updates: list[asyncio.Task[None]] = []

    def build(self, url: str, *, max_bytes: int, clock: Clock) -> Backend:
        self.stores.append(SharedStore(self.world))
        self.relays.append(TimedRelay(self.world))
        self.world.bulletins.append(Bulletin())
        return Backend(self.stores[-1], bulletin=self.world.bulletins[-1], relay=self.relays[-1])

    async def go(self, operations: list[tuple[Any, ...]], *, calm: bool) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(wiring, "open_backend", self.build)
            for _ in range(INSTANCES):
                system = System(settings_from(CONFIG), ENVIRON, self.world.clock)
                system.upstreams["fake"] = self.upstream
                self.systems.append(system)
        for system in self.systems:
            await system.start()
        for kind, *what in operations:
            getattr(self, kind)(*what)
            await asyncio.sleep(0)
            for system in self.systems:
                system.flights.check()
            if kind == "rest":
                await asyncio.sleep(what[0])
            if calm:
                self.check_one_call()
        await self.finish()

    # --- operations ---

    def ask(self, instance: int, topic: str, stream: bool, slow: bool, headers: dict[str, str]) -> None:
        asker = Asker(self.systems[instance], self.world, topic, stream=stream, slow=slow, headers=headers)
        self.clients.append(asker)

    def leave(self, which: int) -> None:
        waiting = [client for client in self.clients if not client.task.done()]
        if waiting:
            waiting[which % len(waiting)].leave()

    def step(self, kind: str, which: int) -> None:
        calls = [call for call in self.upstream.calls if call.open and not call.ended]
        if calls:
            call = calls[which % len(calls)]
            call.step(kind)
            if call.ended:
                self.upstream.ended_at[self.upstream.calls.index(call)] = self.world.clock.now()

    def rest(self, seconds: float) -> None:
        """Let the loop's time pass; see ``go``."""

    def age(self, seconds: float) -> None:
        self.world.clock.advance(seconds)

    def update(self, instance: int, loses: int) -> None:
        self.world.now += 1
        self.world.bulletins[loses].loses = loses != instance
        self.updates.append(asyncio.ensure_future(self._invalidate(instance, self.world.now)))

    async def _invalidate(self, instance: int, now: int) -> None:
        system = self.systems[instance]
        done = await system.store.invalidate(["*"])
        system.hear(done, ())
        self.world.told = max(self.world.told, now)

    def restart(self) -> None:
        """The shared store comes back empty."""
        self.world.shared = MemoryStore(1_000_000, self.world.clock)

    def jump(self, seconds: float) -> None:
        self.world.jumps += abs(seconds)
        self.world.clock.jump(seconds)

    def usurp(self) -> None:
        """Leases are lost under those who lead."""
        self.world.faults += 1
        self.world.relays.kill()

    def cut_off(self, instance: int) -> None:
        """An instance hears nothing any more, or again."""
        bulletin = self.world.bulletins[instance]
        bulletin.cut_off = not bulletin.cut_off
        if bulletin.loses and not bulletin.cut_off:
            bulletin.loses = False
            bulletin.hear(None, ())

    def store_trouble(self, instance: int, kinds: list[str]) -> None:
        self.stores[instance].trouble.next += kinds

    def relay_trouble(self, instance: int, kinds: list[str]) -> None:
        self.relays[instance].trouble.next += kinds

    # --- checks ---

    def check_one_call(self) -> None:
        for topic in QUESTIONS:
            beside = [call for call in self.upstream.calls if call.open and call.topic == topic]
            assert len(beside) <= 1, "two calls for one question"

    async def finish(self) -> None:
        for _ in range(1000):
            for call in self.upstream.calls:
                call.step("finish")
            await asyncio.sleep(0.1)
            if all(client.task.done() for client in self.clients) and not any(
                call.open for call in self.upstream.calls
            ):
                break
        await asyncio.gather(*self.updates, *(client.task for client in self.clients))
        for system in self.systems:
            assert await system.writeback.drain(60)
        await asyncio.sleep(20)
        for client in self.clients:
            client.judge(self.upstream)
        now = asyncio.get_running_loop().time()
        assert all(until <= now for until in self.world.leases.values()), (
            "a lease that somebody goes on renewing"
        )
        for system in self.systems:
            assert len(system.flights) == 0
            assert system.pipeline.refreshing == 0
            system.writeback.check()
            await system.store.check()
            await system.stop()
        left = {task.get_name() for task in asyncio.all_tasks()} - {asyncio.current_task().get_name()}  # type: ignore[union-attr]
        assert not left, left


WHO = st.integers(0, INSTANCES - 1)
HEADERS: list[dict[str, str]] = [{}, {}, {}, {"x-strata-ttl": "0"}, {"cache-control": "max-age=5"}]
ASK = st.tuples(
    st.just("ask"), WHO, st.sampled_from(QUESTIONS), st.booleans(), st.booleans(), st.sampled_from(HEADERS)
)
LEAVE = st.tuples(st.just("leave"), st.integers(0, 30))
GOOD = ("begin", "word", "word", "finish", "finish")
BAD = ("truncate", "refuse", "deny", "cut", "fade", "unreachable")
REST = st.tuples(st.just("rest"), st.sampled_from([0.001, 0.03, 0.1, 0.6, 2.5, 31.0]))
AGE = st.tuples(st.just("age"), st.sampled_from([1.0, 40.0, 99.0, 101.0]))
UPDATE = st.builds(lambda who, loses: ("update", who, loses), WHO, WHO)
TROUBLE = st.tuples(
    st.sampled_from(["store_trouble", "relay_trouble"]),
    WHO,
    st.lists(st.sampled_from(["slow", "fails", "late", ""]), min_size=1, max_size=4),
)


STROKES = (
    st.just(("restart",))
    | st.just(("usurp",))
    | st.tuples(st.just("jump"), st.sampled_from([-60.0, 60.0]))
    | st.tuples(st.just("cut_off"), WHO)
)


def steps(kinds: Sequence[str]) -> Any:
    return st.tuples(st.just("step"), st.sampled_from(kinds), st.integers(0, 30))


CALM = st.lists(ASK | ASK | ASK | steps(GOOD) | steps(GOOD) | REST | AGE, min_size=4, max_size=40)
STORM = st.lists(
    ASK
    | ASK
    | LEAVE
    | steps(GOOD)
    | steps(GOOD)
    | steps(GOOD + BAD)
    | REST
    | REST
    | AGE
    | UPDATE
    | TROUBLE
    | STROKES,
    min_size=4,
    max_size=50,
)
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


def run(operations: list[tuple[Any, ...]], *, calm: bool) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(Run().go(operations, calm=calm))


@settings(max_examples=150, deadline=None, suppress_health_check=SLOW)
@given(operations=CALM)
def test_without_faults_there_is_one_call_for_a_question(operations: list[tuple[Any, ...]]) -> None:
    run(operations, calm=True)


@settings(max_examples=300, deadline=None, suppress_health_check=SLOW)
@given(operations=STORM)
def test_whatever_fails_no_answer_is_stale_or_mixed_and_nothing_is_left_over(
    operations: list[tuple[Any, ...]],
) -> None:
    run(operations, calm=False)
