"""SIGHUP: what can change live does at once, the rest is refused by name, and the old configuration stays."""

from __future__ import annotations

import hashlib
import json
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.fakes.upstream import FakeUpstream, in_thread
from tests.gateway_process import Serving, serving, upstream_of
from tests.harness import question, settings_from

from stratacache.wiring.reload import changes


@pytest.fixture
def fake() -> Iterator[FakeUpstream]:
    with in_thread() as server:
        yield server


def hashed(key: str) -> str:
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


def config(fake: FakeUpstream, **more: Any) -> dict[str, Any]:
    keys = [{"key_hash": hashed("boss"), "rights": ["chat", "admin"]}]
    return {"upstreams": [upstream_of(fake)], "store": "memory://", "auth": {"keys": keys}, **more}


def write(folder: Path, value: dict[str, Any] | str) -> None:
    tiers = {"semantic": {"enabled": False}}
    whole = value if isinstance(value, str) else json.dumps({"server": {"port": 0}, "tiers": tiers, **value})
    (folder / "gateway.yaml").write_text(whole)


def hang_up(gateway: Serving, word: str) -> str:
    """SIGHUP, and what is said of it."""
    before = len(gateway.errors())
    gateway.process.send_signal(signal.SIGHUP)
    end = time.monotonic() + 20
    while word not in gateway.errors()[before:]:
        assert time.monotonic() < end, gateway.errors()
        time.sleep(0.02)
    return gateway.errors()[before:]


def status(gateway: Serving, key: str, model: str = "fake-model", **headers: str) -> tuple[int, str]:
    """The status and what the cache did."""
    request = urllib.request.Request(
        f"{gateway.url}/chat/completions",
        msgspec.json.encode(question(model=model)),
        {"content-type": "application/json", "authorization": f"Bearer {key}", **headers},
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.headers["x-strata-cache"]
    except urllib.error.HTTPError as error:
        return error.code, ""


def test_keys_aliases_and_scenes_change_while_it_serves(fake: FakeUpstream, tmp_path: Path) -> None:
    with serving(tmp_path, config(fake)) as gateway:
        assert status(gateway, "boss") == (200, "miss")
        assert status(gateway, "guest")[0] == 401
        assert status(gateway, "boss", "quick")[0] == 404
        keys = [{"key_hash": hashed("guest"), "rights": ["chat", "admin"]}]
        scenes = {"default": {"ttl": "5m", "exact": False}}
        write(tmp_path, config(fake, auth={"keys": keys}, aliases={"quick": "fake-model"}, scenes=scenes))
        said = hang_up(gateway, "taken over")
        assert "scenes" in said
        assert "aliases" in said
        assert "auth.keys" in said
        assert status(gateway, "boss")[0] == 401  # though this very request was answered before
        assert status(gateway, "guest", "quick") == (200, "bypass")
        assert gateway.terminate() == 0


def test_what_cannot_change_is_named_and_nothing_changes(fake: FakeUpstream, tmp_path: Path) -> None:
    with serving(tmp_path, config(fake)) as gateway:
        write(tmp_path, config(fake, store=f"sqlite:///{tmp_path}/x.db", aliases={"quick": "fake-model"}))
        said = hang_up(gateway, "not taken over")
        assert "not taken over: store can only be changed by a restart" in said
        assert status(gateway, "boss", "quick")[0] == 404
        write(tmp_path, "storr: memory://\n")
        assert "storr" in hang_up(gateway, "not taken over")
        assert status(gateway, "boss")[0] == 200
        assert gateway.terminate() == 0


def test_every_worker_takes_it_over(fake: FakeUpstream, tmp_path: Path) -> None:
    together = {"server": {"port": 0, "workers": 2}, "store": f"sqlite:///{tmp_path}/cache.db"}
    with serving(tmp_path, config(fake, **together)) as gateway:
        write(tmp_path, {**config(fake, **together), "aliases": {"quick": "fake-model"}})
        gateway.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + 20
        while gateway.errors().count("taken over: aliases changed") < 2:
            assert time.monotonic() < end, gateway.errors()
            time.sleep(0.02)
        assert {status(gateway, "boss", "quick")[0] for _ in range(10)} == {200}
        assert gateway.terminate() == 0


def test_changes_are_named_as_in_the_file() -> None:
    one = settings_from(
        {"upstreams": [{"name": "a", "kind": "openai", "base_url": "http://a/v1", "models": ["m"]}]}
    )
    two = msgspec.structs.replace(one, store="memory://", aliases={"x": "m"})
    assert changes(one, two) == ["aliases", "store"]
    assert changes(one, one) == []
    semantic = msgspec.structs.replace(one.tiers.semantic, max_error=0.02)
    three = msgspec.structs.replace(one, tiers=msgspec.structs.replace(one.tiers, semantic=semantic))
    assert changes(one, three) == ["tiers.semantic.max_error"]
