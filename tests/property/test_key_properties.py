"""Properties of the exact key: wire spelling never matters, content always does, nothing is shared across scopes."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stratacache.policy.fields import CHAT, irrelevant_fields
from stratacache.policy.key import exact_key
from stratacache.types import CacheControl, Key, Request, Scope

# Few, short strings: neighbours' characters meet often, which is where an undelimited encoding collides.
short = st.text(alphabet='ab",:[]{}\\\u0000é', max_size=4)
some = st.text(alphabet='ab",:[]{}\\', min_size=1, max_size=4)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | short
values = st.recursive(
    scalars, lambda v: st.lists(v, max_size=3) | st.dictionaries(short, v, max_size=3), max_leaves=8
)


def talk(*roles: str) -> st.SearchStrategy[list[dict[str, Any]]]:
    """One to four messages of these roles."""
    message = st.fixed_dictionaries(
        {"role": st.sampled_from(roles), "content": short}, optional={"name": short, "tool_call_id": short}
    )
    return st.lists(message, min_size=1, max_size=4)


names = st.sampled_from(
    ["temperature", "seed", "stop", "tools", "tool_choice", "response_format", "logit_bias", "new"]
)
scopes = st.builds(Scope, tenant=short, namespace=short, profile=short, credential=short)


def asked(*roles: str) -> st.SearchStrategy[Request]:
    """Chat requests whose messages have these roles."""
    fields = st.dictionaries(names, values, max_size=3)
    return st.builds(
        Request,
        endpoint=st.just(CHAT),
        model=st.just("x"),
        resolved_model=short,
        upstream=short,
        body=st.builds(lambda m, extra: {"model": "x", "messages": m, **extra}, talk(*roles), fields),
        scope=scopes,
        control=st.just(CacheControl()),
        headers=st.lists(st.tuples(short, short), max_size=2).map(tuple),
    )


requests = asked("system", "user", "assistant", "tool")
byte_exact = asked("system", "developer", "assistant", "tool")  # user prose has tests of its own


def key(request: Request, **changes: Any) -> Key:
    return exact_key(msgspec.structs.replace(request, **changes) if changes else request)


def shuffled(value: Any, order: random.Random) -> Any:
    """The same JSON value with every object's members in another order."""
    if isinstance(value, dict):
        members = list(value.items())
        order.shuffle(members)
        return {k: shuffled(v, order) for k, v in members}
    return [shuffled(v, order) for v in value] if isinstance(value, list) else value


@settings(max_examples=100)
@given(requests, st.randoms(use_true_random=False), st.sampled_from([None, 0, 3]))
def test_order_and_white_space_of_the_json_never_matter(
    request: Request, order: random.Random, indent: Any
) -> None:
    wire = json.dumps(shuffled(request.body, order), indent=indent, ensure_ascii=bool(indent))
    assert key(request, body=msgspec.json.decode(wire)) == key(request)


@settings(max_examples=100)
@given(requests, st.dictionaries(st.sampled_from(sorted(irrelevant_fields(CHAT))), values, max_size=4))
def test_irrelevant_fields_never_matter(request: Request, extra: dict[str, Any]) -> None:
    assert key(request, body={**request.body, **extra}) == key(request)


@settings(max_examples=100)
@given(requests, st.text(min_size=1, max_size=8), values)
def test_any_added_field_matters(request: Request, field: str, value: Any) -> None:
    assume(field not in request.body and field not in irrelevant_fields(CHAT))
    assert key(request, body={**request.body, field: value}) != key(request)


def same(one: Any, other: Any) -> bool:
    """Equal as JSON: unlike Python's ==, 1, 1.0 and true differ."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


@settings(max_examples=200)
@given(byte_exact, byte_exact)
def test_two_requests_share_a_key_only_when_all_is_equal(one: Request, other: Request) -> None:
    assume(
        all(m["role"] != "user" for r in (one, other) for m in r.body["messages"])
    )  # prose has its own tests
    equal = (
        one.scope == other.scope
        and (one.resolved_model, one.upstream) == (other.resolved_model, other.upstream)
        and sorted(one.headers) == sorted(other.headers)
        and same(one.body, other.body)
    )
    assert (key(one) == key(other)) == equal


@settings(max_examples=100)
@given(requests, st.sampled_from(["tenant", "namespace", "profile", "credential"]), short)
def test_scopes_never_share(request: Request, field: str, value: str) -> None:
    scope = msgspec.structs.replace(request.scope, **{field: value})
    assert (key(request, scope=scope) == key(request)) == (scope == request.scope)


@settings(max_examples=100)
@given(
    requests, short, st.integers(0, 4), st.sampled_from([("tenant", "namespace"), ("namespace", "profile")])
)
def test_moving_characters_between_scope_fields_never_collides(
    request: Request, text: str, cut: int, fields: tuple[str, str]
) -> None:
    def split(at: int) -> Key:
        scope = msgspec.structs.replace(request.scope, **{fields[0]: text[:at], fields[1]: text[at:]})
        return key(request, scope=scope)

    cut = min(cut, len(text))
    assert (split(cut) == split(len(text))) == (cut == len(text))


@settings(max_examples=100)
@given(requests, some, some)
def test_moving_characters_between_messages_or_into_a_field_never_collides(
    request: Request, left: str, right: str
) -> None:
    def say(*contents: str) -> Key:
        return key(request, body={"messages": [{"role": "system", "content": c} for c in contents]})

    whole = left + right
    keys = [say(whole), say(left, right), say(whole, ""), say("", whole)]
    keys += [key(request, body={"f": whole}), key(request, body={"f" + left: right})]
    assert len(set(keys)) == len(keys)


@settings(max_examples=100)
@given(byte_exact, st.integers(0, 3), st.sampled_from(["role", "content"]), short)
def test_any_change_to_a_message_of_another_role_than_user_matters(
    request: Request, index: int, field: str, value: str
) -> None:
    said = [dict(m) for m in request.body["messages"]]
    message = said[index % len(said)]
    assume(message[field] != value)
    message[field] = value
    assert key(request, body={**request.body, "messages": said}) != key(request)


@settings(max_examples=100)
@given(requests)
def test_a_dropped_or_swapped_message_matters(request: Request) -> None:
    said = request.body["messages"]
    assert key(request, body={**request.body, "messages": said[:-1]}) != key(request)
    if len(said) > 1 and said[0]["role"] != said[1]["role"]:
        swapped = [said[1], said[0], *said[2:]]
        assert key(request, body={**request.body, "messages": swapped}) != key(request)
