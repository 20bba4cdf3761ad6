"""Which scene a request belongs to: the one that it names, or the first whose conditions it meets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from stratacache.settings import DEFAULT_SCENE, MatchSettings, SceneSettings, matches


def scene_of(
    named: str | None,
    *,
    route: str,
    model: str,
    tags: Collection[str],
    headers: Mapping[str, str],
    scenes: Mapping[str, SceneSettings],
) -> str:
    """The name of the scene.

    Args:
        named: what the caller asked for, which must be one of ``scenes``; it wins over every condition.
        route: the request's path, such as ``/v1/chat/completions``.
        model: the model that serves it, aliases resolved.
        headers: lower-case names; those of ``matched_headers`` are enough.
        scenes: in the order of the configuration.
    """
    if named is not None:
        return named
    for name, scene in scenes.items():
        if scene.match is not None and _meets(scene.match, route, model, tags, headers):
            return name
    return DEFAULT_SCENE


def matched_headers(scenes: Mapping[str, SceneSettings]) -> frozenset[str]:
    """The headers that :func:`scene_of` looks at, in lower case."""
    conditions = [scene.match for scene in scenes.values() if scene.match is not None]
    return frozenset(name.lower() for match in conditions for name in match.headers)


def _meets(
    match: MatchSettings, route: str, model: str, tags: Collection[str], headers: Mapping[str, str]
) -> bool:
    """Every kind of condition that is given holds; one without any holds too, and is refused in the settings."""
    if match.routes and not _any(match.routes, (route,)):
        return False
    if match.models and not _any(match.models, (model,)):
        return False
    if match.tags and not _any(match.tags, tags):
        return False
    return all(
        name.lower() in headers and matches(headers[name.lower()], pattern)
        for name, pattern in match.headers.items()
    )


def _any(patterns: Iterable[str], values: Collection[str]) -> bool:
    return any(matches(value, pattern) for pattern in patterns for value in values)
