"""Thousands of random requests with aborts, preemptions and resets: zero leaked blocks, no wrong answer."""

from __future__ import annotations

import pytest
from tests.engine.engine_soak import Soak


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_long_soak(seed: int) -> None:
    Soak(total=2000, seed=seed).run()
