"""Some hundred random requests over a pool that is too small: no leak, no wrong answer. More in tests/stress."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.engine.engine_soak import Soak


@pytest.mark.parametrize("seed", [1, 2])
def test_soak(seed: int, tmp_path: Path) -> None:
    seen = Soak(300, seed, tmp_path).run()
    for event in ("client gone", "too late", "stopped", "turns", "JSON", "forks", "preemptions", "resets"):
        assert seen[event] > 0, event
