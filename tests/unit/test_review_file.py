"""The review queue's file: bounded by stratum, shared, settled once, and back after a restart."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.clock import FakeClock

from stratacache.errors import StoreError
from stratacache.policy.review import STRATA, Item, pair_id, stratum_of_hit, stratum_of_miss
from stratacache.stores import review_file
from stratacache.stores.review_file import ReviewFile

ITEM = Item(
    id=pair_id("acme", "a?", "00" * 16),
    kind="hit",
    stratum="unsure",
    rank=0.9,
    reason="",
    tenant="acme",
    scene="default",
    language="en",
    risk="",
    asked="a?",
    stored="b?",
    entry="00" * 16,
    similarity=0.8,
    probability=0.9,
    guards=("numbers pass: none",),
    at=1.0,
    expires_at=1e12,
)


def item(name: str, **fields: object) -> Item:
    return msgspec.structs.replace(ITEM, id=pair_id("acme", name, ITEM.entry), asked=name, **fields)


@pytest.fixture(params=["file", "memory"])
async def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ReviewFile]:
    opened = ReviewFile(tmp_path / "x.review" if request.param == "file" else None, FakeClock())
    yield opened
    await opened.close()
    await opened.close()


async def test_a_full_stratum_keeps_the_lowest_ranks_and_tells_the_worst(
    shelf: ReviewFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STRATA, "unsure", 2)
    assert await shelf.add(item("a", rank=0.9)) is None
    assert await shelf.add(item("b", rank=0.8)) == 0.9
    assert await shelf.add(item("c", rank=0.7)) == 0.8
    assert await shelf.add(item("other", stratum="random", rank=0.99)) is None
    assert [one.asked for one in await shelf.waiting()] == ["other", "c", "b"]


async def test_what_is_settled_is_not_asked_again(shelf: ReviewFile) -> None:
    await shelf.add(ITEM)
    await shelf.add(ITEM)
    assert await shelf.find(ITEM.id) == ITEM
    assert await shelf.settle(ITEM, "wrong")
    assert not await shelf.settle(ITEM, "right")
    await shelf.add(ITEM)
    assert (await shelf.waiting(), await shelf.find(ITEM.id)) == ([], None)
    assert await shelf.verdicts() == [(ITEM, "wrong")]


async def test_verdicts_are_bounded(shelf: ReviewFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(review_file, "MAX_SETTLED", 3)
    for n in range(5):
        await shelf.add(item(str(n)))
        await shelf.settle(item(str(n)), "skip")
    assert [one.asked for one, _ in await shelf.verdicts()] == ["2", "3", "4"]


async def test_what_has_expired_or_is_dropped_waits_no_more(tmp_path: Path) -> None:
    clock = FakeClock()
    shelf = ReviewFile(None, clock)
    await shelf.add(item("a", expires_at=clock.now() + 5))
    await shelf.add(item("b"))
    await shelf.add(item("c"))
    await shelf.drop([item("c").id, "no such"])
    clock.advance(5)
    assert [one.asked for one in await shelf.waiting()] == ["b"]
    await shelf.close()
    with pytest.raises(StoreError):
        await shelf.waiting()


async def test_two_processes_share_a_file_and_the_next_run_has_it(tmp_path: Path) -> None:
    clock = FakeClock()
    one, two = (ReviewFile(tmp_path / "x.review", clock) for _ in range(2))
    await one.add(ITEM)
    assert await two.find(ITEM.id) == ITEM
    assert await two.settle(ITEM, "right")
    await one.add(item("b"))
    await one.close()
    await two.close()
    again = ReviewFile(tmp_path / "x.review", clock)
    assert [found.asked for found in await again.waiting()] == ["b"]
    assert await again.verdicts() == [(ITEM, "right")]
    assert again.kept
    await again.close()


async def test_a_damaged_file_is_moved_aside(tmp_path: Path) -> None:
    (tmp_path / "x.review").write_bytes(b"torn" * 5000)
    shelf = ReviewFile(tmp_path / "x.review", FakeClock())
    assert await shelf.waiting() == []
    await shelf.close()
    assert len(list(tmp_path.glob("x.review.corrupt-*"))) == 1  # noqa: ASYNC240


def test_strata() -> None:
    drawn = [stratum_of_hit(pair_id("t", str(n), ""), 0.9) for n in range(2000)]
    assert 15 <= sum(name == "random" for name, _ in drawn) <= 75
    assert all(rank == 0.9 for name, rank in drawn if name == "unsure")
    assert len({rank for name, rank in drawn if name == "random"}) > 10
    assert stratum_of_miss(0.8, 0.9) == ("near_miss", -0.8)
    assert stratum_of_miss(None, 0.9) == ("vetoed", -0.9)
