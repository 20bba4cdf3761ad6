"""The audit log: private, durable, bounded, shared by processes, and readable after a crash in the middle of a line."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stratacache.consistency import audit as module
from stratacache.consistency.audit import AuditLog, Record, moment


def record(actor: str = "loopback", **fields: Any) -> Record:
    made: dict[str, Any] = {
        "time": moment(0.5), "outcome": "done", "dry_run": False, "selection": {"all": True}, "affected": 3,
        "versions": {"*": 7},
    }  # fmt: skip
    return Record(actor=actor, **{**made, **fields})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "audit.jsonl"


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()


def size(path: Path) -> int:
    return path.stat().st_size


async def actors(log: AuditLog, limit: int = 1000) -> list[str]:
    return [line["actor"] for line in await log.last(limit)]


def test_times_are_for_people() -> None:
    assert moment(1.5) == "1970-01-01T00:00:01.500Z"


async def test_lines_come_back_newest_first_and_no_more_than_asked(path: Path) -> None:
    log = AuditLog(path)
    assert await log.last(5) == []
    for number in range(5):
        await log.write(record(str(number)))
    assert await actors(log) == ["4", "3", "2", "1", "0"]
    assert await actors(log, 2) == ["4", "3"]
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert msgspec.json.decode(lines(path)[0]) == {
        "time": "1970-01-01T00:00:00.500Z", "actor": "0", "outcome": "done", "dry_run": False,
        "selection": {"all": True}, "affected": 3, "versions": {"*": 7},
    }  # fmt: skip
    log.close()


async def test_a_line_cut_short_is_skipped_and_spoils_nothing(path: Path) -> None:
    log = AuditLog(path)
    await log.write(record("a"))
    with path.open("ab") as file:
        file.write(b'{"time": "1970')
    await log.write(record("b"))
    assert await actors(log) == ["b", "a"]
    with path.open("ab") as file:
        file.write(b'\n[1]\n\xff\n{"time"')
    assert await actors(log) == ["b", "a"]
    log.close()


async def test_the_file_is_bounded_and_the_one_before_is_read_too(path: Path) -> None:
    log = AuditLog(path, max_bytes=1000)
    for number in range(12):
        await log.write(record(str(number)))
    older = path.with_name("audit.jsonl.1")
    assert size(path) <= 1000
    assert size(older) <= 1000
    kept = await actors(log)
    assert kept == [str(number) for number in range(11, 11 - len(kept), -1)]
    in_newest = len(lines(path))
    assert len(kept) == in_newest + len(lines(older))
    assert await actors(log, in_newest + 1) == kept[: in_newest + 1]
    log.close()


async def test_a_record_above_the_bound_is_kept_whole(path: Path) -> None:
    log = AuditLog(path, max_bytes=100)
    await log.write(record("a", selection={"tags": ["x" * 64] * 5}))
    await log.write(record("b"))
    assert await actors(log) == ["b", "a"]
    log.close()


async def test_a_full_disk_leaves_no_half_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = AuditLog(path)
    await log.write(record("a"))
    real = os.write

    def full(file: int, data: Any) -> int:
        if len(data) > 20:
            return real(file, bytes(data[:20]))
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(module.os, "write", full)
    with pytest.raises(OSError, match="no space"):
        await log.write(record("b" * 10))
    monkeypatch.undo()
    assert lines(path)[1:] == []
    await log.write(record("c"))
    assert await actors(log) == ["c", "a"]
    log.close()


_WRITER = """
import asyncio, sys
from pathlib import Path
from stratacache.consistency.audit import AuditLog, Record

async def main():
    log = AuditLog(Path(sys.argv[1]), max_bytes=20_000)
    for number in range(100):
        await log.write(Record(time="t", actor=f"{sys.argv[2]}-{number}", outcome="done", dry_run=False,
                               selection={"tags": ["x" * 50]}, affected=None, versions={}))
    log.close()

asyncio.run(main())
"""


def test_processes_share_the_file_and_lose_no_line(path: Path) -> None:
    """More than one file holds and less than two: each process meets the rotation, mostly the other's."""
    writers = [subprocess.Popen([sys.executable, "-c", _WRITER, str(path), name]) for name in ("p", "q")]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    assert path.with_name("audit.jsonl.1").exists()
    log = AuditLog(path)
    got = asyncio.run(actors(log))
    log.close()
    for name in ("p", "q"):
        own = [actor for actor in got if actor.startswith(name)]
        assert own == [f"{name}-{number}" for number in range(99, -1, -1)]
    assert len(got) == 200


async def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)  # a folder
    with pytest.raises(OSError, match="directory"):
        await log.write(record())
    with pytest.raises(OSError, match="directory"):
        await log.last(1)
    log.close()
