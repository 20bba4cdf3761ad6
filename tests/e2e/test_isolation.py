"""No answer crosses tenant, credential, namespace, profile, model, system prompt, tools or parameters."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.fakes.upstream import FakeUpstream, Reply
from tests.harness import Gateway, question, running_gateway


def key_hash(key: str) -> str:
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


@pytest.fixture
async def fake() -> AsyncIterator[FakeUpstream]:
    """Every call gets an answer of its own, so a shared one shows."""
    numbers = itertools.count()
    async with FakeUpstream() as server:
        server.responder = lambda call: Reply(text=f"Answer {next(numbers)}.")
        yield server


@pytest.fixture
async def keyed(fake: FakeUpstream) -> AsyncIterator[Gateway]:
    keys = [
        {"key_hash": key_hash("key-a"), "tenant": "a"},
        {"key_hash": key_hash("key-a2"), "tenant": "a"},
        {"key_hash": key_hash("key-b"), "tenant": "b"},
        {"key_hash": key_hash("key-gold"), "tenant": "a", "profile": "gold"},
        {"key_hash": key_hash("key-admin"), "rights": ["admin"]},
    ]
    async with running_gateway(fake, {"auth": {"keys": keys}}) as running:
        yield running


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def test_tenants_share_nothing_and_keys_of_one_tenant_share(fake: FakeUpstream, keyed: Gateway) -> None:
    for key in ("key-a", "key-b", "key-gold"):
        _, headers, _ = await keyed.ask(question(), bearer(key))
        assert headers["x-strata-cache"] == "miss"
        await keyed.stored()
    _, headers, body = await keyed.ask(question(), bearer("key-a2"))
    assert headers["x-strata-cache"] == "hit"
    assert body["choices"][0]["message"]["content"] == "Answer 0."


async def test_our_keys_never_reach_the_upstream(fake: FakeUpstream, keyed: Gateway) -> None:
    await keyed.ask(question(), bearer("key-a"))
    async with keyed.http.get(f"{keyed.base_url}/batches", headers=bearer("key-a")) as response:
        assert response.status == 200
    for call in fake.calls:
        assert call.headers["authorization"] == "Bearer sk-upstream-secret"


async def test_a_model_list_does_not_carry_our_keys_upstream(fake: FakeUpstream) -> None:
    upstream = {"name": "fake", "kind": "openai", "base_url": fake.base_url, "models": ["fake-*"]}
    auth = {"keys": [{"key_hash": key_hash("key-a")}]}
    async with running_gateway(fake, {"upstreams": [upstream], "auth": auth}) as gateway:
        async with gateway.http.get(f"{gateway.base_url}/models", headers=bearer("key-a")) as response:
            assert [model["id"] for model in (await response.json())["data"]] == ["fake-model"]
        await gateway.ask(question(), bearer("key-a"))
    assert len(fake.calls) == 2
    assert not any("authorization" in call.headers for call in fake.calls)


@pytest.mark.parametrize(
    ("headers", "path", "status", "code"),
    [
        ({}, "/v1/models", 401, "missing_api_key"),
        (bearer("wrong"), "/v1/models", 401, "invalid_api_key"),
        (bearer("key-admin"), "/v1/models", 403, "missing_right"),
        (bearer("key-a"), "/admin/stats", 403, "missing_right"),
        (bearer("key-a"), "/metrics", 403, "missing_right"),
    ],
)
async def test_refused_callers(
    keyed: Gateway, headers: dict[str, str], path: str, status: int, code: str
) -> None:
    async with keyed.http.get(keyed.root + path, headers=headers) as response:
        assert response.status == status
        assert (await response.json())["error"]["code"] == code


async def test_callers_with_credentials_of_their_own_share_nothing(fake: FakeUpstream) -> None:
    upstream = {"name": "fake", "kind": "openai", "base_url": fake.base_url, "models": ["fake-model"]}
    async with running_gateway(fake, {"upstreams": [upstream]}) as gateway:
        for credential in ("Bearer sk-one", "Bearer sk-two", "Basic abc", "Basic abd"):
            _, headers, _ = await gateway.ask(question(), {"authorization": credential})
            assert headers["x-strata-cache"] == "miss"
            assert fake.calls[-1].headers["authorization"] == credential
            await gateway.stored()
        _, headers, _ = await gateway.ask(question(), {"authorization": "Bearer sk-one"})
        assert headers["x-strata-cache"] == "hit"
        async with gateway.http.get(gateway.root + "/metrics") as response:
            assert "sk-one" not in await response.text()


@pytest.mark.parametrize(
    ("change", "headers"),
    [
        ({"messages": [{"role": "system", "content": "Be brief."}, *question()["messages"]]}, {}),
        ({"temperature": 0.5}, {}),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}, {}),
        ({"response_format": {"type": "json_object"}}, {}),
        ({"seed": 7}, {}),
        ({"a_field_nobody_knows_yet": 1}, {}),
        (
            {
                "messages": [
                    *question()["messages"],
                    {"role": "assistant", "content": "x"},
                    *question()["messages"],
                ]
            },
            {},
        ),
        ({}, {"x-strata-namespace": "other"}),
        ({}, {"x-strata-profile": "young"}),
        ({}, {"openai-organization": "org-2"}),
    ],
    ids=lambda value: next(iter(value), "none"),
)
async def test_whatever_may_change_the_answer_is_in_the_key(
    fake: FakeUpstream, change: dict[str, Any], headers: dict[str, str]
) -> None:
    async with running_gateway(fake) as gateway:
        await gateway.ask(question())
        await gateway.stored()
        _, got, _ = await gateway.ask({**question(), **change}, headers)
        assert got["x-strata-cache"] == "miss"


@pytest.mark.parametrize(
    "change",
    [{"user": "u2"}, {"metadata": {"a": "b"}}, {"stream": True}, {"stream": False}],
)
async def test_what_cannot_change_the_answer_is_not_in_the_key(
    fake: FakeUpstream, change: dict[str, Any]
) -> None:
    async with running_gateway(fake) as gateway:
        await gateway.ask(question())
        await gateway.stored()
        assert (await gateway.ask({**question(), **change}))[1]["x-strata-cache"] == "hit"


@pytest.mark.parametrize("header", [{"origin": "https://evil.example"}, {"host": "evil.example"}])
async def test_without_keys_web_pages_of_other_sites_are_refused(
    fake: FakeUpstream, header: dict[str, str]
) -> None:
    async with running_gateway(fake) as gateway:
        status, _, body = await gateway.ask(question(), header)
        assert (status, body["error"]["code"]) == (403, "foreign_origin")
        assert (await gateway.ask(question(), {"origin": "http://localhost:3000"}))[0] == 200
