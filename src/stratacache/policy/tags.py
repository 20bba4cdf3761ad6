"""The tags that an entry carries: what an administrator can invalidate it by."""

from __future__ import annotations

import re

from stratacache.types import Key, Request

EVERYTHING = "*"
_WORDS = re.compile(r"(?:tenant:)?[\w.:/-]{1,64}", re.ASCII)
_MODEL = re.compile(r"model:\S{1,256}")


def tenant_tag(tenant: str) -> str:
    return f"tenant:{tenant}"


def model_tag(model: str) -> str:
    return f"model:{model}"


def bucket_tag(digest: bytes) -> str:
    """One of 4,096 tags that the entries are spread over: invalidating a single entry bumps its bucket.

    That fences the answers for it which are still in flight, on every instance, without a version per entry; the price
    is that one in 4,096 of the other entries misses once.
    """
    return f"bucket:{digest.hex()[:3]}"


def dependencies(request: Request, key: Key) -> tuple[str, ...]:
    """All tags of an answer to ``request``: the caller's own, its tenant's, its model's, and those that all have."""
    return (
        EVERYTHING,
        bucket_tag(key.digest),
        model_tag(request.resolved_model),
        tenant_tag(request.scope.tenant),
        *request.control.tags,
    )


def is_tag(text: str) -> bool:
    """Whether an entry could carry it: a caller's own tag or one of those above, ``EVERYTHING`` excepted."""
    return _WORDS.fullmatch(text) is not None or (_MODEL.fullmatch(text) is not None and text.isprintable())
