"""The audit log: a line of JSON for every invalidation, reindexing and review, in a file that processes share."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from stratacache.types import JSON

log = logging.getLogger(__name__)

MAX_BYTES = 10_000_000  # then the file becomes FILE.1, and what was FILE.1 is gone
TIMEOUT = 5.0  # seconds that a caller waits for the disk


Outcome = Literal["done", "failed", "begun"]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One invalidation, reindexing or review, or an attempt at one; ``actor`` as ``gateway.auth`` names it."""

    time: str
    actor: str
    outcome: Outcome
    dry_run: bool
    selection: Mapping[str, JSON]
    affected: int | None
    versions: Mapping[str, int]


async def noted(audit: AuditLog | None, record: Record, what: str) -> bool:
    """Whether ``record`` stands in the log; that it cannot be written is said of ``what`` and is no failure."""
    if audit is None:
        return False
    try:
        await audit.write(record)
    except (OSError, TimeoutError) as error:
        log.error(
            "%s by %s is not in the audit log: %s", what, record.actor, error or "writing took too long"
        )
        return False
    return True


def moment(seconds: float) -> str:
    """Seconds since the epoch as ``2026-01-02T03:04:05.678Z``."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class AuditLog:
    """Appends records, each written through to the disk before ``write`` returns, and reads the last ones.

    A line that a crash cut short is skipped, and does not spoil the next. Work is done in one thread of its own.

    Args:
        path: the file; its folder is made when the first record comes.
        max_bytes: the file's size at which a new one is begun.
    """

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self._path = path = path.expanduser()
        self._older = path.with_name(path.name + ".1")
        self._max_bytes = max_bytes
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="audit")

    async def write(self, record: Record) -> None:
        """Append ``record``.

        Raises:
            OSError: the file cannot be written.
            TimeoutError: the disk took too long; the record may be written all the same.
        """
        line = msgspec.json.encode(record) + b"\n"
        async with asyncio.timeout(TIMEOUT):
            await asyncio.get_running_loop().run_in_executor(self._thread, self._append, line)

    async def last(self, limit: int) -> list[Mapping[str, JSON]]:
        """At most ``limit`` records as plain values, the newest first; raises as :meth:`write`."""
        async with asyncio.timeout(TIMEOUT):
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._read, limit)

    def close(self) -> None:
        """Begin no more. What was begun is finished. Idempotent."""
        self._thread.shutdown(wait=False)

    def _append(self, line: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._opened(len(line)) as file:
            size = os.fstat(file).st_size
            torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
            left = memoryview(b"\n" + line if torn else line)
            try:
                while left:
                    left = left[os.write(file, left) :]
                os.fsync(file)
            except OSError:
                os.ftruncate(file, size)  # a full disk must leave no half record
                raise

    @contextmanager
    def _opened(self, room: int) -> Iterator[int]:
        """The file, locked against other processes, with room for that many bytes."""
        while True:
            file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                if not self._is_current(file):
                    continue  # another process moved it aside while we waited
                size = os.fstat(file).st_size
                if size and size + room > self._max_bytes:
                    os.replace(self._path, self._older)
                    continue
                yield file
                if not size:
                    _sync_folder(self._path.parent)
                return
            finally:
                os.close(file)

    def _is_current(self, file: int) -> bool:
        try:
            return os.path.samestat(os.fstat(file), os.stat(self._path))
        except FileNotFoundError:
            return False

    def _read(self, limit: int) -> list[Mapping[str, JSON]]:
        found: list[Mapping[str, JSON]] = []
        for path in (self._path, self._older):
            if len(found) < limit and path.exists():
                found += _newest(path.read_bytes(), limit - len(found))
        return found


def _newest(data: bytes, limit: int) -> list[Mapping[str, JSON]]:
    found: list[Mapping[str, JSON]] = []
    for line in reversed(data.splitlines()):
        if len(found) == limit:
            break
        try:
            record = msgspec.json.decode(line)
        except msgspec.DecodeError:
            continue  # cut short by a crash
        if isinstance(record, dict):
            found.append(record)
    return found


def _sync_folder(folder: Path) -> None:
    """Without this a power cut may lose a new file together with what was written through to it."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
