"""Some hundred random requests over a pool that is too small: no leak, no wrong answer. More in tests/stress."""

from __future__ import annotations

import pytest
from tests.engine.engine_soak import Soak


@pytest.mark.parametrize("seed", [1, 2])
def test_soak(seed: int) -> None:
    Soak(total=250, seed=seed).run()
