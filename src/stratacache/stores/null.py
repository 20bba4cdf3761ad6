"""The store that keeps nothing: the null implementation of ``ports.Store``."""

from __future__ import annotations

from collections.abc import Sequence

from stratacache.errors import StoreError
from stratacache.types import Absent, Entry, Invalidated, PutResult, StoreStats


class NullStore:
    """Declines every entry. For a gateway whose cache is switched off, and for tests of what happens then."""

    waits = False

    def __init__(self) -> None:
        self._rejections = 0
        self._closed = False

    async def get(self, digest: bytes, tags: Sequence[str] = ()) -> Entry | Absent:
        self._require_open()
        return Absent("not_found", ())

    async def put(self, digest: bytes, entry: Entry) -> PutResult:
        self._require_open()
        self._rejections += 1
        return "declined"

    async def invalidate(
        self, tags: Sequence[str], digests: Sequence[bytes] = (), *, dry_run: bool = False
    ) -> Invalidated:
        self._require_open()
        return Invalidated(0, ())

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
