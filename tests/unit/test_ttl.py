"""Times to live: callers shorten, jitter spreads, an entry never outlives its bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratacache.policy.ttl import effective_ttl, jittered_ttl


def test_the_requirement_in_numbers() -> None:
    assert jittered_ttl(1800, 1 / 6, 0.0) == pytest.approx(25 * 60)
    assert jittered_ttl(1800, 1 / 6, 0.5) == 1800
    assert jittered_ttl(1800, 1 / 6, 1.0) == pytest.approx(35 * 60)


@given(
    ttl=st.floats(0.001, 1e9),
    jitter=st.floats(0, 1, exclude_max=True),
    u=st.floats(0, 1, exclude_max=True),
)
def test_jitter_stays_in_its_band_and_above_zero(ttl: float, jitter: float, u: float) -> None:
    got = jittered_ttl(ttl, jitter, u)
    assert got > 0
    assert ttl * (1 - jitter) * (1 - 1e-9) <= got <= ttl * (1 + jitter) * (1 + 1e-9)


@given(scene=st.floats(0, 1e9), asked=st.none() | st.floats(0, 1e12))
def test_a_caller_never_lengthens(scene: float, asked: float | None) -> None:
    got = effective_ttl(scene, asked)
    assert got <= scene
    assert got == (scene if asked is None else min(scene, asked))
