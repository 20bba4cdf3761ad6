"""Turns a caller's credentials into a Scope; the only place where one is made."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from stratacache.errors import RequestError
from stratacache.settings import AuthKey, AuthSettings, is_loopback
from stratacache.types import Right, Scope

LOOPBACK_SCOPE = Scope(rights=frozenset({"chat", "admin"}))
"""Everybody on loopback, when no keys are configured."""


class Authenticator:
    """Knows the configured keys by hash. Without any, every caller is the one tenant on loopback."""

    def __init__(self, settings: AuthSettings | None) -> None:
        self.adopt(settings)

    def adopt(self, settings: AuthSettings | None) -> None:
        """From now on these keys and no others are known."""
        self._scopes: dict[str, tuple[AuthKey, Scope]] | None = None
        if settings is not None:
            self._scopes = {key.key_hash: (key, _scope_of(key)) for key in settings.keys}

    @property
    def open(self) -> bool:
        """True when no keys are configured, so a caller's Authorization is not ours to check."""
        return self._scopes is None

    def identify(self, headers: Mapping[str, str], right: Right) -> Scope:
        """The caller's scope.

        Raises:
            RequestError: 401 for a missing or unknown key, 403 when the key lacks ``right`` or, without keys,
                when a web page of another site is behind the request.
        """
        if self._scopes is None:
            _refuse_foreign_pages(headers)
            return LOOPBACK_SCOPE
        scope = self._known(self._scopes, headers)[1]
        if right not in scope.rights:
            raise RequestError(f"this API key lacks the right {right!r}", status=403, code="missing_right")
        return scope

    def actor(self, headers: Mapping[str, str]) -> str:
        """Who that is, for the record: the tenant and eight digits of the key's hash, or ``loopback``.

        Raises:
            RequestError: as :meth:`identify`.
        """
        if self._scopes is None:
            return "loopback"
        key = self._known(self._scopes, headers)[0]
        return f"{key.tenant}/{key.key_hash.removeprefix('sha256:')[:8]}"

    @staticmethod
    def _known(
        scopes: Mapping[str, tuple[AuthKey, Scope]], headers: Mapping[str, str]
    ) -> tuple[AuthKey, Scope]:
        token = credential_of(headers)
        if not token:
            raise RequestError(
                "no API key; send 'Authorization: Bearer KEY'", status=401, code="missing_api_key"
            )
        # The table is searched by the key's hash, so its timing tells nothing about a key; the hashes are
        # compared in constant time all the same.
        # Latin-1 gives back the bytes that the client sent.
        digest = "sha256:" + hashlib.sha256(token.encode("latin-1", "replace")).hexdigest()
        found = scopes.get(digest)
        if found is None or not hmac.compare_digest(found[0].key_hash, digest):
            raise RequestError("this API key is not known here", status=401, code="invalid_api_key")
        return found


def credential_of(headers: Mapping[str, str]) -> str:
    """The bearer token or ``x-api-key`` value; "" when there is neither."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return headers.get("x-api-key", "").strip()


def credential_digest(authorization: str) -> str:
    """Tells apart callers whose own Authorization value is forwarded upstream; "" when none is."""
    if not authorization:
        return ""
    return hashlib.sha256(b"stratacache credential\0" + authorization.encode()).hexdigest()


def _refuse_foreign_pages(headers: Mapping[str, str]) -> None:
    """Without keys loopback is the only fence, and a browser is inside it: any web page can send requests to
    127.0.0.1, by a plain form post (seen by its Origin) or by a DNS name that it points here (seen by Host)."""
    for name in ("origin", "host"):
        value = headers.get(name)
        if value is None:
            continue
        if not _names_this_machine(value):
            raise RequestError(
                f"{name} {value[:100]!r} is not this machine; configure auth.keys to serve others",
                status=403,
                param=name,
                code="foreign_origin",
            )


@lru_cache(maxsize=64)  # nearly every request has the same one
def _names_this_machine(value: str) -> bool:
    """Whether the host in an Origin or Host value is this machine; False when none is to be found."""
    try:
        return is_loopback(urlsplit(value if "//" in value else f"//{value}").hostname or "")
    except ValueError:
        return False


def _scope_of(key: AuthKey) -> Scope:
    return Scope(
        tenant=key.tenant,
        namespace=key.namespace,
        profile=key.profile,
        rights=frozenset(key.rights),
        principal=key.key_hash.removeprefix("sha256:")[:32],
    )
