"""A model or index that the tier asks: when slowness is a failure, and when it is only that much is asked of it."""

from __future__ import annotations

import asyncio

import pytest
from tests.clock import FakeClock

from stratacache.policy.breaker import FAILURES
from stratacache.tiers.semantic_parts import Dependency, Passed


async def _never() -> None:
    await asyncio.Event().wait()


async def _answer() -> str:
    return "answer"


async def _too_late(dependency: Dependency) -> None:
    with pytest.raises(Passed, match="verifier_slow"):
        await dependency.ask(_never, asyncio.get_running_loop().time())


async def test_what_answers_nobody_is_left_alone() -> None:
    dependency = Dependency("verifier", FakeClock())
    for _ in range(FAILURES):
        await _too_late(dependency)
    assert dependency.current() == "open"
    with pytest.raises(Passed, match="verifier_down"):
        await dependency.ask(_answer, asyncio.get_running_loop().time() + 60)


async def test_what_answers_others_is_busy_and_is_asked_again() -> None:
    dependency = Dependency("verifier", FakeClock())
    loop = asyncio.get_running_loop()
    for _ in range(2 * FAILURES):
        begun = asyncio.Event()
        given_up = asyncio.Event()

        async def outlasts(begun: asyncio.Event = begun, given_up: asyncio.Event = given_up) -> None:
            begun.set()
            await given_up.wait()
            raise TimeoutError

        waiting = asyncio.create_task(dependency.ask(outlasts, loop.time() + 60))
        await begun.wait()
        assert await dependency.ask(_answer, loop.time() + 60) == "answer"
        given_up.set()
        with pytest.raises(Passed, match="verifier_slow"):
            await waiting
    assert dependency.current() == "closed"


async def test_an_answer_long_ago_is_no_excuse() -> None:
    dependency = Dependency("verifier", FakeClock())
    await dependency.ask(_answer, asyncio.get_running_loop().time() + 60)
    for _ in range(FAILURES):
        await _too_late(dependency)
    assert dependency.current() == "open"
