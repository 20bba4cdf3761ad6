"""From bytes to a request: headers that count, the memo and its bounds, scopes that callers cannot widen."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.harness import ENVIRON, question, settings_from

from stratacache.errors import RequestError
from stratacache.gateway.auth import Authenticator
from stratacache.gateway.prepare import LONG_BODY, Preparer, join_headers
from stratacache.upstream.router import Router
from stratacache.wiring import System

KEY = "sha256:" + hashlib.sha256(b"key").hexdigest()


def preparer(auth: bool = False, own_key: bool = False, **bounds: Any) -> Preparer:
    upstream = {"name": "u", "kind": "openai", "base_url": "http://h/v1", "models": ["m", "gpt-*"]}
    if own_key:
        upstream["api_key_env"] = "FAKE_KEY"
    keys = [{"key_hash": KEY, "tenant": "acme", "namespace": "fixed"}]
    settings = settings_from(
        {
            "store": "memory://",
            "upstreams": [upstream],
            "aliases": {"fast": "m"},
            **({"auth": {"keys": keys}} if auth else {}),
        }
    )
    system = System(settings, ENVIRON)
    router = Router(settings.upstreams, settings.aliases)
    return Preparer(
        Authenticator(settings.auth), router, system.upstreams, system.policy, settings.scenes, **bounds
    )


@pytest.fixture
async def open_preparer() -> AsyncIterator[Preparer]:
    made = preparer()
    yield made
    made.check()
    made.close()


def body(text: str = "Hi", **fields: Any) -> bytes:
    return msgspec.json.encode({**question(text), "model": "m", **fields})


def test_repeated_headers_are_joined_in_order() -> None:
    joined = join_headers([(b"cache-control", b"no-cache"), (b"x", b"\xff"), (b"cache-control", b"no-store")])
    assert joined == {"cache-control": "no-cache, no-store", "x": "\xff"}


async def test_the_alias_is_resolved_and_the_wire_model_kept(open_preparer: Preparer) -> None:
    request = (await open_preparer.prepare([], body(model="fast", stream=True))).request
    assert (request.model, request.resolved_model, request.upstream) == ("fast", "m", "u")
    assert request.stream
    assert not request.include_usage


async def test_the_same_bytes_and_headers_are_prepared_once(open_preparer: Preparer) -> None:
    headers = [(b"x-strata-scene", b"default"), (b"accept", b"*/*")]
    first = await open_preparer.prepare(headers, body())
    again = await open_preparer.prepare([(b"accept", b"text/html"), headers[0]], body())
    assert again is first
    other = await open_preparer.prepare([(b"x-strata-namespace", b"n")], body())
    assert other.key != first.key


async def test_refusals_are_not_remembered(open_preparer: Preparer) -> None:
    for _ in range(2):
        with pytest.raises(RequestError):
            await open_preparer.prepare([], b"{")


async def test_equal_long_bodies_at_once_are_counted_once(open_preparer: Preparer) -> None:
    long = body("x" * LONG_BODY)
    got = await asyncio.gather(*(open_preparer.prepare([], long) for _ in range(4)))
    assert len({prepared.key for prepared in got}) == 1
    open_preparer.check()


async def test_the_memo_stays_within_its_bytes_whatever_fills_it() -> None:
    small = preparer(memo_entries=500, memo_bytes=1 << 16)
    for number in range(100):
        await small.prepare([(b"openai-organization", b"o" * 2000 + b"%d" % number)], body())
        await small.prepare([], body("y" * number))
        small.check()
    held = sum(len(b) + sum(len(v) for _, v in headers) for _, b, headers in small._memo)
    assert held <= 1 << 16
    small.close()


async def test_a_credential_travels_and_is_in_the_scope_only_where_the_upstream_has_no_key() -> None:
    headers = [(b"authorization", b"Bearer sk-mine")]
    own, forwarding, keyed = preparer(own_key=True), preparer(), preparer(auth=True)
    assert (await own.prepare(headers, body())).request.credential == ""
    request = (await forwarding.prepare(headers, body())).request
    assert request.credential == "Bearer sk-mine"
    assert "sk-mine" not in repr(request)
    assert b"sk-mine" not in (await forwarding.prepare(headers, body())).key.form
    request = (await keyed.prepare([(b"authorization", b"Bearer key")], body())).request
    assert (request.credential, request.scope.credential) == ("", "")
    for made in (own, forwarding, keyed):
        made.close()


async def test_what_the_key_fixed_stands() -> None:
    keyed = preparer(auth=True)
    headers = [
        (b"authorization", b"Bearer key"),
        (b"x-strata-namespace", b"mine"),
        (b"x-strata-profile", b"p"),
    ]
    scope = (await keyed.prepare(headers, body())).request.scope
    assert (scope.tenant, scope.namespace, scope.profile) == ("acme", "fixed", "p")
    keyed.close()
