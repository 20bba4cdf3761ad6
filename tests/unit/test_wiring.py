"""Wiring: settings reach the parts that they are for, and a stop lets finished answers reach the store."""

from __future__ import annotations

import pytest
from tests.clock import FakeClock
from tests.harness import ENVIRON, settings_from

from stratacache.types import Entry
from stratacache.upstream.embedded import engine_command
from stratacache.wiring import System

EMBEDDED = {"name": "local", "kind": "embedded", "models": ["smollm2-135m"]}


@pytest.mark.parametrize("enabled", [True, False])
async def test_the_kv_tier_can_be_switched_off(enabled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def spy(settings: object, *, prefix_cache: bool) -> list[str]:
        asked.append(prefix_cache)
        return engine_command(settings, prefix_cache=prefix_cache)  # type: ignore[arg-type]

    monkeypatch.setattr("stratacache.upstream.embedded.engine_command", spy)
    config = {"store": "memory://", "upstreams": [EMBEDDED], "tiers": {"kv": {"enabled": enabled}}}
    system = System(settings_from(config), ENVIRON, FakeClock())
    assert list(system.engines) == ["local"]
    await system.stop()
    assert asked == [enabled]


async def test_a_stop_lets_finished_answers_reach_the_store(tmp_path: object) -> None:
    config = {"store": f"sqlite:///{tmp_path}/cache.db", "upstreams": [EMBEDDED]}
    clock = FakeClock()
    system = System(settings_from(config), ENVIRON, clock)
    system.writeback.start()
    now = clock.now()
    for number in range(50):
        entry = Entry(form=b"form", body=b"body", created_at=now, expires_at=now + 60)
        system.writeback.submit(b"%032d" % number, entry, lambda: None)
    await system.stop()
    again = System(settings_from(config), ENVIRON, clock)
    assert (await again.store.stats()).entries == 50
    await again.stop()
