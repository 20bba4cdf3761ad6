"""Hides secrets in settings and URLs before anything is printed or logged."""

from __future__ import annotations

import re
from typing import Any

import msgspec

HIDDEN = "****"
_SECRET_NAME = re.compile(r"(?:^|_)(?:key|secret|password|token)(?:_|$)", re.IGNORECASE)
# These hold the place of a secret, which an operator needs to see, and never the secret.
_PLACES = frozenset({"api_key_env", "api_key_file"})
_QUERY_PASSWORD = re.compile(r"(?P<name>[?&][a-z_]*password=)[^&\s]*")
_USER_INFO = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)\S*@")


def is_secret(name: str) -> bool:
    """True for a key whose value must not be shown."""
    return name not in _PLACES and _SECRET_NAME.search(name) is not None


def mask_url(text: str) -> str:
    """``https://user:secret@host/v1?password=x`` → ``https://****@host/v1?password=****``."""
    return _QUERY_PASSWORD.sub(rf"\g<name>{HIDDEN}", _USER_INFO.sub(rf"\g<scheme>{HIDDEN}@", text))


def masked(settings: msgspec.Struct) -> dict[str, Any]:
    """The struct as plain values; text under a secret name becomes ``****``, URLs lose their user-info."""
    plain: dict[str, Any] = _mask(msgspec.to_builtins(settings), "")
    return plain


def _mask(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: _mask(item, key) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_mask(item, name) for item in value]
    if not isinstance(value, str):
        return value
    return HIDDEN if is_secret(name) and value else mask_url(value)
