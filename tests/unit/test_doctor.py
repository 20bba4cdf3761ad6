"""The checks of ``stratacache doctor`` as functions of the evidence; that the faults are seen is tested end to end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from stratacache.lab.doctor import CHECKS, diagnose
from stratacache.lab.doctor_evidence import Evidence, RedisFacts, Row
from stratacache.observe.machine import usable_cores
from stratacache.observe.metrics import Metrics
from stratacache.settings import Settings

STATS: Mapping[str, Any] = {
    **Metrics().summary(),
    "levels": {},
    "store": {"entries": 0, "bytes": 0},
    "index": {"vectors": 0},
    "engines": {},
    "upstreams_ready": {"local": True},
}
LIVE = {"cores": 8.0, "embedder": {"configured": "use/1", "serving": "use/1"}}
WELL = RedisFacts("127.0.0.1:6379", 0.0002, 0.0, 1 << 20, 64 << 20, "allkeys-lfu", 0, 0)
ERROR = "stratacache_semantic_observed_error"


def evidence(stats: Mapping[str, Any] | None = None, **changed: Any) -> Evidence:
    whole = {
        "settings": Settings().masked(),
        "stats": {**STATS, **(stats or {})},
        "live": LIVE,
        "offsets": {"http://127.0.0.1:8900": 0.01},
        "redis": [WELL],
        "leftovers": [],
        "hosts": ["127.0.0.1"],
    }
    return Evidence(**{**whole, **changed})


def found(given: Evidence) -> list[str]:
    return [row.check for row in diagnose(given) if row.state == "found"]


def settings(**changed: Any) -> dict[str, Any]:
    return {**Settings().masked(), **changed}


def levels(**named: Mapping[str, float]) -> dict[str, Any]:
    return {"levels": named}


def test_where_all_is_well_nothing_is_found_and_all_is_seen_but_what_is_not_there() -> None:
    rows = diagnose(evidence())
    assert [row.check for row in rows if row.state == "unknown"] == ["block leak"]
    assert not found(evidence())


def test_nothing_is_said_of_what_was_not_seen() -> None:
    rows = diagnose(Evidence(settings=Settings().masked()))
    assert {row.check for row in rows if row.state == "ok"} == {"lives in lockstep", "access"}
    assert all(row.state != "found" for row in rows)


def mean(seconds: float) -> dict[str, float]:
    return {"count": 20, "mean": seconds}


def observed(scene: str) -> dict[str, Any]:
    """An error of 3 % in ``scene``, from 2 % to 5 %."""
    return levels(**{ERROR: {scene: 0.03}, f"{ERROR}_low": {scene: 0.02}, f"{ERROR}_high": {scene: 0.05}})


CASES: list[tuple[str, Evidence]] = [
    ("upstream", evidence({"upstreams_ready": {"local": False}})),
    ("upstream", evidence(levels(stratacache_replica_up={"pool/0": 0.0}))),
    ("dependency", evidence(levels(stratacache_breaker_state={"store": 2.0}))),
    ("write-back", evidence({"writeback": {"stored": 98, "failed": 2}})),
    ("embedder changed", evidence(live={**LIVE, "embedder": {"configured": "b", "serving": "a"}})),
    ("embedder changed", evidence(levels(stratacache_reindex_state={"failed": 1.0}))),
    ("index and store", evidence(levels(stratacache_index_lag_seconds={"": 31.0}))),
    ("index and store", evidence({"index": {"vectors": 100}})),
    ("redis slow", evidence(redis=[WELL, msgspec.structs.replace(WELL, ping=0.006)])),
    ("redis memory", evidence(redis=[msgspec.structs.replace(WELL, evicted=1)])),
    ("redis memory", evidence(redis=[msgspec.structs.replace(WELL, used=62 << 20)])),
    ("redis memory", evidence(redis=[msgspec.structs.replace(WELL, refused=1)])),
    ("store unreachable", evidence(redis=None, unreachable="connection refused")),
    ("damaged files", evidence(leftovers=["cache.db.corrupt-20260101T000000Z"])),
    ("clocks", evidence(offsets={"a": 0.6, "b": -0.6})),
    ("clocks", evidence(redis=[msgspec.structs.replace(WELL, offset=5.0)])),
    ("threshold drift", evidence(levels(stratacache_semantic_alarm={"default": 1.0}))),
    ("threshold drift", evidence(observed("default"))),
    (
        "block leak",
        evidence({"engines": {"local": {"blocks": {"total": 10, "free": 5, "cached": 3, "active": 1}}}}),
    ),
    (
        "max_tokens",
        evidence({"upstream_calls": {"local": 20}, "completion_limits": {"allowed": 201, "used": 100}}),
    ),
    ("cpu", evidence(live={**LIVE, "cores": 3.9})),
    (
        "bottleneck",
        evidence({"stages": {"upstream": mean(0.1), "exact": mean(0.04), "embed": mean(0.011)}}),
    ),
    ("cold cache", evidence({"requests": 100, "outcomes": {"hit": 9, "miss": 91}, "reasons": {"not_found": 91}})),
    ("access", evidence(hosts=["10.0.0.5"])),
]  # fmt: skip


@pytest.mark.parametrize(("check", "given"), CASES, ids=[f"{name}-{n}" for n, (name, _) in enumerate(CASES)])
def test_each_fault_is_found_and_nothing_else(check: str, given: Evidence) -> None:
    assert found(given) == [check]
    row = diagnose(given)[0]
    assert all((row.symptom, row.evidence, row.cause, row.fix))


def test_every_check_has_a_case() -> None:
    tested = {name for name, _ in CASES} | {"lives in lockstep"}
    assert tested == {check.name for check in CHECKS}


def test_scenes_without_jitter_and_entries_that_end_together() -> None:
    scenes = Settings().masked()["scenes"]
    steady = {**scenes, "general": {**scenes["general"], "jitter": 0.0}}
    assert found(evidence(settings=settings(scenes=steady))) == ["lives in lockstep"]
    together = [(0.0, 3600.0 + n) for n in range(60)]
    spread = [(0.0, 3000.0 + 20 * n) for n in range(60)]
    assert found(evidence(expiries=together)) == ["lives in lockstep"]
    assert not found(evidence(expiries=spread))
    # Many short lives beside long ones are no wave: each is measured by its own.
    short = [(10.0 * n, 10.0 * n + 100 + n % 30) for n in range(100)]
    assert not found(evidence(expiries=[*spread, *short]))


def test_a_scene_is_held_to_its_own_bound() -> None:
    scenes = Settings().masked()["scenes"]
    lax = {**scenes, "small_talk": {**scenes["small_talk"], "max_error": 0.1}}
    drifted = observed("small_talk")
    assert found(evidence(drifted)) == ["threshold drift"]
    assert not found(evidence(drifted, settings=settings(scenes=lax)))


def test_what_shares_its_server_is_not_compared_with_the_index() -> None:
    shared = settings(store="redis://127.0.0.1:6379")
    assert not found(evidence({"index": {"vectors": 100}}, settings=shared))


def test_the_reasons_of_a_cold_cache_are_told() -> None:
    counts = {"requests": 100, "outcomes": {"miss": 100}, "reasons": {"not_found": 60, "no_store": 40}}
    row: Row = diagnose(evidence({**counts, "withheld": {"truncated": 50}}))[0]
    assert "not_found 60, truncated 50, no_store 40" in row.evidence


def test_a_container_has_the_cores_of_its_quota(tmp_path: Any) -> None:
    quota = tmp_path / "cpu.max"
    assert usable_cores(quota) >= 1
    quota.write_text("50000 100000\n")
    assert usable_cores(quota) == 0.5
    quota.write_text("max 100000\n")
    assert usable_cores(quota) >= 1
