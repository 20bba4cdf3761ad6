"""Which scene a request belongs to: what it names wins, then the first configured one whose conditions all hold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratacache.policy.scenes import matched_headers, scene_of
from stratacache.settings import BUILT_IN_SCENES, MatchSettings, SceneSettings

REQUEST: dict[str, Any] = {
    "route": "/v1/chat/completions",
    "model": "gpt-small",
    "tags": ("kb:prices", "eu"),
    "headers": {"x-app": "support-web", "x-team": "sales"},
}


def scene(**match: Any) -> SceneSettings:
    return SceneSettings(match=MatchSettings(**match))


@pytest.mark.parametrize(
    "match",
    [
        {"headers": {"x-app": "support-web"}},
        {"headers": {"X-App": "support-*", "X-Team": "s????"}},
        {"routes": ("/v1/completions", "/v1/chat/*")},
        {"models": ("claude-*", "gpt-*")},
        {"tags": ("kb:*",)},
        {"tags": ("us", "eu")},
        {"headers": {"x-app": "*"}, "routes": ("/v1/*",), "models": ("gpt-[rs]mall",), "tags": ("*",)},
    ],
)
def test_conditions_that_hold(match: dict[str, Any]) -> None:
    assert scene_of(None, **REQUEST, scenes={"a": scene(**match)}) == "a"


@pytest.mark.parametrize(
    "match",
    [
        {"headers": {"x-app": "support"}},
        {"headers": {"x-app": "Support-Web"}},
        {"headers": {"x-app": "support-*", "x-team": "tech"}},
        {"headers": {"x-other": "*"}},
        {"routes": ("/v1/chat",)},
        {"models": ("GPT-*",)},
        {"tags": ("kb",)},
        {"headers": {"x-app": "*"}, "models": ("claude-*",)},
        {"models": ("gpt-*",), "tags": ("us",)},
    ],
)
def test_conditions_that_do_not_hold(match: dict[str, Any]) -> None:
    assert scene_of(None, **REQUEST, scenes={"a": scene(**match), "default": SceneSettings()}) == "default"


def test_a_request_without_tags_meets_no_condition_on_tags() -> None:
    assert scene_of(None, **{**REQUEST, "tags": ()}, scenes={"a": scene(tags=("*",))}) == "default"


def test_the_first_that_matches_in_the_order_of_the_configuration_wins() -> None:
    first, second = scene(tags=("eu",)), scene(models=("gpt-*",))
    assert scene_of(None, **REQUEST, scenes={"b": first, "a": second}) == "b"
    assert scene_of(None, **REQUEST, scenes={"a": second, "b": first}) == "a"


def test_what_the_caller_names_wins_over_every_condition() -> None:
    assert scene_of("b", **REQUEST, scenes={"a": scene(tags=("eu",)), "b": SceneSettings()}) == "b"
    assert scene_of("default", **REQUEST, scenes={"a": scene(tags=("eu",))}) == "default"


def test_built_in_scenes_are_for_those_who_name_them() -> None:
    assert scene_of(None, **REQUEST, scenes=BUILT_IN_SCENES) == "default"
    assert scene_of("realtime", **REQUEST, scenes=BUILT_IN_SCENES) == "realtime"
    assert matched_headers(BUILT_IN_SCENES) == frozenset()


def test_the_headers_that_are_looked_at() -> None:
    scenes = {"a": scene(headers={"X-App": "*", "x-team": "*"}), "b": scene(headers={"x-app": "b"})}
    assert matched_headers(scenes) == {"x-app", "x-team"}


NAMES = st.sampled_from(["x-app", "x-team", "x-other"])
VALUES = st.sampled_from(["a", "b"])
PATTERNS = st.sampled_from(["a", "b", "*", "[ab]", "?"])


@given(
    headers=st.dictionaries(NAMES, VALUES),
    scenes=st.dictionaries(
        st.sampled_from("pqr"), st.dictionaries(NAMES.map(str.title), PATTERNS, min_size=1), max_size=3
    ),
)
def test_no_other_header_has_a_say(headers: dict[str, str], scenes: dict[str, dict[str, str]]) -> None:
    """The preparer remembers requests by the headers that ``matched_headers`` names, so these must be all."""
    made = {name: scene(headers=match) for name, match in scenes.items()}
    seen = {name: value for name, value in headers.items() if name in matched_headers(made)}
    assert scene_of(None, **{**REQUEST, "headers": seen}, scenes=made) == scene_of(
        None, **{**REQUEST, "headers": headers}, scenes=made
    )
