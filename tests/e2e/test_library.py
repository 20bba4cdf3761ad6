"""The cache in-process: the same tiers and answers as behind the gateway, asynchronous and not."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.upstream import FakeUpstream, Gate, Reply, in_thread
from tests.harness import question
from tests.library_kit import options
from tests.semantic_kit import Embedder, Verifier, models

import stratacache
from stratacache import AnswerError, SettingsError, Stratacache, SyncStratacache
from stratacache.library import generate, sync

STORED, ASKED = "What is the way to bake bread?", "how do you bake bread at home"


def test_public_names() -> None:
    assert set(stratacache.__all__) == {
        "AnswerError", "Reply", "RequestError", "SettingsError", "StrataError", "Stratacache", "StratacacheTransport",
        "SyncStratacache", "__version__", "cached_answer",
    }  # fmt: skip
    for name in stratacache.__all__:
        assert getattr(stratacache, name)
    assert set(stratacache.__all__) <= set(dir(stratacache))
    with pytest.raises(AttributeError, match="no attribute 'Cache'"):
        _ = stratacache.Cache  # type: ignore[attr-defined]


def test_the_package_alone_loads_no_model_runtime() -> None:
    code = "import sys, stratacache; print(sorted({'onnxruntime', 'numpy', 'aiohttp'} & set(sys.modules)))"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout == "[]\n"


def test_the_sync_cache_is_what_the_generator_writes(tmp_path: Path) -> None:
    here = Path(sync.__file__)
    made = tmp_path / "sync.py"
    made.write_text(generate.source(here.with_name("cache.py").read_text(encoding="utf-8")), encoding="utf-8")
    settings = Path(__file__).parents[2] / "pyproject.toml"
    ruff = [sys.executable, "-m", "ruff"]
    for step in (["format"], ["check", "--fix", "--exit-zero"], ["format"]):
        subprocess.run([*ruff, *step, "-q", "--config", settings, made], check=True)
    assert made.read_text(encoding="utf-8") == here.read_text(encoding="utf-8")


async def test_a_repeat_is_answered_without_the_model(fake: FakeUpstream) -> None:
    async with Stratacache(**options(fake)) as cache:
        first = await cache.answer(question("What is a cache?"))
        assert await cache.settled()
        again = await cache.answer(question("what is  a cache？"))
        assert (first.cache, first.text) == ("miss", "Hello from the fake.")
        assert (again.cache, again.tier, again.reason, again.text) == ("hit", "exact", "exact", first.text)
        assert again.entry == first.entry
        assert again.body["usage"] == first.body["usage"]
    assert fake.chat_calls == 1


async def test_other_words_are_answered_by_the_semantic_tier(fake: FakeUpstream) -> None:
    embedder, verifier = Embedder(), Verifier()
    embedder.angles[ASKED], verifier.table[ASKED, STORED] = 0.5, 0.97
    async with Stratacache(**options(fake, models=models(embedder, verifier))) as cache:
        await cache.answer(question(STORED))
        assert await cache.settled()
        semantic = cache.system.semantic
        assert semantic is not None
        await semantic.kindred.learner.settled()
        while not semantic.follower.stats().added:  # noqa: ASYNC110 - the index follows the store in its own time
            await asyncio.sleep(0)
        assert (await cache.answer(question(ASKED))).tier == "semantic"
        assert "tiers" in await cache.explain(question(ASKED))
    assert fake.chat_calls == 1


async def test_a_stream_comes_from_the_entry_and_an_anthropic_client_gets_it_too(fake: FakeUpstream) -> None:
    async with Stratacache(**options(fake)) as cache:
        live = [c async for c in cache.stream({**question(), "stream_options": {"include_usage": True}})]
        assert await cache.settled()
        replayed = [chunk async for chunk in cache.stream(question())]
        assert (
            "".join(c["choices"][0]["delta"].get("content") or "" for c in replayed) == "Hello from the fake."
        )
        assert live[-1]["usage"]["prompt_tokens"] == 12
        message = await cache.answer(
            {"model": "fake-model", "max_tokens": 99, "messages": [{"role": "user", "content": "Hi there"}]},
            endpoint="messages",
        )
        assert (message.body["type"], message.text) == ("message", "Hello from the fake.")
    assert fake.chat_calls == 2


async def test_a_stream_that_is_left_ends_its_call(fake: FakeUpstream) -> None:
    gate = Gate()
    fake.default = Reply(text="one two three", gates={2: gate})
    async with Stratacache(**options(fake)) as cache:
        events = cache.stream(question())
        await anext(events)
        await events.aclose()
        await fake.aborts(1)
        cache.system.flights.check()


async def test_alike_at_one_time_is_one_call(fake: FakeUpstream) -> None:
    async with Stratacache(**options(fake)) as cache:
        replies = await asyncio.gather(*(cache.answer(question()) for _ in range(8)))
    assert {reply.text for reply in replies} == {"Hello from the fake."}
    assert fake.chat_calls == 1


async def test_errors_say_what_is_wrong(fake: FakeUpstream) -> None:
    async with Stratacache(**options(fake)) as cache:
        with pytest.raises(AnswerError, match="no upstream serves the model 'nobody'") as unknown:
            await cache.answer({**question(), "model": "nobody"})
        assert (unknown.value.status, unknown.value.code) == (404, "model_not_found")
        fake.default = Reply(status=401, text="wrong key")
        with pytest.raises(AnswerError, match="wrong key") as refused:
            await cache.answer(question())
        assert refused.value.status == 401
        with pytest.raises(AnswerError, match="wrong key"):
            _ = [chunk async for chunk in cache.stream(question())]
        with pytest.raises(AnswerError, match="no cached answer") as absent:
            await cache.answer(question(), headers={"Cache-Control": "only-if-cached"})
        assert absent.value.headers["x-strata-reason"] == "not_cached"
        with pytest.raises(ValueError, match="use stream"):
            await cache.answer({**question(), "stream": True})
    with pytest.raises(RuntimeError, match="not running"):
        await cache.answer(question())
    with pytest.raises(SettingsError, match="did you mean"):
        Stratacache({"tiers": {"exactt": {}}})


async def test_invalidation_feedback_and_counts(fake: FakeUpstream) -> None:
    async with Stratacache(**options(fake)) as cache:
        first = await cache.answer(question(), headers={"x-strata-tags": "prices"})
        assert await cache.settled()
        assert (await cache.invalidate(tags=["prices"], dry_run=True))["affected"] == 1
        await cache.invalidate(tags=["prices"])
        assert (await cache.answer(question(), headers={"x-strata-tags": "prices"})).cache == "miss"
        assert await cache.settled()
        assert first.entry is not None
        await cache.feedback(first.entry, "wrong")
        assert (await cache.answer(question(), headers={"x-strata-tags": "prices"})).cache == "miss"
        assert (await cache.stats())["requests"]


async def test_configured_keys_part_tenants(fake: FakeUpstream) -> None:
    import hashlib

    def key(text: str, tenant: str) -> dict[str, Any]:
        digest = hashlib.sha256(text.encode()).hexdigest()
        return {"key_hash": f"sha256:{digest}", "tenant": tenant, "rights": ["chat"]}

    auth = {"keys": [key("one", "acme"), key("two", "globex")]}
    async with Stratacache(**options(fake, auth=auth), api_key="one") as cache:
        await cache.answer(question())
        assert await cache.settled()
        assert (await cache.answer(question())).cache == "hit"
        assert (await cache.answer(question(), headers={"authorization": "Bearer two"})).cache == "miss"
        with pytest.raises(AnswerError, match="not known") as refused:
            await cache.answer(question(), headers={"authorization": "Bearer three"})
        assert refused.value.status == 401
        with pytest.raises(AnswerError, match="right 'admin'"):
            await cache.stats()


def test_the_sync_cache_does_the_same() -> None:
    with in_thread() as fake, SyncStratacache(**options(fake)) as cache:
        assert cache.answer(question()).cache == "miss"
        assert cache.settled()
        assert cache.answer(question()).cache == "hit"
        chunks = list(cache.stream(question()))
        assert (
            "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks) == "Hello from the fake."
        )
        left = cache.stream(question("another"))
        next(left)
        left.close()
        assert cache.stats()["requests"]
        with pytest.raises(AnswerError, match="no upstream"):
            cache.answer({**question(), "model": "nobody"})
    with pytest.raises(RuntimeError, match="not running"):
        cache.answer(question())
    assert not cache.asynchronous._system
