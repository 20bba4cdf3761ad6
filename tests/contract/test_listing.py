"""What every store that can name its entries promises of that; Memcached cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.clock import FakeClock
from tests.contract.backends import KINDS, Kind, kinds
from tests.contract.test_store import MAX_BYTES, digest_of, entry_of, versions_of

from stratacache.ports import Listing
from stratacache.types import Entry


async def listed(listing: Listing, count: int = 3, *, dead: bool = False) -> dict[bytes, Entry]:
    """All entries, in pages of ``count``."""
    found: dict[bytes, Entry] = {}
    after: bytes | None = b""
    while after is not None:
        page = await listing.scan(after, count, dead=dead)
        found.update(page.entries)
        after = page.after
    return found


@kinds(lists=True)
async def test_all_that_may_answer_and_nothing_else(kind: Kind, tmp_path: Path) -> None:
    clock = FakeClock()
    async with kind.open(clock, MAX_BYTES, tmp_path) as backend:
        store, listing = backend.store, backend.listing
        assert listing is not None
        assert await listed(listing) == {}
        kept = {}
        for number in range(20):
            # In a cluster each part has versions of its own until they are asked for: as a request does, for its entry.
            tag = f"kb:{number % 4}"
            versions = await versions_of(store, "*", tag)
            ttl = 10.0 if number % 5 == 0 else 600.0
            entry = entry_of(clock, f"answer {number}", ttl=ttl, versions=versions)
            assert await store.put(digest_of(number), entry) == "stored"
            kept[digest_of(number)] = entry
        assert await listed(listing) == kept
        assert await listed(listing, 100) == kept
        await store.invalidate(("kb:1",), (digest_of(2),))
        clock.advance(20)
        left = {
            digest_of(number): kept[digest_of(number)]
            for number in range(20)
            if number % 5 and number % 4 != 1 and number != 2
        }
        assert await listed(listing) == left
        await store.invalidate(("*",))
        assert await listed(listing) == {}
        # What is still kept, though it may not answer; a store may have given up some of it by itself.
        assert set(await listed(listing, dead=True)) <= set(kept)
        assert await listed(listing, dead=True)
        await store.check()


@kinds(lists=False)
async def test_a_store_that_cannot_says_so(kind: Kind, tmp_path: Path) -> None:
    async with kind.open(FakeClock(), MAX_BYTES, tmp_path) as backend:
        assert backend.listing is None


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.name in ("memory", "sqlite", "rocksdb")])
async def test_a_page_is_bounded_and_what_is_added_meanwhile_harms_nothing(
    kind: Kind, tmp_path: Path
) -> None:
    clock = FakeClock()
    async with kind.open(clock, MAX_BYTES, tmp_path) as backend:
        assert backend.listing is not None
        for number in range(10):
            await backend.store.put(digest_of(number), entry_of(clock, f"answer {number}"))
        first = await backend.listing.scan(b"", 4)
        assert len(first.entries) == 4
        for number in range(10, 15):
            await backend.store.put(digest_of(number), entry_of(clock, f"answer {number}"))
        found = dict(first.entries)
        after = first.after
        while after is not None:
            page = await backend.listing.scan(after, 4)
            assert not set(found) & {digest for digest, _ in page.entries}
            found.update(page.entries)
            after = page.after
        assert {digest_of(number) for number in range(10)} <= set(found)
