"""Answers given to the wrong request: another scene's old entry, another server's, another caller's refusal."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.fakes.upstream import Call, FakeUpstream, Gate, Reply
from tests.harness import Gateway, question, running_gateway

from stratacache.pipeline import call
from stratacache.ports import Store
from stratacache.types import Entry

SCENES = {"scenes": {"default": {"ttl": "1h"}, "prices": {"ttl": "1m", "jitter": 0}}}


@pytest.fixture
async def fake() -> FakeUpstream:  # type: ignore[misc]
    async with FakeUpstream() as fake:
        yield fake


async def test_a_scenes_ttl_bounds_entries_that_another_scene_stored(fake: FakeUpstream) -> None:
    prices = {"x-strata-scene": "prices"}
    async with running_gateway(fake, SCENES) as gateway:
        await gateway.ask(question())
        await gateway.stored()
        gateway.clock.advance(59)
        assert (await gateway.ask(question(), prices))[1]["x-strata-cache"] == "hit"
        gateway.clock.advance(2)
        assert (await gateway.ask(question()))[1]["x-strata-cache"] == "hit"
        _, headers, _ = await gateway.ask(question(), prices)
        assert (headers["x-strata-cache"], headers["x-strata-reason"]) == ("miss", "too_old")


async def test_a_file_outlives_the_server_behind_an_upstreams_name(
    fake: FakeUpstream, tmp_path: Path
) -> None:
    config = {"store": f"sqlite:///{tmp_path}/cache.db"}
    fake.default = Reply(text="of the old server")
    async with running_gateway(fake, config) as gateway:
        await gateway.ask(question())
    async with FakeUpstream() as other:
        other.default = Reply(text="of the new server")
        async with running_gateway(other, config) as gateway:
            assert _text(await gateway.ask(question())) == "of the new server"
    async with running_gateway(fake, config) as gateway:
        status, headers, answer = await gateway.ask(question())
        assert (headers["x-strata-cache"], _text((status, headers, answer))) == ("hit", "of the old server")


@pytest.mark.parametrize("status", [400, 422])
async def test_a_follower_does_not_inherit_a_refusal_of_what_only_the_leader_sent(
    fake: FakeUpstream, status: int
) -> None:
    gate = Gate()

    def reply(made: Call) -> Reply:
        if "metadata" in made.json:
            return Reply(status=status, text="bad metadata", header_gate=gate)
        return Reply(text="fine")

    fake.responder = reply
    async with running_gateway(fake) as gateway:
        leader = asyncio.create_task(gateway.ask(question(metadata={"a": 1})))
        await fake.arrived(1)
        follower = asyncio.create_task(gateway.ask(question()))
        twin = asyncio.create_task(gateway.ask(question(metadata={"a": 1})))
        await gateway.listening(3)
        gate.open()
        assert [(await one)[0] for one in (leader, follower, twin)] == [status, 200, status]
        assert fake.chat_calls == 2


async def test_an_overloaded_upstream_is_not_asked_again_for_each_follower(fake: FakeUpstream) -> None:
    gate = Gate()
    fake.default = Reply(status=429, text="slow down", header_gate=gate)
    async with running_gateway(fake) as gateway:
        asking = [asyncio.create_task(gateway.ask(question(user=str(n)))) for n in range(4)]
        await gateway.listening(4)
        gate.open()
        assert [(await one)[0] for one in asking] == [429] * 4
        assert fake.chat_calls == 1


async def test_a_stuck_store_does_not_keep_an_answer_alive(
    fake: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call, "LINGER", 0)
    async with running_gateway(fake) as gateway:
        release = _stick(gateway.system.store, monkeypatch)
        await gateway.ask(question())
        await _boarding_is_closed(gateway)
        assert (await gateway.ask(question()))[1]["x-strata-cache"] == "miss"
        await _boarding_is_closed(gateway)
        assert fake.chat_calls == 2
        release.set()


def _stick(store: Store, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    release = asyncio.Event()
    put = store.put

    async def stuck(digest: bytes, entry: Entry) -> bool:
        await release.wait()
        return await put(digest, entry)

    monkeypatch.setattr(store, "put", stuck)
    return release


async def _boarding_is_closed(gateway: Gateway) -> None:
    while len(gateway.system.flights):  # noqa: ASYNC110 - production has no use for an event
        await asyncio.sleep(0)


def _text(asked: tuple[int, object, object]) -> str:
    answer = asked[2]
    assert isinstance(answer, dict)
    text = answer["choices"][0]["message"]["content"]
    assert isinstance(text, str)
    return text
