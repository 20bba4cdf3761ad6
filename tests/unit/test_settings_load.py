"""Settings that are right: defaults, the file, the environment over it, masking and the schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stratacache.errors import SettingsError
from stratacache.settings import (
    EmbeddedSettings,
    OpenAISettings,
    SceneSettings,
    Settings,
    api_key,
    json_schema,
    load,
)

HASH = "sha256:" + "0123456789abcdef" * 4
FULL = f"""
server: {{host: 0.0.0.0, port: 9000, workers: 1, max_body: 1MB, drain_timeout: 90}}
auth:
  keys:
    - {{key_hash: "{HASH}", tenant: acme, rights: [chat, admin], profile: gold, namespace: shop}}
upstreams:
  - {{name: local, kind: embedded, models: [smollm2-135m], threads: 2, kv_memory: 64MiB, dtype: bfloat16}}
  - {{name: remote, kind: openai, base_url: "https://models.example/v1", api_key_env: REMOTE_KEY,
      models: ["gpt-*"], timeout: 2m, connect_timeout: 500ms, idle_timeout: 1.5}}
aliases: {{fast: smollm2-135m, best: fast}}
store: memory://
store_max_bytes: 100MiB
tiers:
  order: [exact, semantic]
  exact: {{enabled: true, budget: 10ms, max_entry: 64KiB}}
  semantic: {{enabled: false}}
  kv: {{enabled: false}}
scenes:
  realtime: {{ttl: 2m, jitter: 0}}
"""


def loaded(tmp_path: Path, text: str, **environ: str) -> Settings:
    file = tmp_path / "conf.yaml"
    file.write_text(text, encoding="utf-8")
    return load(file, environ)


@pytest.fixture
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_without_a_file_the_embedded_defaults_hold(in_empty_folder: Path) -> None:
    settings = load(None, {})
    assert (settings.server.host, settings.server.port, settings.auth) == ("127.0.0.1", 8900, None)
    (local,) = settings.upstreams
    assert isinstance(local, EmbeddedSettings)
    assert (local.name, local.models) == ("local", ("smollm2-135m",))
    assert settings.scenes == {"default": SceneSettings(ttl=3600.0, jitter=1 / 6)}


def test_the_file_in_the_working_folder_is_found(in_empty_folder: Path) -> None:
    (in_empty_folder / "stratacache.yaml").write_text("server: {port: 1}")
    assert load(None, {}).server.port == 1


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    assert loaded(tmp_path, "# nothing yet\n") == load(None, {})


def test_every_section_is_read(tmp_path: Path) -> None:
    settings = loaded(tmp_path, FULL, REMOTE_KEY="k")
    assert (settings.server.max_body, settings.server.drain_timeout) == (10**6, 90.0)
    assert settings.auth is not None
    key = settings.auth.keys[0]
    assert (key.tenant, key.rights, key.profile, key.namespace) == ("acme", ("chat", "admin"), "gold", "shop")
    local, remote = settings.upstreams
    assert isinstance(local, EmbeddedSettings)
    assert (local.threads, local.kv_memory, local.dtype) == (2, 64 * 2**20, "bfloat16")
    assert isinstance(remote, OpenAISettings)
    assert (remote.timeout, remote.connect_timeout, remote.idle_timeout) == (120.0, 0.5, 1.5)
    assert settings.aliases == {"fast": "smollm2-135m", "best": "fast"}
    assert (settings.store, settings.store_max_bytes) == ("memory://", 100 * 2**20)
    assert (settings.tiers.exact.budget, settings.tiers.kv.enabled) == (0.01, False)
    assert settings.scenes["realtime"] == SceneSettings(ttl=120.0, jitter=0.0)
    assert settings.scenes["default"] == SceneSettings()


def test_the_tree_is_frozen() -> None:
    with pytest.raises(AttributeError):
        load(None, {}).server.port = 1  # type: ignore[misc]


def test_the_default_scene_can_be_overridden(tmp_path: Path) -> None:
    assert loaded(tmp_path, "scenes: {default: {ttl: 5m}}").scenes["default"].ttl == 300.0


def test_yaml_anchors_work(tmp_path: Path) -> None:
    text = "scenes: {a: &slow {ttl: 1d}, b: *slow}"
    assert loaded(tmp_path, text).scenes["b"].ttl == 86400.0


@pytest.mark.parametrize(
    ("name", "text", "picked"),
    [
        ("SERVER__PORT", "7", lambda s: s.server.port == 7),
        ("SERVER__HOST", "::1", lambda s: s.server.host == "::1"),
        ("SERVER__DRAIN_TIMEOUT", "2m", lambda s: s.server.drain_timeout == 120.0),
        ("SERVER__MAX_BODY", "2MiB", lambda s: s.server.max_body == 2 * 2**20),
        ("TIERS__EXACT__ENABLED", "false", lambda s: not s.tiers.exact.enabled),
        ("TIERS__ORDER", "[semantic, exact]", lambda s: s.tiers.order == ("semantic", "exact")),
        ("TIERS", '{"kv": {"enabled": false}}', lambda s: not s.tiers.kv.enabled),
        ("ALIASES__FAST", "smollm2-135m", lambda s: s.aliases == {"fast": "smollm2-135m"}),
        ("SCENES__NEWS__TTL", "1m", lambda s: s.scenes["news"].ttl == 60.0),
        ("STORE", "memory://", lambda s: s.store == "memory://"),
        ("AUTH", "", lambda s: s.auth is None),
        (
            "UPSTREAMS",
            '[{"name": "x", "kind": "openai", "models": ["*"], "base_url": "http://h/v1"}]',
            lambda s: s.upstreams[0].base_url == "http://h/v1",
        ),
    ],
)
def test_the_environment_sets_any_key(name: str, text: str, picked: Any) -> None:
    assert picked(load(None, {"STRATACACHE__" + name: text}))


def test_the_environment_wins_over_the_file_and_leaves_its_neighbours(tmp_path: Path) -> None:
    settings = loaded(tmp_path, "server: {port: 1, host: localhost}", STRATACACHE__SERVER__PORT="2")
    assert (settings.server.port, settings.server.host) == (2, "localhost")


def test_a_section_and_a_key_in_it_can_both_come_from_the_environment() -> None:
    environ = {"STRATACACHE__SERVER__PORT": "2", "STRATACACHE__SERVER": "{port: 1, host: localhost}"}
    settings = load(None, environ)
    assert (settings.server.port, settings.server.host) == (2, "localhost")


def test_other_variables_are_ignored() -> None:
    assert load(None, {"STRATACACHE_CONFIG": "x", "PATH": "y"}) == load(None, {})


def test_masked_settings_show_no_secret(tmp_path: Path) -> None:
    text = f"""
auth: {{keys: [{{key_hash: "{HASH}"}}]}}
upstreams:
  - {{name: a, kind: openai, models: ["*"], base_url: "https://user:hunter2@h.example/v1"}}
  - {{name: b, kind: openai, models: ["*"], base_url: "https://h.example/v1", api_key_env: REMOTE_KEY}}
"""
    masked = loaded(tmp_path, text, REMOTE_KEY="sk-very-secret").masked()
    shown = json.dumps(masked)
    for secret in (HASH, HASH[7:], "hunter2", "user:", "sk-very-secret"):
        assert secret not in shown
    assert masked["upstreams"][0]["base_url"] == "https://****@h.example/v1"
    assert masked["upstreams"][1]["api_key_env"] == "REMOTE_KEY"
    assert masked["auth"]["keys"][0]["tenant"] == "default"


def test_masked_defaults_load_again_as_the_same_settings(tmp_path: Path) -> None:
    defaults = load(None, {})
    assert loaded(tmp_path, json.dumps(defaults.masked())) == defaults


def test_an_api_key_comes_from_a_variable_or_a_file(tmp_path: Path) -> None:
    base = {"name": "a", "models": ("*",), "base_url": "http://h/v1"}
    file = tmp_path / "key"
    file.write_text("sk-file\n")
    assert api_key(OpenAISettings(**base), {}) is None
    assert api_key(OpenAISettings(**base, api_key_env="K"), {"K": "sk-env"}) == "sk-env"
    assert api_key(OpenAISettings(**base, api_key_file=str(file)), {}) == "sk-file"


@pytest.mark.parametrize("content", ["", "  \n", "two words", "sk-a\nsk-b", "schlüssel"])
def test_an_unusable_api_key_is_refused_without_showing_it(content: str) -> None:
    upstream = OpenAISettings(name="a", models=("*",), base_url="http://h/v1", api_key_env="K")
    with pytest.raises(SettingsError) as caught:
        api_key(upstream, {"K": content})
    assert "K" in str(caught.value)
    assert not content.strip() or content not in str(caught.value)


def test_the_schema_knows_every_key_and_the_text_forms() -> None:
    schema = json_schema()
    server = schema["$defs"]["ServerSettings"]["properties"]
    assert server["drain_timeout"]["type"] == ["number", "string"]
    assert set(schema["$defs"]["Settings"]["properties"]) == set(Settings.__struct_fields__)
    assert msgspec.json.decode(msgspec.json.encode(schema)) == schema


def test_the_guide_names_every_key() -> None:
    guide = (Path(__file__).parents[2] / "docs/guide/configuration.md").read_text(encoding="utf-8")
    sections = json_schema()["$defs"].values()
    missing = {
        key for section in sections for key in section.get("properties", {}) if f"`{key}`" not in guide
    }
    assert not missing
