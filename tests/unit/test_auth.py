"""Who calls: keys by hash, rights, and the fence around a gateway without keys."""

from __future__ import annotations

import hashlib

import pytest

from stratacache.errors import RequestError
from stratacache.gateway.auth import (
    LOOPBACK_SCOPE,
    Authenticator,
    credential_digest,
    credential_of,
)
from stratacache.settings.tree import AuthKey, AuthSettings


def hashed(key: bytes) -> str:
    return "sha256:" + hashlib.sha256(key).hexdigest()


KEYED = Authenticator(
    AuthSettings(
        keys=(
            AuthKey(key_hash=hashed(b"chat-key"), tenant="acme", profile="gold", namespace="n"),
            AuthKey(key_hash=hashed(b"admin-key"), tenant="ops", rights=("admin",)),
            AuthKey(key_hash=hashed("ключ".encode()), tenant="ru"),
        )
    )
)
OPEN = Authenticator(None)


def refused(authenticator: Authenticator, headers: dict[str, str]) -> tuple[int, str]:
    with pytest.raises(RequestError) as caught:
        authenticator.identify(headers, "chat")
    assert "chat-key" not in str(caught.value)
    return caught.value.status, caught.value.code


def test_a_key_makes_the_scope_that_its_owner_configured() -> None:
    scope = KEYED.identify({"authorization": "Bearer chat-key"}, "chat")
    assert (scope.tenant, scope.profile, scope.namespace, scope.rights) == ("acme", "gold", "n", {"chat"})
    assert KEYED.identify({"authorization": "bearer  chat-key "}, "chat") == scope
    assert KEYED.identify({"x-api-key": "chat-key"}, "chat") == scope
    assert not KEYED.open


def test_a_key_that_is_not_ascii_is_taken_to_the_byte() -> None:
    on_the_wire = "ключ".encode().decode("latin-1")  # as servers hand headers on
    assert KEYED.identify({"authorization": f"Bearer {on_the_wire}"}, "chat").tenant == "ru"


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({}, (401, "missing_api_key")),
        ({"authorization": "Bearer "}, (401, "missing_api_key")),
        ({"authorization": "Basic chat-key"}, (401, "missing_api_key")),
        ({"authorization": "Bearer wrong"}, (401, "invalid_api_key")),
        ({"authorization": "Bearer chat-key, Bearer admin-key"}, (401, "invalid_api_key")),
        ({"authorization": "Bearer " + hashed(b"chat-key")}, (401, "invalid_api_key")),
        ({"authorization": "Bearer \xff\x01"}, (401, "invalid_api_key")),
        ({"authorization": "Bearer admin-key"}, (403, "missing_right")),
    ],
)
def test_refusals(headers: dict[str, str], told: tuple[int, str]) -> None:
    assert refused(KEYED, headers) == told


def test_a_key_outweighs_another_header() -> None:
    scope = KEYED.identify({"authorization": "Bearer chat-key", "x-api-key": "admin-key"}, "chat")
    assert scope.tenant == "acme"


@pytest.mark.parametrize("host", ["localhost", "localhost:8900", "127.0.0.1:1", "127.8.8.8", "[::1]:8900"])
def test_without_keys_loopback_is_everything(host: str) -> None:
    for headers in ({}, {"host": host}, {"host": host, "origin": f"http://{host}"}):
        assert OPEN.identify(headers, "admin") == LOOPBACK_SCOPE
    assert OPEN.open


@pytest.mark.parametrize(
    "value",
    ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", "[::1", "localhost@evil.example", "", "null",
     "localhost, evil.example", "http://[", "127.0.0.1\xff"],
)  # fmt: skip
@pytest.mark.parametrize("header", ["host", "origin"])
def test_without_keys_other_names_are_refused(header: str, value: str) -> None:
    assert refused(OPEN, {header: value}) == (403, "foreign_origin")


def test_the_credential_is_read_from_either_header() -> None:
    assert credential_of({"authorization": "Bearer a"}) == "a"
    assert credential_of({"authorization": "Digest x", "x-api-key": "b"}) == "b"
    assert credential_of({}) == ""


def test_digests_tell_credentials_apart_and_do_not_show_them() -> None:
    values = ["", "Bearer a", "Bearer b", "bearer a", "Bearer a "]
    digests = [credential_digest(value) for value in values]
    assert digests[0] == ""
    assert len(set(digests)) == len(values)
    assert credential_digest("Bearer a") != hashlib.sha256(b"Bearer a").hexdigest()


def test_the_record_names_who_did_it_without_the_key() -> None:
    assert OPEN.actor({}) == "loopback"
    assert KEYED.actor({"authorization": "Bearer admin-key"}) == f"ops/{hashed(b'admin-key')[7:15]}"
    with pytest.raises(RequestError):
        KEYED.actor({})
