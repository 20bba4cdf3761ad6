"""The seams of other libraries, with the real packages: the SDKs' transport, LangChain's cache, a LlamaIndex model."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import anthropic
import openai
import pytest
from langchain_core.globals import set_llm_cache
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, Generation
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, MessageRole, TextBlock
from tests.fakes.upstream import FakeUpstream, Reply, in_thread
from tests.library_kit import options

from stratacache import Stratacache, StratacacheTransport, SyncStratacache
from stratacache.integrations.langchain import StratacacheCache
from stratacache.integrations.llamaindex import StratacacheLLM

HERE = "http://stratacache/v1"
SAYS: Any = [{"role": "user", "content": "What is a cache?"}]


@pytest.fixture
def upstream() -> Iterator[FakeUpstream]:
    with in_thread() as fake:
        yield fake


@pytest.fixture
def kept(upstream: FakeUpstream) -> Iterator[SyncStratacache]:
    with SyncStratacache(**options(upstream)) as cache:
        yield cache


def client_of(sdk: Any, cache: Any, **more: Any) -> Any:
    """The SDK's default client class with the transport below it."""
    made = sdk.DefaultHttpxClient(transport=StratacacheTransport(cache, **more))
    return sdk.OpenAI(base_url=HERE, api_key="x", http_client=made, max_retries=0)


def test_openais_sdk_is_answered_in_this_process(upstream: FakeUpstream, kept: SyncStratacache) -> None:
    with client_of(openai, kept) as client:
        first = client.chat.completions.with_raw_response.create(model="fake-model", messages=SAYS)
        kept.settled()
        again = client.chat.completions.with_raw_response.create(model="fake-model", messages=SAYS)
        assert [raw.headers["x-strata-cache"] for raw in (first, again)] == ["miss", "hit"]
        assert first.parse().to_dict() == again.parse().to_dict()
        stream = client.chat.completions.create(model="fake-model", messages=SAYS, stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "Hello from the fake."
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(model="nobody", messages=SAYS)
    assert upstream.chat_calls == 1


async def test_an_asynchronous_client_on_the_same_loop(fake: FakeUpstream) -> None:
    async with Stratacache(**options(fake)) as cache:
        http = openai.DefaultAsyncHttpxClient(transport=StratacacheTransport(cache))
        async with openai.AsyncOpenAI(base_url=HERE, api_key="x", http_client=http) as client:
            for _ in range(2):
                stream = await client.chat.completions.create(model="fake-model", messages=SAYS, stream=True)
                pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
                assert "".join(pieces) == "Hello from the fake."
                assert await cache.settled()
        with pytest.raises(TypeError, match="SyncStratacache"):
            client_of(openai, cache).models.list()
    assert fake.chat_calls == 1


def test_anthropics_sdk_too(upstream: FakeUpstream, kept: SyncStratacache) -> None:
    http = anthropic.DefaultHttpxClient(transport=StratacacheTransport(kept))
    with anthropic.Anthropic(base_url="http://stratacache", api_key="x", http_client=http) as client:
        for _ in range(2):
            said = client.messages.create(model="fake-model", max_tokens=50, messages=SAYS)
            assert said.content[0].text == "Hello from the fake."  # type: ignore[union-attr]
            kept.settled()
    assert upstream.chat_calls == 1


def test_requests_to_other_hosts_go_there(upstream: FakeUpstream, kept: SyncStratacache) -> None:
    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"elsewhere")

        def log_message(self, *of: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with openai.DefaultHttpxClient(transport=StratacacheTransport(kept)) as http:
            assert http.get(f"http://127.0.0.1:{server.server_port}/").text == "elsewhere"
        server.shutdown()
    assert not upstream.calls


def generation(text: str, **info: Any) -> list[Generation]:
    return [ChatGeneration(message=AIMessage(content=text, response_metadata=info))]


def test_langchain_gets_back_what_it_kept_and_only_for_an_equal_call(kept: SyncStratacache) -> None:
    cache = StratacacheCache(kept, namespace="app")
    said = generation("Paris.", finish_reason="stop")
    assert cache.lookup("Capital?", "model-a") is None
    cache.update("Capital?", "model-a", said)
    kept.settled()
    assert cache.lookup("Capital?", "model-a") == said
    for prompt, llm in (("Capital? ", "model-a"), ("capital?", "model-a"), ("Capital?", "model-b")):
        assert cache.lookup(prompt, llm) is None
    assert StratacacheCache(kept, namespace="other").lookup("Capital?", "model-a") is None
    cache.clear()
    assert cache.lookup("Capital?", "model-a") is None


@pytest.mark.parametrize("reason", ["length", "max_tokens", "content_filter"])
def test_langchain_keeps_nothing_that_was_cut_short(kept: SyncStratacache, reason: str) -> None:
    cache = StratacacheCache(kept, namespace="")
    cache.update("Capital?", "model-a", generation("Par", finish_reason=reason))
    kept.settled()
    assert cache.lookup("Capital?", "model-a") is None


async def test_langchains_own_model_asks_it(kept: SyncStratacache) -> None:
    set_llm_cache(StratacacheCache(kept, namespace="app"))
    try:
        model = FakeListChatModel(responses=["one", "two"])
        assert (await model.ainvoke("Hello")).content == "one"
        kept.settled()
        assert (await model.ainvoke("Hello")).content == "one"
        assert (await model.ainvoke("Hello!")).content == "two"
    finally:
        set_llm_cache(None)


def test_a_llamaindex_model_is_answered_by_the_tiers(upstream: FakeUpstream, kept: SyncStratacache) -> None:
    upstream.default = Reply(text="Knead, wait, bake.")
    llm = StratacacheLLM(kept, "fake-model", request={"temperature": 0})
    asked = [ChatMessage(role=MessageRole.USER, content="How is bread baked?")]
    first = llm.chat(asked)
    kept.settled()
    again = llm.chat(asked)
    assert first.message.content == again.message.content == "Knead, wait, bake."
    assert again.additional_kwargs["headers"]["x-strata-cache"] == "hit"
    assert llm.complete("How is bread baked?").text == "Knead, wait, bake."
    assert [one.message.content for one in llm.stream_chat(asked)][-1] == "Knead, wait, bake."
    assert upstream.chat_calls == 1
    assert upstream.calls[0].json["temperature"] == 0


def test_a_llamaindex_message_that_would_be_lost_is_refused(kept: SyncStratacache) -> None:
    llm = StratacacheLLM(kept, "fake-model")
    picture = ChatMessage(
        role=MessageRole.USER, blocks=[TextBlock(text="See"), ImageBlock(url="https://x.test/a.png")]
    )
    for message in (picture, ChatMessage(role=MessageRole.TOOL, content="42")):
        with pytest.raises(ValueError, match="passed on"):
            llm.chat([message])
