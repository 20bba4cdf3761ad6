"""The rules of providers' prompt caches: the table of a file, and the one that is packaged."""

from __future__ import annotations

import datetime
import fnmatch
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from stratacache.settings.section import (
    DAY,
    MODEL,
    MODEL_PATTERN,
    WORD,
    WORD_PATTERN,
    Section,
    duration,
    meta,
)
from stratacache.settings.source import Problem

PACKAGED: Final = Path(__file__).with_name("providers.yaml")

_Model = Annotated[str, meta("model name or pattern with * ? []", MODEL, pattern=MODEL_PATTERN)]
_Name = Annotated[str, meta("name", WORD, pattern=WORD_PATTERN)]


def _count(text: str, low: int, high: int) -> Any:
    return meta(text, f"a whole number from {low} to {high}", ge=low, le=high)


def _factor(text: str, high: float) -> Meta:
    expect = f"a number from 0 to {high:g}"
    return meta(f"{text} costs this many times the price of an ordinary one", expect, ge=0, le=high)


class Life(Section, frozen=True, kw_only=True):
    """How long an entry lives after its last use, and what writing it costs."""

    ttl: Annotated[_Name, Meta(description="what a request calls it")]
    seconds: Annotated[float, duration("life of an entry", 1, 31 * DAY)]
    write: Annotated[float, _factor("a prompt token written to the cache", 10)]


class CacheRule(Section, frozen=True, kw_only=True):
    """What one provider does for some of its models.

    ``style``: ``cache_control`` (entries are written where the request says so), ``breakpoints`` (OpenAI's newer
    models: one implicit entry at the newest message and explicit ones beside it), ``key`` (automatic, steered by
    ``prompt_cache_key``) or ``automatic`` (nothing to say). ``lives`` in ascending order of seconds.
    """

    models: Annotated[tuple[_Model, ...], Meta(description="whom it is for")]
    style: Annotated[
        Literal["cache_control", "breakpoints", "key", "automatic"],
        Meta(description="how a request steers the cache"),
    ]
    forms: Annotated[
        tuple[Literal["chat", "messages"], ...],
        Meta(description="whose requests can say it: OpenAI's chat API, Anthropic's Messages API"),
    ]
    minimum: Annotated[int, _count("tokens that a prefix must have", 0, 10**6)]
    step: Annotated[int, _count("tokens by which a cached prefix grows", 1, 10**5)] = 1
    breakpoints: Annotated[int, _count("marks that a request may carry", 0, 64)] = 0
    look_back: Annotated[
        int, _count("positions searched for one mark, its own included; 0 for no limit", 0, 10**5)
    ] = 0
    lives: Annotated[tuple[Life, ...], Meta(description="how long entries may live")]
    read: Annotated[float, _factor("a prompt token that the cache read", 1)]
    unmarked_read: Annotated[float, _factor("a repeated token of a request without marks", 1)] = 1.0
    takes_key: Annotated[bool, Meta(description="prompt_cache_key is accepted")] = False
    key_rate: Annotated[int, _count("requests a minute that one key is good for", 1, 10**6)] = 15


class Provider(Section, frozen=True, kw_only=True):
    """One provider. The first of ``rules`` with a pattern that matches a model counts."""

    name: Annotated[_Name, Meta(description="unique name")]
    hosts: Annotated[tuple[str, ...], Meta(description="names or patterns of its servers")] = ()
    source: Annotated[str, Meta(description="where the rules stand")]
    date: Annotated[datetime.date, meta("when they stood there", "a date such as 2026-12-03")]
    usage: Annotated[tuple[str, ...], Meta(description="fields of its answers that count cached tokens")]
    rules: Annotated[tuple[CacheRule, ...], Meta(description="by model")]


class ProviderTable(Section, frozen=True, kw_only=True):
    """All providers."""

    providers: Annotated[tuple[Provider, ...], Meta(description="one a provider")]

    def rule(self, provider: str, model: str) -> CacheRule | None:
        """The rule for ``model``, None when the provider or the model is not in the table."""
        for one in self.providers:
            if one.name == provider:
                return next((r for r in one.rules if _matches(model, r.models)), None)
        return None

    def provider_at(self, host: str) -> str | None:
        """The provider whose servers have names like ``host``."""
        return next((one.name for one in self.providers if _matches(host.lower(), one.hosts)), None)


def table_problems(table: ProviderTable) -> Iterator[Problem]:
    """What is wrong across values that are each right."""
    seen: set[str] = set()
    for i, provider in enumerate(table.providers):
        if provider.name in seen:
            yield Problem(("providers", i, "name"), f"{provider.name!r} is there already")
        seen.add(provider.name)
        for j, rule in enumerate(provider.rules):
            path = ("providers", i, "rules", j)
            seconds = [life.seconds for life in rule.lives]
            if not seconds or seconds != sorted(set(seconds)):
                yield Problem((*path, "lives"), "must name lives in ascending order of seconds")
            if not rule.models:
                yield Problem((*path, "models"), "names no model; use ['*'] for all")
            if rule.style in ("cache_control", "breakpoints") and rule.breakpoints < 1:
                yield Problem((*path, "breakpoints"), f"must be at least 1 with style {rule.style}")


def _matches(text: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(text, pattern) for pattern in patterns)
