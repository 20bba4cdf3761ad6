"""What the conversions between dialects share: refusing by name what cannot be carried, and reading data URLs."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from stratacache.errors import RequestError
from stratacache.types import JSON

_DATA_URL: Final = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,", re.ASCII)


def cannot(path: str, why: str) -> RequestError:
    """The field at ``path`` has no counterpart in the upstream's dialect: status 400, code ``unsupported_field``."""
    return RequestError(
        f"'{path}' cannot be carried to this model's API: {why}", param=path, code="unsupported_field"
    )


def refuse_others(value: Mapping[str, JSON], known: Collection[str], path: str, where: str) -> None:
    """Refuse the first member of ``value`` that is neither known nor null."""
    for name, member in value.items():
        if member is not None and name not in known:
            raise cannot(f"{path}.{name}" if path else name, f"{where} has no such field.")


def data_url(url: str) -> tuple[str, str] | None:
    """(media type, base64) of a data URL, None when ``url`` is none."""
    found = _DATA_URL.match(url)
    return None if found is None else (found[1], url[found.end() :])
