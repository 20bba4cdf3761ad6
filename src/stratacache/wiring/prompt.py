"""Builds the prompt tier."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from urllib.parse import urlsplit

from stratacache.errors import SettingsError
from stratacache.policy.prompt.stable import Options
from stratacache.ports import Clock
from stratacache.settings import RemoteSettings, Settings, addresses, read_providers
from stratacache.tiers import prefixes
from stratacache.tiers.prompt import PromptTier, Tally
from stratacache.wiring.secret import LENGTH

log = logging.getLogger(__name__)


def build_prompt(
    settings: Settings, secret: Callable[[], bytes], clock: Clock, tally: Tally
) -> PromptTier | None:
    """None when the tier is off, or no upstream is a server. ``secret`` gives the server's secret."""
    remote = [one for one in settings.upstreams if isinstance(one, RemoteSettings)]
    if not settings.tiers.prompt.enabled or not remote:
        return None
    table = read_providers(settings.tiers.prompt.rules)
    hosts = {one.name: {urlsplit(url).hostname or "" for url in addresses(one)} for one in remote}
    providers = {}
    for one in remote:
        found = {table.provider_at(host) for host in hosts[one.name]}
        # Replicas of several providers would follow no one's rules.
        known = one.provider or (found.pop() if len(found) == 1 else None)
        if known is not None:
            providers[one.name] = known
    return PromptTier(providers, table, _secret(secret), clock, tally) if providers else None


def build_prefixes(settings: Settings, clock: Clock, tally: prefixes.Tally) -> prefixes.Prefixes | None:
    """None when the tier is off."""
    prompt = settings.tiers.prompt
    if not prompt.enabled:
        return None
    options = Options(canonicalise=prompt.canonicalise, relocate_volatile=prompt.relocate_volatile)
    return prefixes.Prefixes(options, clock, tally)


def _secret(given: Callable[[], bytes]) -> bytes:
    """The server's secret. Without a place to keep one this process has its own: keys differ, and nothing else."""
    try:
        return given()
    except SettingsError as error:
        log.warning(
            "prompt cache keys of this process are its own, and find what others cached less often: %s", error
        )
        return secrets.token_bytes(LENGTH)
