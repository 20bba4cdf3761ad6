"""Reads what a caller asks of the cache: Cache-Control, the ``x-strata-*`` headers, LiteLLM's body field."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import get_args

import msgspec

from stratacache.errors import RequestError
from stratacache.settings import DEFAULT_SCENE
from stratacache.types import JSON, CacheControl, TierName

TIERS: frozenset[str] = frozenset(get_args(TierName))
MAX_TAGS = 16
_WORD = re.compile(r"[\w.:/-]{1,64}", re.ASCII)
DIRECTIVE_HEADERS = (
    "cache-control",
    "x-strata-tiers",
    "x-strata-scene",
    "x-strata-tags",
    "x-strata-ttl",
    "x-strata-namespace",
    "x-strata-profile",
    "x-strata-conversation",
    "x-strata-min-confidence",
    "x-strata-admit",
)
"""Every request header that this module reads."""

_LITELLM_FIELDS = ("use-cache", "no-cache", "no-store", "ttl", "s-maxage", "namespace")


class Directives(msgspec.Struct, frozen=True):
    """``control`` for the pipeline, and the parts of the scope and route that a caller may name.

    ``scene`` is None when the caller named none: then ``control`` has the default one, and conditions may pick another.
    """

    control: CacheControl
    scene: str | None = None
    namespace: str = ""
    profile: str = ""
    conversation: str = ""


_NONE = Directives(CacheControl())


def read_directives(
    headers: Mapping[str, str], litellm: Mapping[str, JSON] | None, scenes: Collection[str]
) -> Directives:
    """Combine all of them; where two speak of one thing, the stricter holds.

    Args:
        headers: lower-case names.
        litellm: the body's ``cache`` object, if any.
        scenes: the configured names.

    Raises:
        RequestError: 400 naming the header or field whose value is not understood. Unknown Cache-Control
            directives are ignored, as RFC 9111 section 5.2.3 asks.
    """
    if not litellm and not any(name in headers for name in DIRECTIVE_HEADERS):
        return _NONE
    alias = _read_litellm(litellm or {})
    cache = _cache_control(headers.get("cache-control", ""))
    max_age = _least(*_directive(cache, "max-age"), alias.max_age)
    min_fresh = max(_directive(cache, "min-fresh"), default=0.0)
    scene = _scene(headers.get("x-strata-scene"), scenes)
    control = CacheControl(
        no_store="no-store" in cache or alias.no_store,
        no_cache="no-cache" in cache or alias.no_cache,
        only_if_cached="only-if-cached" in cache,
        max_age=max_age,
        ttl=_least(_seconds(headers.get("x-strata-ttl"), "x-strata-ttl"), alias.ttl),
        tiers=_tiers(headers.get("x-strata-tiers")),
        scene=scene or DEFAULT_SCENE,
        tags=_tags(headers.get("x-strata-tags")),
        admit=_switch(headers, "x-strata-admit"),
        min_fresh=min_fresh,
        stale_if_error=_stale_limit(cache, strict=max_age is not None or min_fresh > 0),
        min_confidence=_probability(headers, "x-strata-min-confidence"),
    )
    return Directives(
        control=control,
        scene=scene,
        namespace=_word(headers, "x-strata-namespace") or alias.namespace,
        profile=_word(headers, "x-strata-profile"),
        conversation=_word(headers, "x-strata-conversation"),
    )


class _LiteLLM(msgspec.Struct, frozen=True):
    no_cache: bool = False
    no_store: bool = False
    ttl: float | None = None
    max_age: float | None = None
    namespace: str = ""


def _read_litellm(cache: Mapping[str, JSON]) -> _LiteLLM:
    for name in cache:
        if name not in _LITELLM_FIELDS:
            known = ", ".join(_LITELLM_FIELDS)
            raise _refuse(f"cache.{name}", f"is not known; known are {known}")
    namespace = cache.get("namespace") or ""
    if not isinstance(namespace, str) or (namespace and not _WORD.fullmatch(namespace)):
        raise _refuse("cache.namespace", "must be 1 to 64 letters, digits, '_', '.', ':', '/' or '-'")
    return _LiteLLM(
        no_cache=_flag(cache, "no-cache"),
        # To those who run LiteLLM's cache on request only, use-cache: false says what no-store says to the others.
        no_store=_flag(cache, "no-store") or not _flag(cache, "use-cache", unsaid=True),
        ttl=_seconds(cache.get("ttl"), "cache.ttl"),
        max_age=_seconds(cache.get("s-maxage"), "cache.s-maxage"),
        namespace=namespace,
    )


def _flag(cache: Mapping[str, JSON], name: str, *, unsaid: bool = False) -> bool:
    value = cache.get(name)
    if value is None:
        return unsaid
    if isinstance(value, bool):
        return value
    raise _refuse(f"cache.{name}", "must be true or false")


def _cache_control(text: str) -> dict[str, list[str]]:
    """Directive names to the values that they were given, as several headers may name one twice."""
    directives: dict[str, list[str]] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        directives.setdefault(name.strip().lower(), []).append(value.strip().strip('"'))
    return directives


def _directive(cache: Mapping[str, list[str]], name: str) -> list[float]:
    """The seconds that a directive was given, as often as it was."""
    found = [_seconds(value, f"cache-control: {name}") for value in cache.get(name, ())]
    return [value for value in found if value is not None]


def _stale_limit(cache: Mapping[str, list[str]], *, strict: bool) -> float | None:
    """How long past its life an entry may answer when the upstream fails; None leaves it to the scene.

    ``stale-if-error=N`` (RFC 5861) and ``max-stale=N`` (RFC 9111) bound it. Who bounds an entry's age (``strict``) and
    says neither wants no stale answer: RFC 9111 section 5.2.1.1.
    """
    consents = cache.get("max-stale", [])
    bounds = [
        *_directive(cache, "stale-if-error"),
        *_directive({"max-stale": [n for n in consents if n]}, "max-stale"),
    ]
    if bounds or consents:
        return min(bounds, default=None)
    return 0.0 if strict else None


def _seconds(value: JSON, where: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 12:
        return float(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12:
        return float(value)
    raise _refuse(where, "must be a number of seconds, 0 or more")


def _switch(headers: Mapping[str, str], name: str) -> bool:
    text = headers.get(name, "false").strip().lower()
    if text not in ("true", "1", "false", "0"):
        raise _refuse(name, "must be true or false")
    return text in ("true", "1")


def _probability(headers: Mapping[str, str], name: str) -> float:
    text = headers.get(name, "0")
    if re.fullmatch(r"0(\.\d{1,9})?|1(\.0{1,9})?|\.\d{1,9}", text.strip(), re.ASCII):
        return float(text)
    raise _refuse(name, "must be a number from 0 to 1")


def _least(*values: float | None) -> float | None:
    return min((value for value in values if value is not None), default=None)


def _tiers(text: str | None) -> frozenset[str] | None:
    if text is None:
        return None
    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    unknown = sorted(names - TIERS - {"none"})
    if unknown:
        raise _refuse("x-strata-tiers", f"names {unknown[0]!r}; known are exact, semantic, none")
    return names - {"none"}


def _scene(text: str | None, scenes: Collection[str]) -> str | None:
    if text is not None and text not in scenes:
        raise _refuse(
            "x-strata-scene", f"names no configured scene; configured are {', '.join(sorted(scenes))}"
        )
    return text


def _tags(text: str | None) -> tuple[str, ...]:
    tags = tuple(sorted({tag.strip() for tag in (text or "").split(",") if tag.strip()}))
    if len(tags) > MAX_TAGS or not all(_WORD.fullmatch(tag) for tag in tags):
        raise _refuse("x-strata-tags", f"must be at most {MAX_TAGS} words of letters, digits, '_.:/-'")
    return tags


def _word(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name, "")
    if value and not _WORD.fullmatch(value):
        raise _refuse(name, "must be 1 to 64 letters, digits, '_', '.', ':', '/' or '-'")
    return value


def _refuse(where: str, what: str) -> RequestError:
    return RequestError(f"{where} {what}", param=where, code="invalid_cache_control")
