"""Which upstreams get the prompt tier, and whose rules they follow."""

from __future__ import annotations

from typing import Any

import pytest
from tests.clock import FakeClock
from tests.harness import settings_from
from tests.prompt_kit import Counts, asked, user, words

from stratacache.errors import SettingsError
from stratacache.policy.fields import CHAT
from stratacache.tiers.prompt import PromptTier
from stratacache.types import CacheControl, Request, Scope
from stratacache.wiring.prompt import build_prompt


def built(*upstreams: dict[str, Any], secret: Any = lambda: b"s" * 32, **prompt: Any) -> PromptTier | None:
    rows = [{"models": ["*"], "kind": "openai", **one} for one in upstreams]
    settings = settings_from({"store": "memory://", "upstreams": rows, "tiers": {"prompt": prompt}})
    return build_prompt(settings, secret, FakeClock(), Counts())


def provider_of(tier: PromptTier | None, upstream: str = "a") -> str:
    """Whose rules ``explain`` names, "" for nobody's."""
    body = asked(user("Hi!"), model="gpt-4.1")
    request = Request(CHAT, "gpt-4.1", "gpt-4.1", upstream, body, Scope(), CacheControl())
    return "" if tier is None else tier.explain(request, body).get("provider", "")


def test_the_provider_is_known_by_the_host_or_named() -> None:
    openai, proxy = "https://api.openai.com/v1", "http://proxy.example/v1"
    assert provider_of(built({"name": "a", "base_url": openai})) == "openai"
    assert provider_of(built({"name": "a", "base_url": proxy, "provider": "mistral"})) == "mistral"
    assert built({"name": "a", "base_url": proxy}) is None
    assert built({"name": "a", "base_url": openai}, enabled=False) is None
    tier = built({"name": "a", "base_url": openai, "models": ["gpt-*"]}, {"name": "b", "base_url": proxy})
    assert (provider_of(tier), provider_of(tier, "b")) == ("openai", "")


def test_replicas_of_several_providers_follow_nobodys_rules() -> None:
    urls = ["https://api.openai.com/v1", "https://api.mistral.ai/v1"]
    assert built({"name": "a", "replicas": urls}) is None
    assert provider_of(built({"name": "a", "replicas": urls[:1]})) == "openai"


def test_without_a_place_for_a_secret_the_process_has_one_of_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> bytes:
        raise SettingsError("the file .stratacache/secret: Read-only file system")

    tier = built({"name": "a", "base_url": "https://api.openai.com/v1"}, secret=fail)
    assert tier is not None
    body = asked(user(words(2000)), model="gpt-4.1")
    request = Request(CHAT, "gpt-4.1", "gpt-4.1", "a", body, Scope(), CacheControl())
    assert tier.prepare(request, body).body["prompt_cache_key"]
    assert "Read-only" in caplog.text
