"""What the tests of Redis' faults share: instances on one deployment, entries, and patience."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from tests.contract.backends import close

from stratacache.clock import SystemClock
from stratacache.errors import StoreError
from stratacache.ports import Store
from stratacache.stores import Backend, open_backend
from stratacache.types import Absent, Entry, Versions

T = TypeVar("T")

DIGEST = bytes(range(16))
TAGS = ("*", "prices")


def entry_of(text: str = "answer", versions: Versions = (), *, ttl: float = 600.0) -> Entry:
    now = time.time()
    return Entry(b"form", text.encode(), created_at=now, expires_at=now + ttl, versions=versions)


@contextlib.asynccontextmanager
async def instance(url: str) -> AsyncIterator[Backend]:
    """One gateway's view of the servers at ``url``."""
    backend = open_backend(url, max_bytes=1 << 30, clock=SystemClock())
    try:
        yield backend
    finally:
        await close(backend)


async def stored(store: Store, text: str = "answer", digest: bytes = DIGEST) -> Entry:
    """Ask, miss, and store what was answered."""
    missed = await store.get(digest, TAGS)
    assert isinstance(missed, Absent)
    entry = entry_of(text, missed.versions)
    assert await store.put(digest, entry) == "stored"
    return entry


async def eventually(step: Callable[[], Awaitable[T]], deadline: float = 15.0) -> T:
    """What ``step`` gives as soon as it raises no StoreError.

    Raises:
        StoreError: not within ``deadline`` seconds.
    """
    end = time.monotonic() + deadline
    while True:
        try:
            return await step()
        except StoreError:
            if time.monotonic() > end:
                raise
        await asyncio.sleep(0.02)
