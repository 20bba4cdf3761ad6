"""Processes on one SQLite file: no copy outlives an invalidation, and a killed leader or writer holds up nobody."""

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
from stratacache.stores.sqlite_relay import SQLiteRelay
from stratacache.types import Absent

# Keeps copies as a near cache does. Any copy that it would answer with is checked against the newest version that an
# invalidation by any process had returned before the look-up; those are in a file of appended lines.
LISTENER = """
import asyncio, json, os, sys
from pathlib import Path
from stratacache.clock import SystemClock
from stratacache.stores.sqlite import SQLiteStore

TAGS = [f"tag {number}" for number in range(4)]

def newest(log):
    found = dict.fromkeys(TAGS, 0)
    for line in log.read_text().split("\\n")[:-1]:  # the last line may be half written: its writer has not gone on yet
        tag, _, version = line.rpartition(" ")
        found[tag] = max(found[tag], int(version))
    return found

async def main(path, seed, rounds):
    log = Path(path + ".log")
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    store = SQLiteStore(path, 3_000_000, SystemClock(), busy_seconds=60)
    bulletin = store.bulletin()
    copies, answered = {}, 0

    def hear(what, digests):
        if what is None:
            copies.clear()
        else:
            for tag, version in what.versions:
                if copies.get(tag, version) < version:
                    del copies[tag]

    await bulletin.start(hear)
    for step in range(rounds):
        tag = TAGS[(step * 7 + seed) % len(TAGS)]
        before = newest(log)
        if bulletin.current() and tag in copies:
            answered += 1
            assert copies[tag] >= before[tag], "stale"
        else:
            found = await store.get(bytes(16), [tag])
            version = dict(found.versions)[tag]
            assert version >= before[tag], "stale read of the store"
            copies[tag] = max(version, copies.get(tag, 0))
        if step % 12 == seed % 12:
            told = await store.invalidate([tag])
            os.write(descriptor, f"{tag} {dict(told.versions)[tag]}\\n".encode())
        if step % 5 == 0:
            await asyncio.sleep(0.001)
    await bulletin.close()
    await store.close()
    print(json.dumps({"answered": answered}))

asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
"""

LEADER = """
import asyncio, sys
from pathlib import Path
from stratacache.clock import SystemClock
from stratacache.stores.sqlite_relay import SQLiteRelay

async def main(path):
    relay = SQLiteRelay(Path(path), SystemClock(), busy_seconds=60)
    assert await relay.claim(b"place", 1.0)
    number = 0
    while True:
        await relay.publish(b"place", [str(number).encode()])
        await relay.renew(b"place", 1.0)
        print(number, flush=True)
        number += 1

asyncio.run(main(sys.argv[1]))
"""

# Puts and invalidations at once, as fast as they go; prints the number of rounds done.
WRITER = """
import asyncio, hashlib, itertools, sys
from stratacache.clock import SystemClock
from stratacache.stores.sqlite import SQLiteStore
from stratacache.types import Absent, Entry

async def main(path):
    clock = SystemClock()
    store = SQLiteStore(path, 3_000_000, clock, busy_seconds=60)
    for step in itertools.count():
        tag = f"tag {step % 3}"
        found = await store.get(bytes(16), ["*", tag])
        names = [hashlib.sha256(f"{step} {n}".encode()).digest()[:16] for n in range(20)]
        await asyncio.gather(
            *(
                store.put(key, Entry(key, key * 100, 0.0, clock.now() + 3600, versions=found.versions))
                for key in names
            ),
            *([store.invalidate([tag], names[:2])] if step % 4 == 3 else []),
        )
        print(step, flush=True)

asyncio.run(main(sys.argv[1]))
"""


def start(program: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def moved_aside(folder: Path) -> list[str]:
    return [file.name for file in folder.glob("*.corrupt-*")]


def kill_after(worker: subprocess.Popen[str], lines: int) -> None:
    assert worker.stdout is not None
    for _ in range(lines):
        assert worker.stdout.readline()
    worker.send_signal(signal.SIGKILL)
    worker.communicate(timeout=60)


async def test_no_copy_answers_after_an_invalidation_returned_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    for worker in [start(LISTENER, path, seed, 1500) for seed in range(3)]:
        output, errors = worker.communicate(timeout=200)
        assert worker.returncode == 0, errors
        assert json.loads(output)["answered"] > 50
    store = SQLiteStore(path, 3_000_000, SystemClock())
    await store.check()
    await store.close()


@pytest.mark.parametrize("lines", [1, 25])
async def test_a_killed_leader_is_replaced_within_its_lease(tmp_path: Path, lines: int) -> None:
    path = tmp_path / "cache.db.flights"
    kill_after(start(LEADER, path), lines)
    clock = SystemClock()
    relay = SQLiteRelay(path, clock)
    begun, heard = clock.monotonic(), 0
    while not await relay.claim(b"place", 1.0):
        assert clock.monotonic() - begun < 10
        followed = await relay.follow(b"place", heard)
        expected = [str(number).encode() for number in range(heard, heard + len(followed.frames))]
        assert list(followed.frames) == expected
        heard += len(followed.frames)
    followed = await relay.follow(b"place", 0)
    assert (list(followed.frames), followed.led) == ([], True)
    await relay.close()


@pytest.mark.parametrize("lines", [1, 10, 60])
async def test_a_writer_killed_amid_groups_leaves_versions_and_counts_right(
    tmp_path: Path, lines: int
) -> None:
    path = tmp_path / "cache.db"
    kill_after(start(WRITER, path), lines)
    store = SQLiteStore(path, 3_000_000, SystemClock())
    await store.check()
    assert (await store.stats()).entries > 0
    told = await store.invalidate(["*"])
    assert told.affected == (await store.stats()).entries
    for step in range(lines):
        key = hashlib.sha256(f"{step} 5".encode()).digest()[:16]
        assert isinstance(await store.get(key, ["*"]), Absent), "all of them carry it"
    await store.close()
    assert moved_aside(tmp_path) == []
