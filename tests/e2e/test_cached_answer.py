"""``@cached_answer``: results kept, made once at one time, parted by all arguments; no exception is kept."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.upstream import FakeUpstream, in_thread
from tests.library_kit import options
from tests.semantic_kit import Embedder, Verifier, models

from stratacache import Stratacache, SyncStratacache, cached_answer
from stratacache.integrations.functions import FunctionCall, is_json

STORED, ASKED = "What is the way to bake bread?", "how do you bake bread at home"


@pytest.fixture
async def cache(fake: FakeUpstream) -> AsyncIterator[Stratacache]:
    async with Stratacache(**options(fake)) as running:
        yield running


async def settled(cache: Stratacache) -> None:
    assert await cache.settled()


async def test_a_result_is_kept_for_equal_arguments_only(cache: Stratacache) -> None:
    made: list[Any] = []

    @cached_answer(cache, namespace="docs")
    async def tell(topic: str, *more: str, length: int = 1, **rest: Any) -> dict[str, Any]:
        made.append((topic, more, length, rest))
        return {"topic": topic, "length": length}

    assert await tell("bread") == {"topic": "bread", "length": 1}
    await settled(cache)
    assert await tell(topic="bread", length=1) == {"topic": "bread", "length": 1}
    assert len(made) == 1
    others = [(("Bread",), {}), (("bread",), {"length": 2}), (("bread", "a"), {}), (("bread",), {"length": True}),
              (("bread",), {"more": ["a"]}), (("bread",), {"length": 1.0})]  # fmt: skip
    for number, (args, kwargs) in enumerate(others, 2):
        await tell(*args, **kwargs)
        assert len(made) == number, (args, kwargs)


async def test_names_namespaces_and_versions_part_results(cache: Stratacache) -> None:
    async def one() -> str:
        return "one"

    async def two() -> str:
        return "two"

    for number, how in enumerate(
        [{"namespace": "a"}, {"namespace": "b"}, {"namespace": "a", "version": "2"}]
    ):
        # The same name on purpose, as in another process of the same store.
        cache._names.clear()
        decorated = cached_answer(cache, name="f", **how)(one if number % 2 else two)
        assert await decorated() == ("one" if number % 2 else "two")
        await settled(cache)
    with pytest.raises(ValueError, match="another function is called f"):
        cached_answer(cache, namespace="", name="f")(one)


async def test_calls_alike_at_one_time_are_one(cache: Stratacache) -> None:
    begun, go = asyncio.Event(), asyncio.Event()
    calls = 0

    @cached_answer(cache, namespace="")
    async def slow(word: str) -> str:
        nonlocal calls
        calls += 1
        begun.set()
        await go.wait()
        return word.upper()

    waiting = [asyncio.ensure_future(slow("a")) for _ in range(8)]
    await begun.wait()
    while cache.system.flights.listeners < 8:  # noqa: ASYNC110 - production has no use for an event
        await asyncio.sleep(0)
    go.set()
    assert await asyncio.gather(*waiting) == ["A"] * 8
    assert calls == 1


async def test_an_exception_reaches_all_who_wait_and_is_not_kept(cache: Stratacache) -> None:
    begun, go = asyncio.Event(), asyncio.Event()
    calls = 0

    @cached_answer(cache, namespace="")
    async def broken() -> str:
        nonlocal calls
        calls += 1
        if calls > 1:
            return "well"
        begun.set()
        await go.wait()
        raise KeyError("mine")

    waiting = [asyncio.ensure_future(broken()) for _ in range(3)]
    await begun.wait()
    while cache.system.flights.listeners < 3:  # noqa: ASYNC110 - production has no use for an event
        await asyncio.sleep(0)
    go.set()
    errors = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(error) for error in errors] == [KeyError] * 3
    assert await broken() == "well"
    assert calls == 2


async def test_what_is_no_json_is_returned_and_not_kept(cache: Stratacache) -> None:
    results: list[Any] = [(1, 2), {1: "one"}, math.inf, object(), "\ud800", b"bytes"]

    @cached_answer(cache, namespace="")
    async def give(number: int) -> Any:
        return results[number]

    for number, result in enumerate(results):
        assert await give(number) is result
        await settled(cache)
        assert await give(number) is result
    with pytest.raises(TypeError, match=r"the argument 'number' of .* is no JSON value \(object\)"):
        await give(object())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cannot be written as JSON"):
        await give("\ud800")  # type: ignore[arg-type]


async def test_other_words_only_where_the_question_is_named(fake: FakeUpstream) -> None:
    embedder, verifier = Embedder(), Verifier()
    embedder.angles[ASKED], verifier.table[ASKED, STORED] = 0.5, 0.97
    calls: list[str] = []
    async with Stratacache(**options(fake, models=models(embedder, verifier))) as cache:

        @cached_answer(cache, namespace="", question="question", ignore=["client"])
        async def ask(client: object, question: str, style: str = "short") -> str:
            calls.append(question)
            return f"{style}: {question}"

        @cached_answer(cache, namespace="")
        async def plain(question: str) -> str:
            calls.append(question)
            return question

        stored = await ask(object(), STORED)
        await plain(STORED)
        await settled(cache)
        semantic = cache.system.semantic
        assert semantic is not None
        await semantic.kindred.learner.settled()
        while not semantic.follower.stats().added:  # noqa: ASYNC110 - the index follows in its own time
            await asyncio.sleep(0)
        assert await ask(object(), ASKED) == stored
        assert await ask(object(), ASKED, style="long") == f"long: {ASKED}"
        assert await plain(ASKED) == ASKED
        with pytest.raises(TypeError, match="must be a str"):
            await ask(object(), 3)  # type: ignore[arg-type]
    assert calls == [STORED, STORED, ASKED, ASKED]


async def test_what_cannot_be_decorated_is_refused_at_once(cache: Stratacache) -> None:
    async def pieces() -> AsyncIterator[str]:
        yield "a"

    async def whole(a: str) -> str:
        return a

    def plain() -> str:
        return ""

    with pytest.raises(TypeError, match="pieces are not kept"):
        cached_answer(cache, namespace="")(pieces)
    with pytest.raises(TypeError, match="takes a SyncStratacache"):
        cached_answer(cache, namespace="")(plain)
    with pytest.raises(TypeError, match="no parameter 'b'"):
        cached_answer(cache, namespace="", question="b")(whole)


def test_plain_functions() -> None:
    with in_thread() as fake, SyncStratacache(**options(fake)) as cache:
        calls = []

        @cached_answer(cache, namespace="", ttl=60)
        def tell(word: str) -> list[str]:
            calls.append(word)
            if word == "bad":
                raise ValueError(word)
            return [word]

        assert tell("a") == ["a"]
        assert cache.settled()
        assert tell("a") == ["a"]
        for _ in range(2):
            with pytest.raises(ValueError, match="bad"):
                tell("bad")
        assert calls == ["a", "bad", "bad"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@given(JSON, JSON)
def test_unequal_arguments_never_make_one_body(one: Any, other: Any) -> None:
    assert is_json(one)
    bodies = {FunctionCall("f", {"a": value}).body() for value in (one, other)}
    assert (len(bodies) == 1) == (repr(one) == repr(other))
