"""The store that keeps nothing: the null implementation of ``ports.Store``."""

from __future__ import annotations

from collections.abc import Sequence

from stratacache.errors import StoreError
from stratacache.types import Entry, StoreStats


class NullStore:
    """Declines every entry. For a gateway whose cache is switched off, and for tests of what happens then."""

    waits = False

    def __init__(self) -> None:
        self._rejections = 0
        self._closed = False

    async def get(self, digest: bytes) -> Entry | None:
        self._require_open()
        return None

    async def put(self, digest: bytes, entry: Entry) -> bool:
        self._require_open()
        self._rejections += 1
        return False

    async def delete(self, digests: Sequence[bytes]) -> int:
        self._require_open()
        return 0

    async def stats(self) -> StoreStats:
        self._require_open()
        return StoreStats(entries=0, bytes=0, rejections=self._rejections)

    async def check(self) -> None:
        self._require_open()

    async def close(self) -> None:
        self._closed = True

    def _require_open(self) -> None:
        if self._closed:
            raise StoreError("the null store is closed")
