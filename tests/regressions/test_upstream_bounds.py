"""Upstreams that send without end, and paths that would lead out of their base URL."""

from __future__ import annotations

import gzip

import pytest
from tests.fakes.upstream import FakeUpstream, Reply
from tests.harness import question, running_gateway
from yarl import URL

from stratacache.pipeline import call
from stratacache.upstream import openai

CHUNK = b'data: {"id": "x", "choices": [{"index": 0, "delta": {"content": "more "}}]}\n\n'


async def test_an_endless_stream_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "MAX_STREAM", 20_000)
    async with FakeUpstream() as fake, running_gateway(fake) as gateway:
        fake.default = Reply(raw=[CHUNK * 10] * 100, content_type="text/event-stream")
        status, _, body = await gateway.ask(question(stream=True))
        assert (status, b"upstream_malformed" in body, b"[DONE]" in body) == (200, True, False)
        assert len(body) < 40_000
        status, _, answer = await gateway.ask(question())
        assert (status, answer["error"]["code"]) == (502, "upstream_malformed")


@pytest.mark.parametrize("compressed", [False, True])
async def test_a_huge_answer_is_given_up(compressed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai, "MAX_ANSWER", 100_000)
    body = b'{"choices": "' + b"a" * 200_000 + b'"}'
    async with FakeUpstream() as fake, running_gateway(fake) as gateway:
        headers = {"content-encoding": "gzip"} if compressed else {}
        raw = [gzip.compress(body)] if compressed else [body]
        fake.default = Reply(raw=raw, headers=headers, content_type="application/json")
        status, _, answer = await gateway.ask(question())
        assert (status, answer["error"]["code"]) == (502, "upstream_malformed")


@pytest.mark.parametrize(
    "path", ["/..;/admin", "/%2e%2e%3Bx=1/admin", "/%252e%252e/admin", "/a%252f..%255cb", "/.;x/y"]
)
async def test_dots_in_disguise_do_not_leave_the_base_url(path: str) -> None:
    async with FakeUpstream() as fake, running_gateway(fake) as gateway:
        async with gateway.http.get(URL(gateway.base_url + path, encoded=True)) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (400, "invalid_path")
        assert fake.calls == []
