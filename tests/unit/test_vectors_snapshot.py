"""Snapshots of the local index: what comes back, what is refused, and what changes meanwhile."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.clock import FakeClock

from stratacache.errors import VectorIndexError
from stratacache.ports import Vector
from stratacache.types import Question
from stratacache.vectors.limits import IndexKind, IndexLimits
from stratacache.vectors.local import LocalIndex

DIMENSION = 24
HERE, THERE = b"h" * 16, b"t" * 16
KINDS: list[IndexKind] = ["exact", "hnsw", "ivfpq"]


def limits_of(kind: IndexKind) -> IndexLimits:
    return IndexLimits(kind=kind, max_vectors=3000, exact_below=650)


def digest(name: object) -> bytes:
    return hashlib.sha256(str(name).encode()).digest()[:16]


def vectors_of(count: int, seed: int = 0) -> list[Vector]:
    found = np.random.default_rng(seed).standard_normal((count, DIMENSION)).astype(np.float32)
    return list(found / np.linalg.norm(found, axis=1, keepdims=True))


VECTORS = vectors_of(1400)


def question(clock: FakeClock, name: object, partition: bytes = HERE, ttl: float = 600.0) -> Question:
    now = clock.now()
    return Question(digest(name), partition, f"问 {name}", now, now + ttl, "who", ("else",))


async def fill(index: LocalIndex, clock: FakeClock, count: int = 800) -> None:
    for number in range(count):
        await index.add(question(clock, number), VECTORS[number])
    for number in range(20):
        await index.add(question(clock, f"there {number}", THERE), VECTORS[number])


async def saved(folder: Path, clock: FakeClock, kind: IndexKind = "hnsw", count: int = 800) -> None:
    index = LocalIndex(DIMENSION, "f", clock, limits_of(kind), folder=folder)
    await fill(index, clock, count)
    await index.settled()
    await index.save(b"cursor \xff")
    await index.close()


def load(folder: Path, clock: FakeClock, kind: IndexKind = "hnsw") -> tuple[LocalIndex, bytes]:
    return LocalIndex.load(folder, DIMENSION, "f", clock, limits_of(kind))


def content(index: LocalIndex) -> dict[bytes, tuple[str, bytes]]:
    """By digest, the text and the vector of every row, whatever its number."""
    rows = index._table.rows
    found = {}
    for row in range(rows.high):
        if rows.owners[row]:
            one = rows.question(row, index._table.owner(row).key)
            found[one.digest] = (one.text, rows.vectors[row].tobytes())
    return found


def files_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("snapshot-*/*"))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.mark.parametrize("kind", KINDS)
async def test_what_was_saved_comes_back(tmp_path: Path, clock: FakeClock, kind: IndexKind) -> None:
    await saved(tmp_path, clock, kind)
    index, cursor = load(tmp_path, clock, kind)
    assert cursor == b"cursor \xff"
    await index.check()
    assert (await index.stats()).vectors == 820
    assert (index._table.partitions[HERE].large is not None) == (kind != "exact")
    for number in range(0, 800, 40):
        found = await index.search(HERE, VECTORS[number], 10)
        assert found[0].question == question(clock, number)
        assert len(found) == 10
    assert (await index.search(THERE, VECTORS[3], 1))[0].question.text == "问 there 3"
    await index.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_loaded_index_takes_changes_and_is_saved_again(
    tmp_path: Path, clock: FakeClock, kind: IndexKind
) -> None:
    await saved(tmp_path, clock, kind)
    for generation in range(3):
        index, _ = load(tmp_path, clock, kind)
        first = 800 + 100 * generation
        for number in range(first, first + 100):
            await index.add(question(clock, number), VECTORS[number])
        await index.remove([digest(number) for number in range(30 * generation, 30 * generation + 30)])
        await index.settled()
        await index.check()
        for number in (0, 5, 60, 100, first, first + 99):
            found = await index.search(HERE, VECTORS[number], 10)
            gone = number < 30 * generation + 30
            assert (found[0].question.digest == digest(number)) != gone
        await index.save(b"%d" % generation)
        await index.close()
    index, cursor = load(tmp_path, clock, kind)
    assert cursor == b"2"
    assert (await index.stats()).vectors == 820 + 3 * 70
    await index.check()
    await index.close()
    assert len(files_of(tmp_path)) == 4 - (kind == "exact")


async def test_closing_saves_when_the_position_is_known(tmp_path: Path, clock: FakeClock) -> None:
    index = LocalIndex(DIMENSION, "f", clock, limits_of("hnsw"), folder=tmp_path)
    await fill(index, clock, 30)
    index.position = lambda: b"7-1"
    await index.close()
    index, cursor = load(tmp_path, clock)
    assert cursor == b"7-1"
    assert (await index.stats()).vectors == 50
    await index.close()


async def test_an_empty_index_comes_back(tmp_path: Path, clock: FakeClock) -> None:
    await saved(tmp_path, clock, count=0)
    index, _ = load(tmp_path, clock)
    await index.remove([digest(f"there {number}") for number in range(20)])
    await index.save()
    await index.close()
    index, _ = load(tmp_path, clock)
    assert (await index.stats()).vectors == 0
    await index.add(question(clock, "a"), VECTORS[0])
    await index.check()
    await index.close()


async def test_what_expired_while_nobody_looked_is_not_found(tmp_path: Path, clock: FakeClock) -> None:
    await saved(tmp_path, clock)
    clock.advance(600.0)
    index, _ = load(tmp_path, clock)
    assert list(await index.search(HERE, VECTORS[0], 10)) == []
    await index.close()


async def test_a_large_partition_saved_without_a_core_gets_one(tmp_path: Path, clock: FakeClock) -> None:
    await saved(tmp_path, clock, "exact")
    index, _ = load(tmp_path, clock, "hnsw")
    assert await index.sweep() == 0
    await index.settled()
    large = index._table.partitions[HERE].large
    assert large is not None
    assert large.core is not None
    await index.check()
    await index.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_changes_while_it_is_saved(tmp_path: Path, clock: FakeClock, kind: IndexKind) -> None:
    """The changes made from the cursor on, applied again, give the state that the index was left in."""
    index = LocalIndex(DIMENSION, "f", clock, limits_of(kind), folder=tmp_path)
    await fill(index, clock)
    await index.settled()
    log: list[tuple[Question | None, bytes, int]] = []
    chance = np.random.default_rng(9)
    saving = asyncio.create_task(index.save(b"0"))

    async def apply(target: LocalIndex, change: tuple[Question | None, bytes, int]) -> None:
        if change[0] is None:
            await target.remove([change[1]])
        else:
            await target.add(change[0], VECTORS[change[2]])

    while not saving.done():
        await asyncio.sleep(0)
        if len(log) == 1500:  # more changes than there are rows to spare would be refused
            continue
        number, at = int(chance.integers(0, 1000)), int(chance.integers(0, 1400))
        one = question(clock, number, HERE if chance.random() < 0.9 else digest(number % 3))
        change = (one, one.digest, at) if chance.random() < 0.6 else (None, one.digest, 0)
        log.append(change)
        await apply(index, change)
    await saving
    assert log
    await index.settled()
    await index.check()
    left = content(index)
    await index.close()
    loaded, _ = load(tmp_path, clock, kind)
    await loaded.check()
    for change in log:
        await apply(loaded, change)
    await loaded.settled()
    await loaded.check()
    assert content(loaded) == left
    await loaded.close()


# --- refused


async def test_without_a_snapshot_there_is_nothing_to_load(tmp_path: Path, clock: FakeClock) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(VectorIndexError, match="no snapshot"):
            load(folder, clock)


async def test_a_foreign_fingerprint_or_dimension_is_refused(tmp_path: Path, clock: FakeClock) -> None:
    await saved(tmp_path, clock, count=10)
    with pytest.raises(VectorIndexError, match="another embedder"):
        LocalIndex.load(tmp_path, DIMENSION, "g", clock, limits_of("hnsw"))
    with pytest.raises(VectorIndexError, match="24 dimensions, not 32"):
        LocalIndex.load(tmp_path, 32, "f", clock, limits_of("hnsw"))


async def test_a_bound_that_was_lowered_holds_after_loading(tmp_path: Path, clock: FakeClock) -> None:
    await saved(tmp_path, clock, count=1200)
    index, _ = LocalIndex.load(tmp_path, DIMENSION, "f", clock, IndexLimits(max_vectors=700))
    assert (await index.stats()).vectors == 700
    await index.settled()
    await index.check()
    await index.close()
    with pytest.raises(VectorIndexError, match="more than max_vectors"):
        LocalIndex.load(tmp_path, DIMENSION, "f", clock, IndexLimits(max_vectors=100))


async def test_another_format_is_refused(tmp_path: Path, clock: FakeClock) -> None:
    await saved(tmp_path, clock, count=10)
    manifest = files_of(tmp_path)[-3]
    _, _, body = manifest.read_bytes().partition(b"\n")
    changed = msgspec.json.encode(msgspec.json.decode(body) | {"format": 99, "files": "elsewhere"})
    manifest.write_bytes(hashlib.sha256(changed).hexdigest().encode() + b"\n" + changed)
    with pytest.raises(VectorIndexError, match="format 99"):
        load(tmp_path, clock)


def cut(path: Path, at: int) -> None:
    os.truncate(path, at)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def lose(path: Path, at: int) -> None:
    path.unlink()


@pytest.mark.parametrize("kind", ["hnsw", "ivfpq"])
@pytest.mark.parametrize("harm", [cut, flip, lose])
async def test_a_torn_snapshot_is_refused(
    tmp_path: Path, clock: FakeClock, kind: IndexKind, harm: Callable[[Path, int], None]
) -> None:
    await saved(tmp_path, clock, kind)
    chance = np.random.default_rng(3)
    files = files_of(tmp_path)
    assert {path.name for path in files} >= {"manifest", "rows", "vectors"}
    assert len(files) == 4
    for path in files:
        whole = path.read_bytes()
        used = 820 * DIMENSION * 2 if path.name == "vectors" else len(whole)
        for at in (0, used - 1, *chance.integers(0, used, 12).tolist()):
            harm(path, at)
            with pytest.raises(VectorIndexError, match=r"torn|cannot be read"):
                load(tmp_path, clock, kind)
            path.write_bytes(whole)
    index, _ = load(tmp_path, clock, kind)
    await index.check()
    await index.close()


async def test_a_save_that_was_cut_off_leaves_the_old_snapshot(tmp_path: Path, clock: FakeClock) -> None:
    await saved(tmp_path, clock, count=10)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "rows").write_bytes(b"half")
    index, _ = load(tmp_path, clock)
    assert (await index.stats()).vectors == 30
    await index.save()
    assert {path.parent.name for path in files_of(tmp_path)} == {"snapshot-00000002"}
    assert not (tmp_path / "new").exists()
    await index.close()


async def test_a_disk_that_refuses_is_one_error_and_the_index_goes_on(
    tmp_path: Path, clock: FakeClock
) -> None:
    (tmp_path / "file").write_text("in the way")
    index = LocalIndex(DIMENSION, "f", clock, limits_of("hnsw"), folder=tmp_path / "file" / "below")
    await fill(index, clock, 10)
    with pytest.raises(VectorIndexError, match="cannot be saved"):
        await index.save()
    await index.remove([digest(3)])
    await index.add(question(clock, 3), VECTORS[3])
    await index.check()
    await index.close()


async def test_without_a_folder_nothing_can_be_saved(clock: FakeClock) -> None:
    index = LocalIndex(DIMENSION, "f", clock, limits_of("hnsw"))
    with pytest.raises(VectorIndexError, match="no folder"):
        await index.save()
    await index.close()
