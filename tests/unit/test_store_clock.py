"""The two clocks keep the port's promises."""

from __future__ import annotations

import pytest
from tests.clock import FakeClock

from stratacache.clock import SystemClock
from stratacache.ports import Clock


def test_fake_clock_moves_only_when_told() -> None:
    clock = FakeClock(now=100.0)
    clock.advance(2.5)
    assert (clock.now(), clock.monotonic()) == (102.5, 2.5)


def test_a_set_wall_clock_leaves_monotonic_time_alone() -> None:
    clock = FakeClock(now=100.0)
    clock.jump(-50)
    assert (clock.now(), clock.monotonic()) == (50.0, 0.0)


def test_fake_clock_refuses_to_advance_backwards() -> None:
    with pytest.raises(ValueError, match="jump"):
        FakeClock().advance(-1)


def test_system_clock_satisfies_the_port() -> None:
    clock: Clock = SystemClock()
    first = clock.monotonic()
    assert clock.now() > 1_700_000_000
    assert clock.monotonic() >= first
