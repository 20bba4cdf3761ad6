"""A local index on disk: written beside the old one while changes go on, checked whole before it is used.

A snapshot is a folder ``snapshot-N``; it gets that name when all in it is on the disk. ``manifest`` tells format,
fingerprint, log position, and the SHA-256 of every other file; its first line is its own. Rows are written in slices,
each as of its own moment, so a snapshot is of a stretch of time: whoever applies the log from ``cursor``, which was
read when it began, gets the right state. No row changes hands meanwhile.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec
import numpy as np

from stratacache.errors import VectorIndexError
from stratacache.vectors.partition import Partition
from stratacache.vectors.rows import Rows
from stratacache.vectors.slots import digest_of
from stratacache.vectors.table import Table
from stratacache.vectors.upkeep import Upkeep

FORMAT = 1
_SLICE = 1024  # rows copied at once: a megabyte of vectors, a fraction of a millisecond
_HEAD = struct.Struct("<II")  # rows in a slice, bytes of their records
_NAME = re.compile(r"snapshot-(\d{8,})")


class File(msgspec.Struct, frozen=True):
    """The first ``size`` bytes of a file; a file of vectors may have a hole behind them."""

    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    format: int
    fingerprint: str
    dimension: int
    cursor: bytes
    high: int
    partitions: dict[int, bytes]
    cores: dict[int, str]  # kind of the core of the partition with that number
    files: dict[str, File]


class _Writer:
    """A new file, and the digest of what was written."""

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] = path.open("xb")
        self._hash = hashlib.sha256()
        self._size = 0

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._hash.update(data)
        self._size += len(data)

    def finish(self) -> File:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return File(self._size, self._hash.hexdigest())

    def close(self) -> None:
        self._file.close()


async def write(table: Table, upkeep: Upkeep, folder: Path, fingerprint: str, cursor: bytes) -> None:
    """Put a snapshot into ``folder`` in place of the one that is there. One call at a time for a folder.

    Raises:
        VectorIndexError: the disk refused; the old snapshot stays.
    """
    table.park()
    try:
        new = await asyncio.to_thread(_new_folder, folder)
        high, files = await _write_rows(table.rows, new)
        cores = {}
        for number, partition in list(table.large.items()):
            kind = await _write_core(partition, upkeep, new / f"core-{number}")
            if kind:
                cores[number] = kind
                files[f"core-{number}"] = await asyncio.to_thread(_digest, new / f"core-{number}")
        keys = {p.number: p.key for p in table.partitions.values()} | (table.retired or {})
        manifest = Manifest(
            FORMAT, fingerprint, table.rows.vectors.shape[1], cursor, high, keys, cores, files
        )
        await asyncio.to_thread(_publish, folder, new, manifest)
    except OSError as error:
        raise VectorIndexError(f"the index cannot be saved: {error}") from error
    finally:
        table.unpark()


async def _write_rows(rows: Rows, new: Path) -> tuple[int, dict[str, File]]:
    """How many rows were written, and the files."""
    texts, vectors = _Writer(new / "rows"), _Writer(new / "vectors")
    try:
        high = 0
        while high < rows.high:
            stop = min(high + _SLICE, rows.high)
            text, vector = _slice(rows, high, stop), rows.vectors[high:stop].tobytes()
            await asyncio.to_thread(texts.write, text)
            await asyncio.to_thread(vectors.write, vector)
            high = stop
        return high, {
            "rows": await asyncio.to_thread(texts.finish),
            "vectors": await asyncio.to_thread(vectors.finish),
        }
    finally:
        texts.close()
        vectors.close()


def _slice(rows: Rows, start: int, stop: int) -> bytes:
    records = rows.records[start:stop]
    joined = b"".join(records)
    lengths = np.fromiter(map(len, records), "<u4", len(records))
    return b"".join(
        (
            _HEAD.pack(stop - start, len(joined)),
            rows.owners[start:stop].astype("<u4").tobytes(),
            rows.created[start:stop].astype("<f8").tobytes(),
            rows.expires[start:stop].astype("<f8").tobytes(),
            lengths.tobytes(),
            joined,
        )
    )


async def _write_core(partition: Partition, upkeep: Upkeep, path: Path) -> str:
    """Write the partition's core while nothing changes it; its kind, "" when it has none."""
    await upkeep.idle(partition)
    large = partition.large
    if large is None or large.core is None:
        return ""
    large.tended = True
    try:
        await asyncio.to_thread(large.core.save, path)
    except RuntimeError as error:  # what both libraries raise when the disk is full
        raise OSError(str(error)) from error
    finally:
        large.tended = False
        upkeep.look_at(partition)
    return large.core.kind


def _new_folder(folder: Path) -> Path:
    new = folder / "new"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    return new


def _digest(path: Path, size: int | None = None) -> File:
    """The digest of the first ``size`` bytes, by default of all, once they are on the disk."""
    found, left = hashlib.sha256(), path.stat().st_size if size is None else size
    whole = left
    with path.open("rb") as file:
        while left and (data := file.read(min(left, 1 << 20))):
            found.update(data)
            left -= len(data)
        if size is None:
            os.fsync(file.fileno())
    return File(whole - left, found.hexdigest())


def _publish(folder: Path, new: Path, manifest: Manifest) -> None:
    """Give the finished folder its name, then remove those before it."""
    body = msgspec.json.encode(manifest)
    writer = _Writer(new / "manifest")
    writer.write(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
    writer.finish()
    _sync(new)
    older = list(_snapshots(folder))
    last = max((number for number, _ in older), default=0)
    new.rename(folder / f"snapshot-{last + 1:08d}")
    _sync(folder)
    for _, path in older:
        shutil.rmtree(path, ignore_errors=True)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _snapshots(folder: Path) -> Iterator[tuple[int, Path]]:
    for path in folder.glob("snapshot-*"):
        if found := _NAME.fullmatch(path.name):
            yield int(found[1]), path


def read_manifest(folder: Path, fingerprint: str, dimension: int) -> tuple[Path, Manifest]:
    """The newest snapshot's folder and manifest, every file of it found whole.

    Raises:
        VectorIndexError: with the reason why there is none that can be used.
    """
    found = max(_snapshots(folder), default=None)
    if found is None:
        raise VectorIndexError("there is no snapshot")
    try:
        manifest = _decode((found[1] / "manifest").read_bytes())
        if manifest.fingerprint != fingerprint:
            raise VectorIndexError("the snapshot is of another embedder")
        if manifest.dimension != dimension:
            raise VectorIndexError(
                f"the snapshot's vectors have {manifest.dimension} dimensions, not {dimension}"
            )
        for name, file in manifest.files.items():
            if _digest(found[1] / name, file.size) != file:
                raise VectorIndexError(f"the snapshot's file {name} is torn")
    except OSError as error:
        raise VectorIndexError(f"the snapshot cannot be read: {error}") from error
    return found[1], manifest


def _decode(data: bytes) -> Manifest:
    digest, _, body = data.partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise VectorIndexError("the snapshot's manifest is torn")
    head = msgspec.json.decode(body)
    if head.get("format") != FORMAT:
        raise VectorIndexError(f"the snapshot has format {head.get('format')}, this version writes {FORMAT}")
    return msgspec.json.decode(body, type=Manifest)


def read_rows(path: Path, manifest: Manifest, rows: Rows) -> None:
    """Put the snapshot's questions into new ``rows``, whose vectors are there already."""
    data = (path / "rows").read_bytes()
    offset = start = 0
    while offset < len(data):
        count, size = _HEAD.unpack_from(data, offset)
        offset += _HEAD.size
        stop = start + count
        for column, dtype in ((rows.owners, "<u4"), (rows.created, "<f8"), (rows.expires, "<f8")):
            column[start:stop] = np.frombuffer(data, dtype, count, offset)
            offset += count * np.dtype(dtype).itemsize
        lengths = np.frombuffer(data, "<u4", count, offset).tolist()
        offset += 4 * count
        end = offset + size
        for row, length in enumerate(lengths, start):
            rows.records.append(data[offset : offset + length])
            offset += length
            if length:
                _take_in(rows, row)
        assert offset == end
        start = stop


def _take_in(rows: Rows, row: int) -> None:
    """Enter ``row`` into the table; of two rows of one digest the later slice is the newer."""
    digest = digest_of(rows.records[row])
    older = rows.table.find(digest)
    if older >= 0:
        rows.clear(older)
    rows.table.insert(digest, row)
    rows.record_bytes += len(rows.records[row])
