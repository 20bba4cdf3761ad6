"""Several processes on one SQLite file, and a writer that is killed in the middle of its work."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stratacache.clock import SystemClock
from stratacache.stores.sqlite import SQLiteStore
from stratacache.types import Entry

MAX_BYTES = 3_000_000

# Each entry names its key and repeats one byte, so that a torn or foreign one shows. Versions are those of the look-up.
WORKER = """
import asyncio, hashlib, itertools, json, sys
from stratacache.clock import SystemClock
from stratacache.stores.sqlite import SQLiteStore
from stratacache.types import Entry

def key_of(name):
    return hashlib.sha256(bytes([name])).digest()[:16]

async def main(path, seed, rounds, max_bytes):
    store = SQLiteStore(path, max_bytes, SystemClock(), busy_seconds=60)
    hits = 0
    for step in itertools.count() if rounds == 0 else range(rounds):
        name = (step * 31 + seed * 7) % 40
        key, tags = key_of(name), ("*", f"tag {name % 5}")
        found = await store.get(key, tags)
        body = bytes([step % 256]) * (500 + 37 * step % 5000)
        if not isinstance(found, Entry):
            expires = SystemClock().now() + 3600
            await store.put(key, Entry(key, body, 0.0, expires, versions=found.versions))
        found = await store.get(key_of(step % 40))
        if isinstance(found, Entry):
            hits += 1
            assert found.form == key_of(step % 40)
            assert found.body == found.body[:1] * len(found.body)
        if step % 7 == 6:
            told = await store.invalidate([f"tag {step % 5}"], [key] if step % 2 else [])
            after = await store.get(key_of(step % 5), (f"tag {step % 5}",))
            now = dict(after.versions)[f"tag {step % 5}"]
            assert now >= dict(told.versions)[f"tag {step % 5}"], "outdated"
        if rounds == 0:
            print(step, flush=True)
    await store.close()
    print(json.dumps({"hits": hits}))

asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
"""


def start(path: Path, seed: int, rounds: int, max_bytes: int = MAX_BYTES) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", WORKER, str(path), str(seed), str(rounds), str(max_bytes)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def moved_aside(folder: Path) -> list[str]:
    return [file.name for file in folder.glob("*.corrupt-*Z")]


def key_of(name: int) -> bytes:
    return hashlib.sha256(bytes([name])).digest()[:16]


async def require_whole(path: Path) -> int:
    """Every invariant of the file holds and every entry is whole; returns the number of entries."""
    store = SQLiteStore(path, MAX_BYTES, SystemClock())
    await store.check()
    seen = 0
    for name in range(40):
        found = await store.get(key_of(name))
        if isinstance(found, Entry):
            seen += 1
            assert found.form == key_of(name)
            assert found.body == found.body[:1] * len(found.body)
    assert (await store.stats()).entries >= seen
    await store.close()
    return seen


async def test_processes_that_start_together_share_one_file(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    workers = [start(path, seed, 150) for seed in range(3)]
    for worker in workers:
        output, errors = worker.communicate(timeout=120)
        assert worker.returncode == 0, errors
        assert json.loads(output)["hits"] > 0
    assert await require_whole(path) > 0
    assert moved_aside(tmp_path) == []


async def test_processes_at_the_bound_evict_without_losing_count(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    for worker in [start(path, seed, 120, 40_000) for seed in range(2)]:
        _, errors = worker.communicate(timeout=120)
        assert worker.returncode == 0, errors
    store = SQLiteStore(path, 40_000, SystemClock())
    await store.check()
    assert 0 < (await store.stats()).bytes <= 40_000
    await store.close()


@pytest.mark.parametrize("steps", [1, 40, 200])
async def test_a_killed_writer_leaves_a_whole_file(tmp_path: Path, steps: int) -> None:
    path = tmp_path / "cache.db"
    worker = start(path, 1, 0)
    assert worker.stdout is not None
    for _ in range(steps):
        assert worker.stdout.readline()
    worker.send_signal(signal.SIGKILL)
    worker.communicate(timeout=60)
    assert await require_whole(path) > 0
    assert moved_aside(tmp_path) == []


async def test_several_damaged_starts_at_once_move_one_file_aside(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    path.write_bytes(b"rubbish" * 1000)
    for worker in [start(path, seed, 20) for seed in range(3)]:
        _, errors = worker.communicate(timeout=120)
        assert worker.returncode == 0, errors
    assert len(moved_aside(tmp_path)) == 1
    assert await require_whole(path) > 0
