"""What tests of the prompt tier share: a tier with a clock, and requests of conversations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from stratacache.policy.fields import MESSAGES
from stratacache.settings import read_providers
from stratacache.testing import CacheUsage, PromptCache
from stratacache.tiers.prompt import Prepared, PromptTier
from stratacache.types import CacheControl, Request, Scope, Usage
from tests.clock import FakeClock

CLAUDE = "claude-sonnet-4-5"
TABLE = read_providers(None)
MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}


def words(tokens: int, topic: str = "word") -> str:
    """A text of a little more than so many tokens, by either estimate."""
    return f"{topic} " + "lorem ipsum dolor sit amet " * (tokens // 6 + 1)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def tool(name: str, description: str = "does it") -> dict[str, Any]:
    return {"name": name, "description": description, "input_schema": {"type": "object", "properties": {}}}


def asked(*messages: Any, model: str = CLAUDE, **more: Any) -> dict[str, Any]:
    return {"model": model, "max_tokens": 100, "messages": list(messages), **more}


class Counts:
    """A tally."""

    def __init__(self) -> None:
        self.decisions: Counter[tuple[str, str]] = Counter()
        self.reads: Counter[str] = Counter()

    def planned(self, provider: str, decision: str) -> None:
        self.decisions[provider, decision] += 1

    def prompt_read(self, provider: str, result: str) -> None:
        self.reads[result] += 1


class Tier:
    """The prompt tier before a provider's model: ``ask`` plans, looks up and settles at once."""

    def __init__(
        self, provider: str = "anthropic", endpoint: str = MESSAGES, tenant: str = "default"
    ) -> None:
        self.clock, self.counts, self.endpoint, self.tenant = FakeClock(), Counts(), endpoint, tenant
        self.cache = PromptCache(self.clock.monotonic)
        self.tier = PromptTier({"up": provider}, TABLE, b"s" * 32, self.clock, self.counts)

    def request(self, body: Mapping[str, Any], tenant: str | None = None) -> Request:
        scope = Scope(tenant=tenant or self.tenant)
        return Request(self.endpoint, body["model"], body["model"], "up", body, scope, CacheControl())

    def prepare(self, body: dict[str, Any], tenant: str | None = None) -> Prepared:
        prepared = self.tier.prepare(self.request(body, tenant), body)
        self.tier.check()
        return prepared

    def ask(self, body: dict[str, Any]) -> tuple[Prepared, CacheUsage]:
        prepared = self.prepare(body)
        begun = self.cache.look_up("w", body["model"], prepared.body)
        self.cache.begin_answer(begun)
        self.tier.settle(prepared, 200, Usage(prompt=begun.usage.total, cached_prompt=begun.usage.read))
        return prepared, begun.usage


def marks_in(value: Any) -> list[dict[str, Any]]:
    """Every ``cache_control`` below ``value``, in order."""
    if isinstance(value, dict):
        own = [value["cache_control"]] if value.get("cache_control") else []
        ordered: Sequence[Any] = (
            [value[k] for k in ("tools", "system", "messages") if k in value]
            if "messages" in value
            else [v for k, v in value.items() if k != "cache_control"]
        )
        return [mark for inner in ordered for mark in marks_in(inner)] + own
    return [mark for inner in value for mark in marks_in(inner)] if isinstance(value, list) else []
