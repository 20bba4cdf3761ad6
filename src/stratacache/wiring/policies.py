"""What the settings say of caching and of wrong answers, as the pure parts take it."""

from __future__ import annotations

from stratacache.pipeline.plan import CachePolicy, NegativePolicy, ScenePolicy
from stratacache.policy.bound.pooled import Limits
from stratacache.settings import Settings


def build_policy(settings: Settings) -> CachePolicy:
    """The operator's side of every plan."""
    exact = settings.tiers.exact
    return CachePolicy(
        exact=exact.enabled,
        scenes={
            name: ScenePolicy(
                ttl=scene.ttl,
                jitter=scene.jitter,
                exact=scene.exact,
                early_refresh=scene.early_refresh,
                stale_if_error=scene.stale_if_error,
                semantic=scene.semantic,
            )
            for name, scene in settings.scenes.items()
        },
        max_entry=exact.max_entry,
        history_window=None if exact.history_window == "all" else exact.history_window,
        negative=NegativePolicy(
            ttl=exact.negative_ttl,
            empty="empty" in exact.negative_on,
            statuses=frozenset(sign for sign in exact.negative_on if isinstance(sign, int)),
            markers=exact.negative_markers,
        ),
        admission=exact.admission,
        semantic=settings.tiers.semantic.enabled and "semantic" in settings.tiers.order,
        semantic_first=settings.tiers.order[:1] == ("semantic",),
    )


def error_limits(settings: Settings) -> Limits:
    """How many answers may be wrong."""
    return Limits(
        max_error=settings.tiers.semantic.max_error,
        scenes={name: one.max_error for name, one in settings.scenes.items() if one.max_error is not None},
    )
