"""The fake upstream itself: what later tests rely on."""

from __future__ import annotations

import aiohttp
from tests.fakes.upstream import FakeUpstream, Gate, Reply

STREAM = {"model": "m", "stream": True}


async def test_a_held_stream_shows_its_first_events_and_counts_the_hang_up() -> None:
    gate = Gate()
    async with FakeUpstream() as fake, aiohttp.ClientSession() as session:
        fake.default = Reply(text="one two", gates={2: gate})
        response = await session.post(fake.base_url + "/chat/completions", json=STREAM)
        await gate.reached.wait()
        first = await response.content.readuntil(b"\n\n")
        response.close()
        await fake.aborts(1)
        await fake.idle()
    assert b'"role":"assistant"' in first
    assert fake.chat_calls == 1


async def test_scripted_replies_come_before_the_default() -> None:
    async with FakeUpstream() as fake, aiohttp.ClientSession() as session:
        fake.script(Reply(status=429, headers={"retry-after": "7"}))
        url = fake.base_url + "/chat/completions"
        async with session.post(url, json={"model": "m"}) as refused:
            assert (refused.status, refused.headers["retry-after"]) == (429, "7")
        async with session.post(url, json={"model": "m"}) as answered:
            assert (await answered.json())["choices"][0]["message"]["content"] == "Hello from the fake."
