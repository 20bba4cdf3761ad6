"""What keeps answers fresh, and what stands in when the upstream does not answer: refresh, stale, negative."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.fakes.upstream import FakeUpstream, Gate, Reply
from tests.harness import Gateway, question, running_gateway

SCENE = {"ttl": 100, "jitter": 0, "stale_if_error": 50, "early_refresh": 0}


def scenes(**changes: Any) -> dict[str, Any]:
    return {"scenes": {"default": {**SCENE, **changes}}}


async def verdict(gateway: Gateway, body: Any = None, **headers: str) -> tuple[int, str, str]:
    status, got, _ = await gateway.ask(body or question(), headers)
    await gateway.stored()
    return status, got["x-strata-cache"], got["x-strata-reason"]


@pytest.mark.parametrize(
    ("reply", "stream"),
    [
        (Reply(status=503), False),
        (Reply(status=503), True),
        (Reply(status=429), True),
        (Reply(raw=[b"{", b"}"], cut_after=1, content_type="application/json"), False),
    ],
)
async def test_an_expired_answer_stands_in_for_an_upstream_that_fails(
    fake: FakeUpstream, reply: Reply, stream: bool
) -> None:
    async with running_gateway(fake, scenes()) as gateway:
        await verdict(gateway)
        gateway.clock.advance(120)
        fake.default = reply
        status, headers, _ = await gateway.ask(question(stream=stream))
        assert (status, headers["x-strata-cache"], headers["x-strata-reason"]) == (
            200,
            "stale",
            "upstream_failed",
        )
        assert headers["age"] == "120"
        gateway.clock.advance(31)
        assert (await verdict(gateway))[1] == "miss", "past stale_if_error it is gone"
        fake.default = Reply()


async def test_an_upstream_that_answers_replaces_the_expired_answer(fake: FakeUpstream) -> None:
    async with running_gateway(fake, scenes()) as gateway:
        await verdict(gateway)
        gateway.clock.advance(120)
        assert await verdict(gateway) == (200, "miss", "expired")
        assert await verdict(gateway) == (200, "hit", "exact")


async def test_an_invalidated_answer_stands_in_for_nobody(fake: FakeUpstream) -> None:
    async with running_gateway(fake, scenes()) as gateway:
        await verdict(gateway)
        gateway.clock.advance(120)
        gate = Gate()
        fake.default = Reply(status=503, header_gate=gate)
        asking = asyncio.ensure_future(gateway.ask(question()))
        await gate.reached.wait()
        await gateway.system.store.invalidate(["tenant:default"])
        gate.open()
        status, headers, _ = await asking
        assert (status, headers["x-strata-cache"]) == (503, "miss")


async def test_a_request_error_is_not_covered_by_an_old_answer(fake: FakeUpstream) -> None:
    async with running_gateway(fake, scenes()) as gateway:
        await verdict(gateway)
        gateway.clock.advance(120)
        fake.default = Reply(status=400)
        assert (await verdict(gateway))[:2] == (400, "miss")


async def test_a_hot_entry_is_fetched_anew_before_it_expires_while_the_old_one_answers(
    fake: FakeUpstream,
) -> None:
    async with running_gateway(fake, scenes(early_refresh=100.0)) as gateway:
        gate = Gate()
        fake.script(Reply(header_gate=gate))
        first = asyncio.ensure_future(gateway.ask(question()))
        await gate.reached.wait()
        gateway.clock.advance(1)  # the answer takes a second
        gate.open()
        await first
        await gateway.stored()
        gateway.clock.advance(99.99)
        late = Gate()
        fake.script(Reply(text="Renewed.", header_gate=late))
        assert await verdict(gateway) == (200, "hit", "exact")  # nobody waits for the refresh
        await late.reached.wait()
        late.open()
        while gateway.system.metrics.summary()["writeback"]["stored"] < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        _, _, renewed = await gateway.ask(question())
        assert renewed["choices"][0]["message"]["content"] == "Renewed."
        assert fake.chat_calls == 2
        assert gateway.system.metrics.summary()["events"]["refresh"] == 1


async def test_no_answer_is_remembered_for_a_while(fake: FakeUpstream) -> None:
    config = {"tiers": {"exact": {"negative_ttl": 60, "negative_markers": ["I do not know"]}}, **scenes()}
    async with running_gateway(fake, config) as gateway:
        for number, reply in enumerate(
            [Reply(text=""), Reply(status=404), Reply(text="I do not know that.")]
        ):
            fake.default = reply
            body = question(f"Question {number}?")
            calls = fake.chat_calls
            assert (await verdict(gateway, body))[:2] == (reply.status, "miss")
            assert await verdict(gateway, body) == (reply.status, "hit", "negative")
            assert fake.chat_calls == calls + 1
            gateway.clock.advance(61)
            assert (await verdict(gateway, body))[:2] == (reply.status, "miss")


async def test_a_remembered_refusal_is_one_of_the_plain_form_only(fake: FakeUpstream) -> None:
    async with running_gateway(fake) as gateway:
        fake.default = Reply(status=404)
        await verdict(gateway)
        assert await verdict(gateway) == (404, "hit", "negative")
        fake.default = Reply()
        status, headers, _ = await gateway.ask(question(stream=True))
        assert (status, headers["x-strata-reason"]) == (200, "other_form")


async def test_an_answer_begun_before_an_invalidation_is_not_stored_and_joined_by_nobody_after_it(
    fake: FakeUpstream,
) -> None:
    async with running_gateway(fake) as gateway:
        gate = Gate()
        fake.script(Reply(text="Old.", header_gate=gate), Reply(text="New."))
        before = asyncio.ensure_future(gateway.ask(question(), {"x-strata-tags": "prices"}))
        await gate.reached.wait()
        await gateway.system.store.invalidate(["prices"])
        _, headers, after = await gateway.ask(question(), {"x-strata-tags": "prices"})
        assert (headers["x-strata-cache"], after["choices"][0]["message"]["content"]) == ("miss", "New.")
        await gateway.stored()
        gate.open()
        assert (await before)[2]["choices"][0]["message"]["content"] == "Old."
        await gateway.stored()
        assert gateway.system.metrics.summary()["writeback"] == {"stored": 1, "outdated": 1}
        _, headers, found = await gateway.ask(question(), {"x-strata-tags": "prices"})
        assert (headers["x-strata-cache"], found["choices"][0]["message"]["content"]) == ("hit", "New.")


async def test_past_the_grace_those_who_wait_for_an_outdated_answer_ask_anew(fake: FakeUpstream) -> None:
    async with running_gateway(fake, {"versions": {"grace": 0}}) as gateway:
        gate = Gate()
        fake.script(Reply(text="Old.", header_gate=gate), Reply(text="New."))
        waiting = [asyncio.ensure_future(gateway.ask(question())) for _ in range(3)]
        await gateway.listening(3)
        await gate.reached.wait()
        gateway.system.hear(await gateway.system.store.invalidate(["*"]), ())
        answers = await asyncio.gather(*waiting)
        assert {body["choices"][0]["message"]["content"] for _, _, body in answers} == {"New."}
        assert fake.chat_calls == 2


async def test_an_entry_without_a_tag_answers_nobody_who_relies_on_it(fake: FakeUpstream) -> None:
    async with running_gateway(fake) as gateway:
        await verdict(gateway)
        assert await verdict(gateway, **{"x-strata-tags": "prices"}) == (200, "miss", "untagged")
        assert await verdict(gateway, **{"x-strata-tags": "prices"}) == (200, "hit", "exact")
        assert await verdict(gateway) == (200, "hit", "exact")
        assert await verdict(gateway, **{"x-strata-tags": "news"}) == (200, "miss", "untagged")
        assert await verdict(gateway, **{"x-strata-tags": "prices,news"}) == (200, "hit", "exact"), (
            "tags add up"
        )


async def test_a_closed_set_of_questions_is_taught_by_administrators_only(fake: FakeUpstream) -> None:
    config = {"tiers": {"exact": {"admission": "closed", "default_answer": "Please ask our staff."}}}
    async with running_gateway(fake, config) as gateway:
        status, headers, body = await gateway.ask(question())
        assert (status, headers["x-strata-reason"]) == (200, "closed")
        assert body["choices"][0]["message"]["content"] == "Please ask our staff."
        assert (await gateway.ask(question(), {"cache-control": "no-store"}))[1][
            "x-strata-reason"
        ] == "closed"
        assert fake.chat_calls == 0
        assert await verdict(gateway, **{"x-strata-admit": "1"}) == (200, "miss", "not_found")
        gateway.clock.advance(100_000)
        assert (await verdict(gateway))[:2] == (200, "miss"), "a known question may always be asked again"


async def test_a_saturated_upstream_is_spared_the_new_questions(fake: FakeUpstream) -> None:
    config = {"tiers": {"exact": {"admission": "shed", "shed_above": 1}}}
    async with running_gateway(fake, config) as gateway:
        await verdict(gateway, question("Known?"))
        gate = Gate()
        fake.script(Reply(header_gate=gate))
        busy = asyncio.ensure_future(gateway.ask(question("Slow?")))
        await gate.reached.wait()
        status, headers, _ = await gateway.ask(question("New?"))
        assert (status, headers["x-strata-reason"], headers["retry-after"]) == (429, "shed", "5")
        assert (await verdict(gateway, question("Known?"))) == (200, "hit", "exact")
        gateway.clock.advance(100_000)
        assert (await verdict(gateway, question("Known?")))[:2] == (200, "miss")
        gate.open()
        assert (await busy)[0] == 200
        assert (await verdict(gateway, question("New?")))[:2] == (200, "miss")


async def test_a_scene_is_picked_by_what_the_request_shows(fake: FakeUpstream) -> None:
    config = {
        "scenes": {
            "support": {"ttl": 50, "jitter": 0, "match": {"headers": {"x-app": "support-*"}}},
            "prices": {"ttl": 20, "jitter": 0, "match": {"tags": ["kb:*"]}},
            "private": {"exact": False, "match": {"headers": {"x-app": "intranet"}}},
        }
    }
    async with running_gateway(fake, config) as gateway:
        for number, (headers, ttl) in enumerate(
            [({"x-app": "support-eu"}, 50), ({"x-strata-tags": "kb:1"}, 20)]
        ):
            body = question(f"Question {number}?")
            await verdict(gateway, body, **headers)
            gateway.clock.advance(ttl - 1)
            assert (await verdict(gateway, body, **headers))[1] == "hit"
            gateway.clock.advance(1)
            assert (await verdict(gateway, body, **headers))[1] == "miss"
        assert (await verdict(gateway, **{"x-app": "intranet"}))[1:] == ("bypass", "tier_off")
        named = {"x-app": "intranet", "x-strata-scene": "general"}
        assert (await verdict(gateway, **named))[1:] == ("miss", "not_found")


async def test_a_caller_may_ask_for_more_freshness_than_the_scene(fake: FakeUpstream) -> None:
    async with running_gateway(fake, scenes()) as gateway:
        await verdict(gateway)
        gateway.clock.advance(60)
        assert (await verdict(gateway, **{"cache-control": "min-fresh=40"}))[1] == "hit"
        assert (await verdict(gateway, **{"cache-control": "min-fresh=41"}))[1:] == ("miss", "too_old")
        gateway.clock.advance(120)
        fake.default = Reply(status=503)
        assert (await verdict(gateway, **{"cache-control": "stale-if-error=10"}))[:2] == (503, "miss")
        assert (await verdict(gateway))[:2] == (200, "stale")


async def test_a_stricter_scene_takes_no_older_stand_in_than_its_own(fake: FakeUpstream) -> None:
    config = {
        "scenes": {
            "general": {"ttl": 1000, "jitter": 0, "stale_if_error": 1000},
            "realtime": {"ttl": 100, "jitter": 0, "stale_if_error": 50},
        }
    }
    general, realtime = {"x-strata-scene": "general"}, {"x-strata-scene": "realtime"}
    async with running_gateway(fake, config) as gateway:
        await verdict(gateway, **general)
        fake.default = Reply(status=503)
        gateway.clock.advance(150)
        assert (await verdict(gateway, **realtime))[1] == "stale"
        gateway.clock.advance(1)
        assert (await verdict(gateway, **realtime))[1] == "miss"
        gateway.clock.advance(1000)
        assert (await verdict(gateway, **general))[1] == "stale"
        assert (await verdict(gateway, **realtime))[1] == "miss"
