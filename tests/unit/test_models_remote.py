"""The embedder behind ``/v1/embeddings``: what it sends, and servers that are down, slow, wrong or hostile."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from tests.fakes.embeddings import EMBEDDINGS, FakeEmbeddings
from tests.fakes.upstream import Gate, Reply

from stratacache.errors import ModelError, SettingsError
from stratacache.models.remote import MAX_ANSWER, RemoteEmbedder
from stratacache.types import Call, Secret, Usage


@pytest.fixture
async def server() -> AsyncIterator[FakeEmbeddings]:
    async with FakeEmbeddings() as made:
        yield made


@pytest.fixture
async def embedder(server: FakeEmbeddings) -> AsyncIterator[RemoteEmbedder]:
    made = RemoteEmbedder(server.base_url, "m", api_key=Secret("sk-own"), budget=20)
    yield made
    await made.close()


async def refusal(embedder: RemoteEmbedder, text: str = "question") -> str:
    with pytest.raises(ModelError) as refused:
        await embedder.embed(text)
    assert "sk-own" not in str(refused.value)
    assert "question" not in str(refused.value)
    return refused.value.code


async def test_every_call_is_charged(server: FakeEmbeddings) -> None:
    charged: list[Call] = []
    made = RemoteEmbedder(server.base_url, "m", api_key=None, budget=20, charge=charged.append)
    await made.embed("one")
    await made.embed("two")
    await made.close()
    assert charged == [Call("embedder", "m", Usage(1), purpose="embedding")] * 2


async def test_sends_one_text_as_openai_has_it(server: FakeEmbeddings, embedder: RemoteEmbedder) -> None:
    vector = await embedder.embed("How do I reset my PASSWORD?")
    wide = np.array(server.vector("How do I reset my PASSWORD?"))
    np.testing.assert_allclose(vector, wide / np.linalg.norm(wide), atol=1e-6)
    (call,) = server.calls
    assert (call.method, call.path) == ("POST", EMBEDDINGS)
    assert call.json == {"model": "m", "input": ["How do I reset my PASSWORD?"], "encoding_format": "float"}
    assert call.headers["authorization"] == "Bearer sk-own"
    assert call.headers["accept-encoding"] == "identity"
    await embedder.embed("again")
    assert server.connections == 1
    assert embedder.dimension == 16


@pytest.mark.parametrize("key", [None, Secret("k")])
async def test_user_info_of_the_url_is_sent_only_without_a_key(
    server: FakeEmbeddings, key: Secret | None
) -> None:
    url = server.base_url.replace("http://", "http://user:p%40ss@")
    embedder = RemoteEmbedder(url, "m", api_key=key, budget=20)
    await embedder.embed("a")
    basic = "Basic " + base64.b64encode(b"user:p@ss").decode()
    assert server.calls[0].headers["authorization"] == ("Bearer k" if key else basic)
    assert server.calls[0].target == EMBEDDINGS
    same = RemoteEmbedder(server.base_url + "/", "m", api_key=None, budget=20)
    assert embedder.fingerprint == same.fingerprint
    await embedder.close()


def test_other_models_and_servers_have_other_fingerprints() -> None:
    made = [("http://a/v1", "m"), ("http://a/v1", "n"), ("http://b/v1", "m"), ("https://a/v1", "m")]
    assert len({RemoteEmbedder(url, name, api_key=None, budget=1).fingerprint for url, name in made}) == 4


@pytest.mark.parametrize("url", ["ftp://a/v1", "a/v1", "file:///etc/passwd", "http://"])
def test_refuses_what_is_no_address_of_a_server(url: str) -> None:
    with pytest.raises((SettingsError, ValueError)):
        RemoteEmbedder(url, "m", api_key=None, budget=1)


def row(*vector: Any, index: int = 0) -> dict[str, Any]:
    return {"object": "embedding", "index": index, "embedding": list(vector)}


@pytest.mark.parametrize(
    "reply",
    [
        Reply(body={"data": []}),
        Reply(body={"data": [row(1.0, 0.0), row(0.0, 1.0, index=1)]}),
        Reply(body={"data": [row(1.0, 0.0, index=1), row(0.0, 1.0)]}),
        Reply(body={"data": [row(1.0, 0.0, index=1)]}),
        Reply(body={"data": [row()]}),
        Reply(body={"data": [row(0.0, 0.0)]}),
        Reply(body={"data": [row(1.0, None)]}),
        Reply(body={"data": [row("1.0", 0.0)]}),
        Reply(body={"data": [row([1.0], [0.0])]}),
        Reply(body={"data": [{"index": 0, "embedding": "AAAA"}]}),
        Reply(body={"error": "none"}),
        Reply(raw=[b'{"data": [{"index": 0, "embedding": [NaN, 1.0]}]}']),
        Reply(raw=[b'{"data": [{"index": 0, "embedding": [1e999, 1.0]}]}']),
        Reply(raw=[b'{"data": [{"index": 0, "embedding": [1.0, ']),
        Reply(raw=[b"<html>"], content_type="text/html"),
        Reply(raw=[b""]),
        Reply(raw=[b"[" * MAX_ANSWER, b"["]),
        Reply(status=500),
        Reply(status=401),
        Reply(status=404),
        Reply(cut_after=0),
        Reply(raw=[b'{"data": [{', b"}"], cut_after=1),
    ],
)
async def test_anything_but_one_good_vector_is_refused(
    server: FakeEmbeddings, embedder: RemoteEmbedder, reply: Reply
) -> None:
    server.routes[EMBEDDINGS] = reply
    assert await refusal(embedder) == "embedder_error"
    del server.routes[EMBEDDINGS]
    assert len(await embedder.embed("question")) == 16


async def test_a_redirect_is_not_followed(server: FakeEmbeddings, embedder: RemoteEmbedder) -> None:
    server.routes[EMBEDDINGS] = Reply(status=307, headers={"location": "/v1/elsewhere"})
    assert await refusal(embedder) == "embedder_error"
    assert len(server.calls) == 1


async def test_a_server_that_has_too_much_to_do(server: FakeEmbeddings, embedder: RemoteEmbedder) -> None:
    server.routes[EMBEDDINGS] = Reply(status=429)
    assert await refusal(embedder) == "overloaded"


async def test_another_dimension_than_before_is_refused(
    server: FakeEmbeddings, embedder: RemoteEmbedder
) -> None:
    await embedder.embed("question")
    server.dimension = 8
    assert await refusal(embedder) == "embedder_changed"
    server.dimension = 16
    assert len(await embedder.embed("question")) == 16
    stated = RemoteEmbedder(server.base_url, "m", api_key=None, budget=20, dimension=32)
    assert await refusal(stated) == "embedder_changed"
    await stated.close()


async def test_a_slow_server_costs_no_more_than_the_budget(server: FakeEmbeddings) -> None:
    gate = Gate()
    server.routes[EMBEDDINGS] = Reply(body={"data": [row(1.0)]}, header_gate=gate)
    embedder = RemoteEmbedder(server.base_url, "m", api_key=None, budget=0.05)
    assert await refusal(embedder) == "embedder_slow"
    await server.aborts(1)
    gate.open()
    await embedder.close()


async def test_a_server_that_is_down_and_comes_back(server: FakeEmbeddings, embedder: RemoteEmbedder) -> None:
    port = int(server.base_url.rpartition(":")[2].partition("/")[0])
    await embedder.embed("question")
    await server.stop()
    assert await refusal(embedder) == "embedder_error"
    await server.start(port)
    assert len(await embedder.embed("question")) == 16


async def test_only_so_many_calls_at_a_time(
    server: FakeEmbeddings, embedder: RemoteEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stratacache.models.remote._CALLS", 2)
    gate = Gate()
    server.routes[EMBEDDINGS] = Reply(body={"data": [row(1.0)]}, header_gate=gate)
    calls = [asyncio.create_task(embedder.embed("question")) for _ in range(2)]
    await server.arrived(2)
    assert await refusal(embedder) == "overloaded"
    calls[0].cancel()
    await asyncio.gather(calls[0], return_exceptions=True)
    third = asyncio.create_task(embedder.embed("question"))
    await server.arrived(3)
    gate.open()
    assert len(await third) == len(await calls[1]) == 1


async def test_after_close_it_is_passed_over(embedder: RemoteEmbedder) -> None:
    await embedder.embed("question")
    await embedder.close()
    await embedder.close()
    assert await refusal(embedder) == "overloaded"
