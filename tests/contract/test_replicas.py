"""Several servers as one, over real HTTP: retries, failover, health, affinity, tenants, and what engines say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest
from tests.clock import FakeClock
from tests.fakes.engines import FakeEngine
from tests.fakes.upstream import FakeUpstream, Gate, Reply

from stratacache.errors import UpstreamError
from stratacache.observe.metrics import Metrics
from stratacache.settings import KvSettings, OpenAISettings, Settings, TiersSettings
from stratacache.types import CacheControl, Request, Scope
from stratacache.upstream.replicas import ReplicaSet
from stratacache.wiring.upstreams import build_upstreams

LONG = "Platform nine is for trains to the coast, which leave at every full hour. " * 12


class Pool:
    """Fakes, and sets of replicas on them; ``waits`` are the pauses that were made, in seconds."""

    def __init__(self, fakes: list[FakeUpstream]) -> None:
        self.fakes = fakes
        self.clock = FakeClock()
        self.metrics = Metrics()
        self.waits: list[float] = []
        self.made: list[ReplicaSet] = []

    def __call__(self, *, affinity: bool = True, **fields: Any) -> ReplicaSet:
        urls = tuple(fake.base_url for fake in self.fakes)
        upstream = OpenAISettings(name="pool", models=("m",), replicas=urls, **fields)
        tiers = TiersSettings(kv=KvSettings(affinity=affinity))
        settings = Settings(upstreams=(upstream,), tiers=tiers, store="memory://")
        built = build_upstreams(settings, {}, self.metrics, self.clock, lambda: b"s" * 32, together=False)
        replicas = built["pool"]
        assert isinstance(replicas, ReplicaSet)
        replicas._sleep, replicas._draw = self.wait, lambda: 0.0
        self.made.append(replicas)
        return replicas

    async def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.clock.advance(seconds)

    @property
    def calls(self) -> list[int]:
        return [fake.chat_calls for fake in self.fakes]


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    async with AsyncExitStack() as stack:
        pool = Pool([await stack.enter_async_context(FakeUpstream()) for _ in range(3)])
        yield pool
        for replicas in pool.made:
            replicas.check()
            await replicas.close()


def request(*texts: str, tenant: str = "default", conversation: str = "", **fields: Any) -> Request:
    roles = ("system", "user", "assistant", "user", "assistant", "user")
    messages = [{"role": r, "content": t} for r, t in zip(roles, texts or ("hi",), strict=False)]
    body = {"model": "m", "messages": messages, **fields}
    return Request(
        "chat.completions",
        "m",
        "m",
        "pool",
        body,
        Scope(tenant=tenant),
        CacheControl(),
        conversation=conversation,
    )


async def ask(replicas: ReplicaSet, asked: Request) -> tuple[int, str, Any]:
    """Status, replica, and the answer."""
    response = await replicas.send(asked, asked.body, {})
    try:
        body = await response.read()
        return response.status, response.headers["x-strata-upstream"], msgspec.json.decode(body)
    finally:
        await response.close()


async def test_calls_go_round_without_affinity(pool: Pool) -> None:
    replicas = pool(affinity=False)
    names = [(await ask(replicas, request()))[1] for _ in range(6)]
    assert names == ["pool/0", "pool/1", "pool/2"] * 2


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_a_failing_replica_is_replaced_at_once(pool: Pool, status: int) -> None:
    pool.fakes[0].default = Reply(status=status, headers={"retry-after": "60"})
    replicas = pool(affinity=False)
    assert (await ask(replicas, request()))[:2] == (200, "pool/1")
    assert pool.calls == [1, 1, 0]
    assert pool.waits == []
    assert sum(pool.metrics.summary()["retries"].values()) == 1


async def test_what_the_client_did_wrong_is_not_tried_again(pool: Pool) -> None:
    for fake in pool.fakes:
        fake.default = Reply(status=400)
    assert (await ask(pool(), request()))[0] == 400
    assert sum(pool.calls) == 1


async def test_one_that_asks_to_be_left_alone_is(pool: Pool) -> None:
    pool.fakes[0].script(Reply(status=429, headers={"retry-after": "60"}))
    replicas = pool(affinity=False)
    names = [(await ask(replicas, request()))[1] for _ in range(4)]
    assert "pool/0" not in names
    pool.clock.advance(61)
    assert "pool/0" in [(await ask(replicas, request()))[1] for _ in range(3)]


async def test_when_all_are_busy_the_wait_is_as_they_asked(pool: Pool) -> None:
    for fake in pool.fakes:
        fake.script(Reply(status=429, headers={"retry-after": "3"}))
    status, *_ = await ask(pool(retries=3, affinity=False), request())
    assert status == 200
    assert pool.waits == [3.0]


async def test_a_long_wait_is_the_clients(pool: Pool) -> None:
    for fake in pool.fakes:
        fake.default = Reply(status=429, headers={"retry-after": "120"})
    response = await pool(retries=5).send(request(), request().body, {})
    assert (response.status, response.headers["retry-after"]) == (429, "120")
    await response.close()
    assert pool.calls == [1, 1, 1]
    assert pool.waits == []


async def test_a_provider_that_says_no_retry_is_believed(pool: Pool) -> None:
    pool.fakes[0].default = Reply(status=503, headers={"x-should-retry": "false"})
    assert (await ask(pool(affinity=False), request()))[0] == 503


async def test_one_server_alone_is_asked_again_after_a_pause_that_grows(pool: Pool) -> None:
    del pool.fakes[1:]
    pool.fakes[0].script(Reply(status=500), Reply(status=502))
    assert (await ask(pool(), request()))[0] == 200
    assert pool.waits == [0.125, 0.25]


async def test_one_server_that_is_gone_is_tried_and_then_given_up(pool: Pool) -> None:
    del pool.fakes[1:]
    replicas = pool()
    await pool.fakes[0].stop()
    with pytest.raises(UpstreamError, match="cannot be reached"):
        await ask(replicas, request())
    assert pool.waits == [0.125, 0.25]
    assert not await replicas.ready()


async def test_what_broke_off_before_it_began_is_asked_elsewhere_only(pool: Pool) -> None:
    pool.fakes[0].default = Reply(header_gate=Gate())
    replicas = pool(affinity=False)
    asking = asyncio.ensure_future(ask(replicas, request()))
    await pool.fakes[0].arrived(1)
    await pool.fakes[0].stop()
    assert (await asking)[:2] == (200, "pool/1")
    assert pool.calls == [1, 1, 0]


async def test_a_server_alone_is_not_asked_again_what_it_may_have_computed(pool: Pool) -> None:
    del pool.fakes[1:]
    pool.fakes[0].default = Reply(header_gate=Gate())
    asking = asyncio.ensure_future(ask(pool(), request()))
    await pool.fakes[0].arrived(1)
    await pool.fakes[0].stop()
    with pytest.raises(UpstreamError):
        await asking
    assert pool.calls == [1]


async def test_nothing_is_tried_again_once_an_answer_began(pool: Pool) -> None:
    for fake in pool.fakes:
        fake.default = Reply(text="one two three", cut_after=2)
    replicas = pool()
    response = await replicas.send(request(stream=True), request(stream=True).body, {})
    with pytest.raises(UpstreamError):
        async for _ in response.chunks():
            pass
    await response.close()
    assert sum(pool.calls) == 1
    results = pool.metrics.summary()["replicas"]
    assert sum(count for name, count in results.items() if name.endswith("upstream_cut")) == 1


async def test_a_replica_that_does_not_begin_is_left_for_another(pool: Pool) -> None:
    pool.fakes[0].default = Reply(header_gate=Gate())
    assert (await ask(pool(affinity=False, first_byte_timeout=0.05), request()))[:2] == (200, "pool/1")


async def test_retries_have_a_budget(pool: Pool) -> None:
    for fake in pool.fakes:
        fake.default = Reply(status=500)
    replicas = pool(retries=10)
    for _ in range(20):
        await ask(replicas, request())
    assert sum(pool.calls) <= 20 + 10 + 20 * 0.2


async def test_one_that_is_gone_is_passed_over_until_it_answers_a_probe(pool: Pool) -> None:
    replicas = pool(affinity=False)
    port = int(pool.fakes[0].base_url.rpartition(":")[2].partition("/")[0])
    await pool.fakes[0].stop()
    assert (await ask(replicas, request()))[:2] == (200, "pool/1")
    assert replicas.levels("up") == {"pool/0": 0.0, "pool/1": 1.0, "pool/2": 1.0}
    assert {(await ask(replicas, request()))[1] for _ in range(4)} == {"pool/1", "pool/2"}
    assert await replicas.ready()
    await pool.fakes[0].start(port)
    await replicas.health.probe()  # too early: it pauses
    assert replicas.levels("up")["pool/0"] == 0.0
    pool.clock.advance(1.0)
    await replicas.health.probe()
    assert replicas.levels("up")["pool/0"] == 1.0
    assert "pool/0" in {(await ask(replicas, request()))[1] for _ in range(3)}


async def test_probes_of_the_dead_grow_rarer(pool: Pool) -> None:
    replicas = pool(affinity=False)
    await pool.fakes[0].stop()
    await ask(replicas, request())
    probed = 0
    for _ in range(240):  # a minute
        pool.clock.advance(0.25)
        now = pool.clock.monotonic()
        if replicas.replicas[0].may_be_probed(now):
            probed += 1
            replicas.replicas[0].failed(now)
    assert 5 <= probed <= 9


async def test_errors_of_a_server_open_its_breaker(pool: Pool) -> None:
    pool.fakes[0].default = Reply(status=500)
    replicas = pool(affinity=False)
    for _ in range(30):
        assert (await ask(replicas, request()))[0] == 200
    assert pool.fakes[0].chat_calls == 5
    assert replicas.breakers()["pool/0"]() == "open"


async def test_ready_means_that_one_can_answer(pool: Pool) -> None:
    replicas = pool()
    for fake in pool.fakes:
        assert await replicas.ready()
        await fake.stop()
    with pytest.raises(UpstreamError):
        await ask(replicas, request())
    assert not await replicas.ready()


async def test_a_cancelled_call_leaves_nothing_behind(pool: Pool) -> None:
    for fake in pool.fakes:
        fake.default = Reply(header_gate=Gate())
    replicas = pool()
    asking = asyncio.ensure_future(ask(replicas, request(LONG)))
    while not any(one.active for one in replicas.replicas):  # noqa: ASYNC110 - production has no use for an event
        await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    replicas.check()


async def test_turns_of_a_conversation_find_their_replica(pool: Pool) -> None:
    engines = [FakeEngine(fake, "vllm") for fake in pool.fakes]
    replicas = pool(engine="vllm")
    homes: dict[int, set[str]] = {}
    shares = []
    for turn in range(3):
        for number in range(7):
            texts = [LONG, f"{number} {LONG}", *["And then? " * 12] * (2 * turn)]
            _, name, answer = await ask(replicas, request(*texts[:6]))
            homes.setdefault(number, set()).add(name)
            if turn:
                use = answer["usage"]
                shares.append(use["prompt_tokens_details"]["cached_tokens"] / use["prompt_tokens"])
    assert all(len(names) == 1 for names in homes.values())
    assert len(set.union(*homes.values())) == 3
    assert min(shares) > 0.75
    assert all(engine.hit for engine in engines)


async def test_a_short_conversation_stays_by_its_name(pool: Pool) -> None:
    replicas = pool()
    names = {(await ask(replicas, request("s", "hi", conversation="c-1")))[1] for _ in range(5)}
    assert len(names) == 1


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
async def test_tenants_share_no_prefix(pool: Pool, kind: str) -> None:
    del pool.fakes[1:]
    engine = FakeEngine(pool.fakes[0], kind)
    replicas = pool(engine=kind)

    async def cached(asked: Request) -> int:
        status, _, answer = await ask(replicas, asked)
        assert status == 200
        return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])

    assert await cached(request(LONG, tenant="acme")) == 0
    assert await cached(request(LONG, tenant="acme")) > 0
    assert await cached(request(LONG, tenant="globex")) == 0
    assert await cached(request(LONG, tenant="globex", cache_salt=engine.salts[0])) == 0
    assert await cached(request(LONG, tenant="acme", cache_salt="team")) == 0
    assert await cached(request(LONG, tenant="acme", cache_salt=["odd"])) == 0
    assert all(isinstance(salt, str) and len(salt) == 43 for salt in engine.salts)


async def test_llama_cpp_keeps_nothing_of_tenants_as_it_has_no_salt(pool: Pool) -> None:
    del pool.fakes[1:]
    FakeEngine(pool.fakes[0], "llamacpp")
    replicas = pool(engine="llamacpp")

    async def cached(asked: Request) -> int:
        return int((await ask(replicas, asked))[2]["timings"]["cache_n"])

    assert [await cached(request(LONG)) > 0 for _ in range(2)] == [False, True]
    assert [await cached(request(LONG, tenant="acme")) for _ in range(2)] == [0, 0]


async def test_what_is_passed_through_is_shared_with_nobody(pool: Pool) -> None:
    engine = FakeEngine(pool.fakes[0], "vllm")
    del pool.fakes[1:]
    replicas = pool(engine="vllm")
    body = msgspec.json.encode(request(LONG).body)
    for _ in range(2):
        response = await replicas.forward(
            "POST", "/chat/completions", "", body, {"content-type": "application/json"}
        )
        await response.read()
        await response.close()
    assert len(set(engine.salts)) == 2
    assert engine.hit == 0


@pytest.mark.parametrize("fields", [{}, {"stream": True, "stream_options": {"include_usage": True}}])
async def test_an_evicted_prefix_is_unlearned_from_what_the_engine_reports(
    pool: Pool, fields: dict[str, Any]
) -> None:
    engines = [FakeEngine(fake, "vllm") for fake in pool.fakes]
    replicas = pool(engine="vllm")
    old, new = (
        request("s", n + LONG, conversation="one", **fields) for n in "12"
    )  # so both go to one replica
    forgotten = []
    settle = replicas.affinity.settle
    replicas.affinity.settle = lambda *given: forgotten.append(settle(*given)) or forgotten[-1]  # type: ignore[assignment, func-returns-value, misc]
    for asked in (old, new, new):
        for engine in engines:
            engine._blocks.clear()
        response = await replicas.send(asked, asked.body, {})
        async for _ in response.chunks():
            pass
        await response.close()
    assert forgotten[-1] > 0


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("vllm", {"kv_usage": 0.25, "preemptions": 3.0, "running": 1.0, "waiting": 2.0, "capacity": 4096.0}),
        ("sglang", {"kv_usage": 0.28, "hit_rate": 0.5, "running": 1.0, "waiting": 2.0, "capacity": 4096.0}),
        ("llamacpp", {"running": 1.0, "waiting": 2.0}),
    ],
)
async def test_what_engines_say_of_themselves_is_shown(
    pool: Pool, kind: str, expected: dict[str, float]
) -> None:
    for fake in pool.fakes:
        FakeEngine(fake, kind)
    replicas = pool(engine=kind)
    await replicas.health.probe()
    for figure, value in expected.items():
        assert replicas.levels(figure) == dict.fromkeys(("pool/0", "pool/1", "pool/2"), value)


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
async def test_an_invalidation_of_a_named_tag_empties_the_engines(pool: Pool, kind: str) -> None:
    engines = [FakeEngine(fake, kind) for fake in pool.fakes]
    replicas = pool(engine=kind, reset_on=("handbook*",))
    await ask(replicas, request(LONG))
    replicas.invalidated(["prices"])
    assert not replicas.resetting
    replicas.invalidated(["prices", "handbook-7"])
    await asyncio.gather(*replicas.resetting)
    assert [engine.resets for engine in engines] == [1, 1, 1]
    assert all(replicas.affinity.held(number) == 0 for number in range(3))


async def test_a_reset_that_fails_is_no_error(pool: Pool) -> None:
    engines = [FakeEngine(fake, "vllm") for fake in pool.fakes]
    replicas = pool(engine="vllm", reset_on=("*",))
    await pool.fakes[0].stop()
    pool.fakes[1].dispatch = lambda call: Reply(status=404) if call.path == "/reset_prefix_cache" else None
    await replicas.reset()
    assert [engine.resets for engine in engines] == [0, 0, 1]
