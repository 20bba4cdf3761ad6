"""Group commit: what waits together is written together, and each item gets its own result."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from stratacache.errors import StoreError
from stratacache.stores.sqlite_group import GroupCommit


class Disk:
    """A write that a test holds up; strings that start with ! are refused."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.go = asyncio.Event()
        self.fails = False

    async def write(self, items: Sequence[str]) -> list[str | Exception]:
        await self.go.wait()
        self.groups.append(list(items))
        if self.fails:
            raise StoreError("the disk is gone")
        return [StoreError(item) if item.startswith("!") else item.upper() for item in items]


@pytest.fixture
def disk() -> Disk:
    return Disk()


def grouped(disk: Disk, items: int = 100, weight: int = 1000) -> GroupCommit[str, str]:
    return GroupCommit(disk.write, len, (items, weight))


def start(group: GroupCommit[str, str], names: Sequence[str]) -> list[asyncio.Task[str]]:
    return [asyncio.create_task(group.run(name)) for name in names]


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_what_waits_while_a_write_is_under_way_goes_together(disk: Disk) -> None:
    group = grouped(disk)
    first = start(group, ["a"])
    await turn()
    rest = start(group, ["b", "c", "d"])
    await turn()
    disk.go.set()
    assert await asyncio.gather(*first, *rest) == ["A", "B", "C", "D"]
    assert disk.groups == [["a"], ["b", "c", "d"]]


async def test_a_group_is_bounded_in_items_and_weight(disk: Disk) -> None:
    group = grouped(disk, items=3, weight=10)
    tasks = start(group, ["a", "b", "c", "d", "e" * 9, "f" * 2, "g" * 50, "h"])
    disk.go.set()
    await asyncio.gather(*tasks)
    assert disk.groups == [["a", "b", "c"], ["d", "e" * 9], ["f" * 2], ["g" * 50], ["h"]]


async def test_one_that_is_refused_is_refused_alone(disk: Disk) -> None:
    tasks = start(grouped(disk), ["a", "!b", "c"])
    disk.go.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [str(result) for result in results] == ["A", "!b", "C"]
    assert isinstance(results[1], StoreError)


async def test_a_write_that_fails_fails_for_its_group_only(disk: Disk) -> None:
    group = grouped(disk)
    disk.go.set()
    disk.fails = True
    results = await asyncio.gather(*start(group, ["a", "b"]), return_exceptions=True)
    assert [str(result) for result in results] == ["the disk is gone"] * 2
    disk.fails = False
    assert await group.run("c") == "C"


async def test_who_gives_up_while_waiting_is_not_written(disk: Disk) -> None:
    group = grouped(disk)
    tasks = start(group, ["a"])
    await turn()
    tasks += start(group, ["b", "c"])
    await turn()
    tasks[0].cancel()  # under way: it completes, and nobody is told
    tasks[1].cancel()
    await turn()
    disk.go.set()
    assert await tasks[2] == "C"
    assert disk.groups == [["a"], ["c"]]


async def test_too_many_waiting_is_an_error(disk: Disk) -> None:
    group = grouped(disk, items=2000, weight=10_000)
    first = start(group, ["a"])
    await turn()
    tasks = start(group, ["b"] * 1024)
    await turn()
    with pytest.raises(StoreError, match="1024 writes are waiting"):
        await group.run("c")
    disk.go.set()
    await asyncio.gather(*first, *tasks)
    await group.settled()
    assert [len(items) for items in disk.groups] == [1, 1024]


async def test_after_a_failure_that_nobody_foresaw_nobody_waits(disk: Disk) -> None:
    async def broken(items: Sequence[str]) -> list[str | Exception]:
        raise ZeroDivisionError

    group: GroupCommit[str, str] = GroupCommit(broken, len, (10, 10))
    results = await asyncio.gather(*start(group, ["a", "b"]), return_exceptions=True)
    assert [str(result) for result in results] == ["the write was broken off"] * 2
