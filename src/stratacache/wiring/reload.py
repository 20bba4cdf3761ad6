"""Takes over a changed configuration while the gateway serves, or refuses it as a whole."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import msgspec

from stratacache.policy.bound.pooled import Bound
from stratacache.settings import Settings
from stratacache.types import JSON
from stratacache.wiring import System
from stratacache.wiring.policies import build_policy, error_limits

log = logging.getLogger(__name__)

LIVE = ("scenes", "aliases", "auth.keys", "tiers.semantic.max_error")
"""Keys that can be changed without a restart, with all below them."""


def adopt(system: System, settings: Settings) -> bool:
    """Serve by ``settings`` from now on; False, with the keys in the log, when some of them need a restart.

    Answers that are under way are finished by the settings that they were begun with.
    """
    changed = changes(system.settings, settings)
    fixed = [key for key in changed if not _is_live(key)]
    if fixed:
        log.error(
            "the configuration is not taken over: %s can only be changed by a restart", ", ".join(fixed)
        )
        return False
    if not changed:
        log.info("the configuration is as it was")
        return True
    system.settings = settings
    system.policy = build_policy(settings)
    system.authenticator.adopt(settings.auth)
    system.router.adopt(settings.aliases)
    system.preparer.adopt(system.policy, settings.scenes)
    if system.semantic is not None and isinstance(system.semantic.models.bound, Bound):
        system.semantic.models.bound.limits = error_limits(settings)
    log.warning("the configuration is taken over: %s changed", ", ".join(changed))
    return True


def changes(old: Settings, new: Settings) -> list[str]:
    """The keys whose values differ, such as ``tiers.semantic.max_error``; lists and named sections as a whole."""
    return list(_changes("", msgspec.to_builtins(old), msgspec.to_builtins(new)))


def _changes(path: str, old: JSON, new: JSON) -> Iterator[str]:
    if old == new:
        return
    if path in LIVE or not isinstance(old, dict) or not isinstance(new, dict):
        yield path
        return
    for name in {**old, **new}:
        yield from _changes(f"{path}.{name}" if path else name, old.get(name), new.get(name))


def _is_live(key: str) -> bool:
    return any(key == live or key.startswith(f"{live}.") for live in LIVE)
