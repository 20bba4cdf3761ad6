"""The KV salt: stable for one tenant, of no use to another, and never the caller's own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stratacache.policy.salt import scope_salt, tenant_salt
from stratacache.types import Scope

SECRET = b"s" * 32


def test_one_tenant_has_one_salt_in_every_process() -> None:
    assert tenant_salt(SECRET, "acme", None) == "j2PshdjRuQCR9-gz6m3Tydnx0WjmNGbHM6U3iPWJcss"


def test_another_secret_gives_other_salts() -> None:
    assert tenant_salt(SECRET, "acme", None) != tenant_salt(b"t" * 32, "acme", None)


@given(st.tuples(st.text(), st.text()), st.tuples(st.text(), st.text()))
def test_no_caller_reaches_another_tenants_salt(one: tuple[str, str], other: tuple[str, str]) -> None:
    same = tenant_salt(SECRET, one[0], one[1]) == tenant_salt(SECRET, other[0], other[1])
    assert same == (one == other)


def test_a_caller_divides_its_own_tenant_only() -> None:
    plain = tenant_salt(SECRET, "acme", None)
    divided = tenant_salt(SECRET, "acme", "team-1")
    assert divided not in (plain, tenant_salt(SECRET, "other", "team-1"))
    assert tenant_salt(SECRET, "other", plain) != plain
    assert tenant_salt(SECRET, "acme", "") == plain


def test_the_salt_is_short_ascii_and_shows_nothing() -> None:
    salt = tenant_salt(SECRET, "acme", "team\ud800")
    assert len(salt) == 43
    assert salt.isascii()
    assert "acme" not in salt


def test_forwarded_credentials_share_nothing() -> None:
    mine, yours = Scope(credential="a" * 32), Scope(credential="b" * 32)
    salts = {scope_salt(SECRET, scope, None) for scope in (mine, yours, Scope(), Scope(tenant="acme"))}
    assert len(salts) == 4
    assert scope_salt(SECRET, Scope(tenant="acme", namespace="n"), None) == tenant_salt(SECRET, "acme", None)
