"""The salt that keeps tenants' prefixes apart in an engine's KV cache, where a fast first token tells what is there."""

from __future__ import annotations

import base64
import hashlib
import hmac

from stratacache.types import Scope

_USE = b"stratacache kv salt 1"
_KEY_USE = b"stratacache prompt cache key 1"


def tenant_salt(secret: bytes, tenant: str, callers: str | None) -> str:
    """43 characters of base64url: HMAC-SHA256 under the server's ``secret`` of ``tenant`` and the ``callers`` own salt.

    What a caller sends only divides its tenant's cache further: no choice of it gives another tenant's salt, and
    whoever does not know ``secret`` can compute none. None and "" both mean that the caller sent none.
    """
    return _derived(secret, _USE, tenant.encode(), (callers or "").encode("utf-8", "surrogatepass"))


def cache_key(secret: bytes, prefix: bytes, machine: int) -> str:
    """43 characters of base64url that a provider routes by: they tell whoever lacks ``secret`` nothing of the prefix.

    ``prefix`` stands for tenant and prompt, ``machine`` for one of several that share the prefix.
    """
    return _derived(secret, _KEY_USE, prefix, machine.to_bytes(4, "big"))


def _derived(secret: bytes, *parts: bytes) -> str:
    # Lengths come first, or ("ab", "c") and ("a", "bc") would be one text.
    message = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    digest = hmac.new(secret, message, hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")


def scope_salt(secret: bytes, scope: Scope, callers: str | None) -> str:
    """The salt of whoever asks: callers whose own credentials are forwarded are no tenant, and share nothing either."""
    # No tenant's name has a NUL.
    owner = f"{scope.tenant}\0{scope.credential}" if scope.credential else scope.tenant
    return tenant_salt(secret, owner, callers)
