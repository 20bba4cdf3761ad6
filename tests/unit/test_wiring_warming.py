"""Readiness waits for the models while it makes sense."""

from __future__ import annotations

import asyncio

from tests.clock import FakeClock

from stratacache.errors import ModelError
from stratacache.wiring.warming import Warming


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_until_it_is_loaded_it_is_worth_waiting() -> None:
    loaded = asyncio.Event()

    async def ready() -> None:
        await loaded.wait()

    warming = Warming(ready, FakeClock())
    assert not warming.pending  # nothing has begun
    warming.start()
    await turn()
    assert (warming.state, warming.pending) == ("loading", True)
    loaded.set()
    await turn()
    assert (warming.state, warming.pending) == ("ready", False)
    await warming.close()


async def test_what_cannot_be_loaded_or_takes_too_long_is_not_waited_for() -> None:
    async def broken() -> None:
        raise ModelError("no weights", code="verifier_missing")

    async def slow() -> None:
        await asyncio.Event().wait()

    clock = FakeClock()
    failed, late = Warming(broken, clock), Warming(slow, clock, limit=60.0)
    for one in (failed, late):
        one.start()
    await turn()
    assert (failed.state, failed.pending, late.pending) == ("failed", False, True)
    clock.advance(59)
    assert late.pending
    clock.advance(2)
    assert (late.state, late.pending) == ("loading", False)
    for one in (failed, late):
        await one.close()
        await one.close()
