"""A configuration for the cache in-process, in front of a fake model server."""

from __future__ import annotations

from typing import Any

from stratacache.wiring import SemanticModels
from tests.fakes.upstream import FakeUpstream
from tests.harness import ENVIRON


def options(fake: FakeUpstream, *, models: SemanticModels | None = None, **config: Any) -> dict[str, Any]:
    """Arguments of ``Stratacache``: memory only, one upstream, and the semantic tier only with ``models``."""
    upstream = {
        "name": "fake", "kind": "openai", "base_url": fake.base_url, "api_key_env": "FAKE_KEY",
        "models": ["fake-model"], "retries": 0,
    }  # fmt: skip
    made = {
        "store": "memory://",
        "audit": {"path": None},
        "upstreams": [upstream],
        "tiers": {"semantic": {"enabled": models is not None}},
        **config,
    }
    return {"config": made, "environ": ENVIRON, "models": models}
