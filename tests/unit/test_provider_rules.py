"""The table of providers' rules: what it says, and how a file of one's own is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratacache.errors import SettingsError
from stratacache.settings import load, read_providers
from stratacache.testing import minimum_of

TABLE = read_providers(None)
GOOD = """providers:
  - name: mine
    hosts: [cache.example.com]
    source: our contract
    date: 2026-12-01
    usage: [read]
    rules:
      - models: ['m-*']
        style: cache_control
        forms: [chat]
        minimum: 100
        breakpoints: 2
        lives: [{ttl: 5m, seconds: 5m, write: 1.1}]
        read: 0.2
"""


@pytest.mark.parametrize(
    "model",
    ["claude-opus-5", "claude-opus-4-7", "claude-opus-4-6", "claude-opus-4-5", "claude-haiku-4-5-20251001",
     "claude-opus-4-8", "claude-opus-4-1", "claude-sonnet-4-6", "claude-mythos-5", "claude-fable-5-1"],
)  # fmt: skip
def test_the_minimum_is_what_the_fake_holds_to(model: str) -> None:
    rule = TABLE.rule("anthropic", model)
    assert rule is not None
    assert rule.minimum == minimum_of(model)


@pytest.mark.parametrize(
    ("model", "style"),
    [("gpt-4o-mini", "key"), ("gpt-4.1", "key"), ("gpt-5", "key"), ("gpt-5-mini", "key"), ("gpt-5.5-pro", "key"),
     ("gpt-5.6", "breakpoints"), ("gpt-5.6-mini", "breakpoints"), ("gpt-5.10", "breakpoints"),
     ("gpt-6.1-sol", "breakpoints")],
)  # fmt: skip
def test_openais_models_are_told_apart(model: str, style: str) -> None:
    rule = TABLE.rule("openai", model)
    assert rule is not None
    assert rule.style == style


def test_unknown_models_and_providers_have_no_rule() -> None:
    assert TABLE.rule("openai", "text-embedding-3-small") is None
    assert TABLE.rule("nobody", "m") is None


def test_providers_are_known_by_their_hosts() -> None:
    hosts = {"api.anthropic.com": "anthropic", "us.api.openai.com": None, "DashScope.aliyuncs.com": "qwen"}
    assert {host: TABLE.provider_at(host) for host in hosts} == hosts


def test_every_provider_says_where_its_rules_stand_and_since_when() -> None:
    for provider in TABLE.providers:
        assert provider.source.startswith("https://")
        assert provider.date.year >= 2026
        assert provider.usage


def test_a_file_of_ones_own_replaces_the_table(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(GOOD)
    rule = read_providers(str(path)).rule("mine", "m-1")
    assert rule is not None
    assert (rule.minimum, rule.lives[0].seconds, rule.read) == (100, 300.0, 0.2)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "minimum: 100",
            "minimun: 100",
            ["rules.yaml:11: providers[0].rules[0].minimun: unknown key", "'minimum'"],
        ),
        (
            "read: 0.2",
            "read: cheap",
            ["rules.yaml:14: providers[0].rules[0].read: must be a number from 0 to 1"],
        ),
        (
            "style: cache_control",
            "style: magic",
            ["rules.yaml:9:", "must be one of cache_control, breakpoints"],
        ),
        (
            "breakpoints: 2",
            "breakpoints: 0",
            ["rules.yaml:12:", "must be at least 1 with style cache_control"],
        ),
        ("{ttl: 5m, seconds: 5m, write: 1.1}", "", ["rules.yaml:13:", "ascending order"]),
        ("['m-*']", "[]", ["rules.yaml:8:", "names no model"]),
        ("providers:", "providers: [", ["rules.yaml:", "not valid YAML"]),
    ],
)
def test_a_bad_file_is_refused_with_line_and_key(tmp_path: Path, old: str, new: str, said: list[str]) -> None:
    (tmp_path / "rules.yaml").write_text(GOOD.replace(old, new, 1))
    config = tmp_path / "config.yaml"
    config.write_text(f"tiers: {{prompt: {{rules: {tmp_path / 'rules.yaml'}}}}}")
    with pytest.raises(SettingsError) as refused:
        load(config, {})
    assert "config.yaml:1: tiers.prompt.rules: cannot be used:" in str(refused.value)
    assert all(words in str(refused.value) for words in said), str(refused.value)
