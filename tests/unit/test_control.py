"""What callers may ask of the cache: every directive, its bounds, and refusals that name the place."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratacache.errors import RequestError
from stratacache.gateway.control import Directives, read_directives
from stratacache.types import CacheControl

SCENES = {"default", "news"}


def read(headers: dict[str, str], litellm: dict[str, Any] | None = None) -> Directives:
    return read_directives(headers, litellm, SCENES)


def control(headers: dict[str, str], litellm: dict[str, Any] | None = None) -> CacheControl:
    return read(headers, litellm).control


def test_nothing_asked() -> None:
    assert read({}) == Directives(CacheControl())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no-store", CacheControl(no_store=True)),
        ("NO-CACHE", CacheControl(no_cache=True)),
        ("only-if-cached", CacheControl(only_if_cached=True)),
        ("max-age=60", CacheControl(max_age=60, stale_if_error=0)),
        ('max-age="60"', CacheControl(max_age=60, stale_if_error=0)),
        (" max-age = 60 , no-cache", CacheControl(max_age=60, no_cache=True, stale_if_error=0)),
        ("max-age=60, max-age=5", CacheControl(max_age=5, stale_if_error=0)),
        ("max-age=5, max-age=60", CacheControl(max_age=5, stale_if_error=0)),
        ("min-fresh=30", CacheControl(min_fresh=30, stale_if_error=0)),
        ("min-fresh=3, min-fresh=30", CacheControl(min_fresh=30, stale_if_error=0)),
        ("min-fresh=0", CacheControl()),
        ("stale-if-error=3", CacheControl(stale_if_error=3)),
        ("stale-if-error=3, max-stale=2", CacheControl(stale_if_error=2)),
        ("max-stale=9, stale-if-error=3, max-stale", CacheControl(stale_if_error=3)),
        ("max-stale", CacheControl()),
        ("max-age=60, max-stale", CacheControl(max_age=60)),
        ("max-age=60, max-stale=5", CacheControl(max_age=60, stale_if_error=5)),
        ("private, no-transform, x=y, ,", CacheControl()),
    ],
)
def test_cache_control(text: str, expected: CacheControl) -> None:
    assert control({"cache-control": text}) == expected


def test_the_rest_of_the_headers() -> None:
    got = read(
        {
            "x-strata-tiers": "exact, none",
            "x-strata-scene": "news",
            "x-strata-tags": "b,a, a",
            "x-strata-ttl": "600",
            "x-strata-namespace": "team/one",
            "x-strata-profile": "gold",
            "x-strata-conversation": "c-1",
            "x-strata-min-confidence": "0.95",
            "x-strata-admit": "true",
        }
    )
    assert got == Directives(
        CacheControl(
            ttl=600,
            tiers=frozenset({"exact"}),
            scene="news",
            tags=("a", "b"),
            admit=True,
            min_confidence=0.95,
        ),
        scene="news",
        namespace="team/one",
        profile="gold",
        conversation="c-1",
    )


def test_an_empty_tier_list_asks_no_tier() -> None:
    assert control({"x-strata-tiers": ""}).tiers == frozenset()
    assert control({"x-strata-tiers": "none"}).tiers == frozenset()


def test_litellms_field_means_the_same_and_the_stricter_holds() -> None:
    field = {"no-cache": True, "no-store": None, "ttl": 5, "s-maxage": 9.5, "namespace": "n"}
    assert read({}, field) == Directives(
        CacheControl(no_cache=True, max_age=9.5, ttl=5, stale_if_error=0), namespace="n"
    )
    both = control({"cache-control": "max-age=60", "x-strata-ttl": "3"}, field)
    assert (both.max_age, both.ttl) == (9.5, 3)


def test_litellms_field_says_whether_to_use_the_cache_at_all() -> None:
    assert read({}, {"use-cache": True}) == Directives(CacheControl())
    assert control({}, {"use-cache": None}) == CacheControl()
    assert control({}, {"use-cache": False}).no_store
    assert control({}, {"use-cache": True, "no-store": True}).no_store


def test_a_scene_that_the_caller_does_not_name_is_left_open() -> None:
    got = read({"x-strata-ttl": "5"})
    assert (got.scene, got.control.scene) == (None, "default")
    assert read({"x-strata-scene": "default"}).scene == "default"


@pytest.mark.parametrize(
    ("headers", "field", "param"),
    [
        ({"cache-control": "max-age=soon"}, None, "cache-control: max-age"),
        ({"cache-control": "max-age"}, None, "cache-control: max-age"),
        ({"cache-control": "max-age=-1"}, None, "cache-control: max-age"),
        ({"cache-control": "max-age=5, max-age=x"}, None, "cache-control: max-age"),
        ({"cache-control": "min-fresh"}, None, "cache-control: min-fresh"),
        ({"cache-control": "max-stale=x"}, None, "cache-control: max-stale"),
        ({"cache-control": "stale-if-error"}, None, "cache-control: stale-if-error"),
        ({"x-strata-admit": "yes"}, None, "x-strata-admit"),
        ({}, {"use-cache": 1}, "cache.use-cache"),
        ({"x-strata-ttl": "10m"}, None, "x-strata-ttl"),
        ({"x-strata-ttl": "1e3"}, None, "x-strata-ttl"),
        ({"x-strata-ttl": "٣"}, None, "x-strata-ttl"),
        ({"x-strata-ttl": "9" * 13}, None, "x-strata-ttl"),
        ({"x-strata-ttl": "600, 5"}, None, "x-strata-ttl"),
        ({"x-strata-tiers": "Exact"}, None, "x-strata-tiers"),
        ({"x-strata-scene": "nowhere"}, None, "x-strata-scene"),
        ({"x-strata-tags": "two words"}, None, "x-strata-tags"),
        ({"x-strata-tags": ",".join("abcdefghijklmnopq")}, None, "x-strata-tags"),
        ({"x-strata-namespace": "n" * 65}, None, "x-strata-namespace"),
        ({"x-strata-profile": "gold\n"}, None, "x-strata-profile"),
        ({"x-strata-conversation": "caf\xe9"}, None, "x-strata-conversation"),
        ({"x-strata-min-confidence": "1.01"}, None, "x-strata-min-confidence"),
        ({"x-strata-min-confidence": "nan"}, None, "x-strata-min-confidence"),
        ({}, {"no-cash": True}, "cache.no-cash"),
        ({}, {"no-cache": "yes"}, "cache.no-cache"),
        ({}, {"ttl": True}, "cache.ttl"),
        ({}, {"ttl": -1}, "cache.ttl"),
        ({}, {"ttl": 10**400}, "cache.ttl"),
        ({}, {"namespace": 7}, "cache.namespace"),
        ({}, {"namespace": "a b"}, "cache.namespace"),
    ],
)
def test_refusals_name_the_place(headers: dict[str, str], field: dict[str, Any] | None, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(headers, field)
    assert (caught.value.status, caught.value.param, caught.value.code) == (
        400,
        param,
        "invalid_cache_control",
    )
    assert str(caught.value).startswith(param)


NAMES = ("cache-control", "tiers", "scene", "tags", "ttl", "namespace", "profile", "conversation",
         "min-confidence", "admit")  # fmt: skip
VALUES = st.text("".join(map(chr, range(256)))) | st.text(
    string.digits + ".,=-e max-age no-store min-fresh max-stale"
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(
    headers=st.dictionaries(st.sampled_from(NAMES), VALUES),
    field=st.none()
    | st.dictionaries(
        st.sampled_from(["no-cache", "no-store", "use-cache", "ttl", "s-maxage", "namespace", "x"]), JSON
    ),
)
def test_whatever_is_sent_is_understood_or_refused(
    headers: dict[str, str], field: dict[str, Any] | None
) -> None:
    named = {name if name == "cache-control" else f"x-strata-{name}": v for name, v in headers.items()}
    try:
        got = control(named, field)
    except RequestError:
        return
    assert got.ttl is None or 0 <= got.ttl < 1e12
    assert got.scene in SCENES
    assert 0 <= got.min_fresh < 1e12
    assert got.stale_if_error is None or 0 <= got.stale_if_error < 1e12
