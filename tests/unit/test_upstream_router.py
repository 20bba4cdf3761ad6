"""The router: aliases, exact names before patterns, first match, and what a client is told otherwise."""

from __future__ import annotations

import pytest

from stratacache.errors import RequestError
from stratacache.settings import OpenAISettings
from stratacache.upstream.router import Router, server_of


def upstream(name: str, *models: str) -> OpenAISettings:
    return OpenAISettings(name=name, models=models, base_url="http://h/v1")


ROUTER = Router(
    [
        upstream("wide", "gpt-*", "*-large"),
        upstream("named", "gpt-4", "tiny"),
        upstream("late", "gpt-5*", "tiny"),
    ],
    {"fast": "tiny", "faster": "fast", "gpt-old": "gpt-4"},
)


@pytest.mark.parametrize(
    ("model", "route"),
    [
        ("tiny", ("named", "tiny")),
        ("gpt-4", ("named", "gpt-4")),
        ("gpt-5-mini", ("wide", "gpt-5-mini")),
        ("any-large", ("wide", "any-large")),
        ("fast", ("named", "tiny")),
        ("faster", ("named", "tiny")),
        ("gpt-old", ("named", "gpt-4")),
    ],
)
def test_a_model_goes_to_the_first_best_upstream(model: str, route: tuple[str, str]) -> None:
    resolved = ROUTER.resolve(model)
    assert (resolved.upstream, resolved.model) == route


@pytest.mark.parametrize("model", ["", "GPT-4", "tin", "tiny ", "nope", "gpt-" + "x" * 300, "x" * 10**6])
def test_an_unknown_model_is_refused(model: str) -> None:
    with pytest.raises(RequestError) as caught:
        ROUTER.resolve(model)
    error = caught.value
    assert (error.status, error.code, error.param) == (404, "model_not_found", "model")
    assert len(error.message) < 400


def test_the_refusal_names_the_nearest_models() -> None:
    with pytest.raises(RequestError, match="did you mean 'tiny'"):
        ROUTER.resolve("tinny")


def test_the_refusal_lists_what_there_is_when_nothing_is_near() -> None:
    with pytest.raises(RequestError, match="configured: fast, faster, gpt-4, gpt-old, tiny"):
        ROUTER.resolve("zzz")


def test_concrete_models_and_aliases_are_listed_with_their_upstream() -> None:
    assert ROUTER.models() == {
        "gpt-4": "named",
        "tiny": "named",
        "fast": "named",
        "faster": "named",
        "gpt-old": "named",
    }


def test_upstreams_with_patterns_list_their_models_themselves() -> None:
    assert ROUTER.wildcard_upstreams() == ("wide", "late")
    assert ROUTER.serves("wide", "gpt-5")
    assert not ROUTER.serves("late", "gpt-5")
    assert not ROUTER.serves("wide", "gpt-4")
    assert not ROUTER.serves("wide", "gpt-old")


def test_replicas_come_and_go_without_another_server_standing_behind_the_name() -> None:
    one, two = (
        OpenAISettings(name="pool", models=("m",), replicas=urls)
        for urls in (("http://a/v1",), ("http://a/v1", "http://b/v1"))
    )
    assert server_of(one) == server_of(two) != server_of(upstream("pool", "m"))
