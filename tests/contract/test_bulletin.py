"""What every bulletin promises: a copy is never trusted after an invalidation that returned."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from tests.clock import FakeClock
from tests.contract.backends import Kind, kinds

from stratacache.ports import Bulletin
from stratacache.stores import Backend
from stratacache.types import Invalidated

pytestmark = kinds(bulletin=True)
DEADLINE = 10.0  # seconds to wait for news before a test fails


class Ear:
    """Notes what a bulletin tells."""

    def __init__(self, bulletin: Bulletin) -> None:
        self.bulletin = bulletin
        self.heard: list[tuple[Invalidated | None, list[bytes]]] = []

    def hear(self, what: Invalidated | None, digests: Sequence[bytes]) -> None:
        self.heard.append((what, list(digests)))

    def knows(self, told: Invalidated) -> bool:
        """Whether this invalidation, or a loss, was heard of: either way no copy that it hit answers."""
        return any(what is None or set(told.versions) <= set(what.versions) for what, _ in self.heard)

    async def until_current(self) -> None:
        async with asyncio.timeout(DEADLINE):
            while not self.bulletin.current():  # noqa: ASYNC110 - current() is what makes it go on
                await asyncio.sleep(0.005)


def digest_of(name: object) -> bytes:
    return hashlib.sha256(str(name).encode()).digest()[:16]


@pytest.fixture
async def one(kind: Kind, tmp_path: Path) -> AsyncIterator[Backend]:
    async with kind.open(FakeClock(), 200_000, tmp_path) as backend:
        yield backend


@pytest.fixture
async def other(one: Backend, kind: Kind, tmp_path: Path) -> AsyncIterator[Backend]:
    async with kind.open(FakeClock(), 200_000, tmp_path) as backend:
        yield backend


@pytest.fixture
async def ear(other: Backend) -> Ear:
    """Hears for ``other`` what ``one`` invalidates."""
    assert other.bulletin is not None
    ear = Ear(other.bulletin)
    await other.bulletin.start(ear.hear)
    await ear.until_current()
    ear.heard.clear()
    return ear


async def test_before_the_start_nothing_is_current(other: Backend) -> None:
    assert other.bulletin is not None
    assert not other.bulletin.current()


async def test_what_another_instance_invalidates_is_heard(one: Backend, ear: Ear) -> None:
    told = await one.store.invalidate(["a", "价格"], [digest_of(1), digest_of(2)])
    assert not ear.bulletin.current() or ear.knows(told), "from the moment that it returned"
    await ear.until_current()
    assert ear.knows(told)
    for what, digests in ear.heard:
        assert what is not None, "nothing was lost"
        if what.versions:
            assert what.versions == told.versions
            assert digests == [digest_of(1), digest_of(2)]


async def test_news_come_without_being_asked_for(one: Backend, ear: Ear) -> None:
    told = await one.store.invalidate(["a"])
    async with asyncio.timeout(DEADLINE):
        while not ear.knows(told):  # noqa: ASYNC110 - it is another instance that tells
            await asyncio.sleep(0.005)


async def test_digests_alone_are_heard(one: Backend, ear: Ear) -> None:
    await one.store.invalidate([], [digest_of(1)])
    await ear.until_current()
    assert any(digest_of(1) in digests for _, digests in ear.heard)


async def test_ones_own_invalidations_are_heard_or_known(other: Backend, ear: Ear) -> None:
    told = await other.store.invalidate(["a"])
    await ear.until_current()
    assert ear.knows(told)


async def test_a_dry_run_is_no_news(one: Backend, ear: Ear) -> None:
    await one.store.invalidate(["a"], [digest_of(1)], dry_run=True)
    await ear.until_current()
    assert ear.heard == []


async def test_news_come_in_order(one: Backend, ear: Ear) -> None:
    told = [await one.store.invalidate(["a"]) for _ in range(20)]
    await ear.until_current()
    heard = [what.versions for what, _ in ear.heard if what is not None]
    assert sorted(heard) == heard
    assert heard[-1] == told[-1].versions


async def test_never_current_before_it_was_heard(one: Backend, ear: Ear) -> None:
    """Invalidations and looks interleaved as they come, over many rounds."""

    async def invalidate(tag: str) -> None:
        for _ in range(15):
            told = await one.store.invalidate([tag])
            assert not ear.bulletin.current() or ear.knows(told)
            await asyncio.sleep(0)

    await asyncio.gather(*(invalidate(tag) for tag in "abc"))
    await ear.until_current()


async def test_after_many_unheard_invalidations_something_is_told(one: Backend, ear: Ear) -> None:
    for _ in range(30):
        await one.store.invalidate([f"t{n}" for n in range(40)])
    told = await one.store.invalidate(["last"])
    await ear.until_current()
    assert ear.knows(told)


async def test_after_close_nothing_is_current_or_heard(one: Backend, ear: Ear) -> None:
    await ear.bulletin.close()
    await ear.bulletin.close()
    assert not ear.bulletin.current()
    await one.store.invalidate(["a"])
    assert not ear.bulletin.current()
    assert ear.heard == []
