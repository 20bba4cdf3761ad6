"""A file of fixed size that the processes of one machine map into their memory."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from stratacache.errors import StoreError


class SharedFile:
    """The mapped file; ``view`` is its content, shared with every process that has it open."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self._map = mmap.mmap(descriptor, size)
        self.view = memoryview(self._map)

    def try_lock(self) -> bool:
        """Exclude other processes; False when one has the lock."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def unlock(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Unmap it. Views of ``view`` must be released before."""
        self.view.release()
        self._map.close()
        os.close(self._descriptor)


def open_shared(
    path: Path, size: int, initialise: Callable[[memoryview], None], is_whole: Callable[[memoryview], bool]
) -> SharedFile:
    """Map ``path``; make it if it is missing, replace it unless it has ``size`` bytes and ``is_whole``.

    Replaced by renaming a new file over it, never by truncating it: a process that has the old one mapped would be
    killed by a bus error. That one goes on with the old file, which it then shares with nobody, until it restarts.

    Args:
        initialise: fills a new file, which is all zeros.

    Raises:
        StoreError: the file cannot be made or opened, such as on a full disk.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _only_opener(path):
            found = _map(path, size) if path.exists() else None
            if found is not None and is_whole(found.view):
                return found
            if found is not None:
                found.close()
            _make(path, size, initialise)
            return SharedFile(os.open(path, os.O_RDWR), size)
    except OSError as error:
        raise StoreError(f"cannot open the question filter {path}: {error}") from error


def _map(path: Path, size: int) -> SharedFile | None:
    if path.stat().st_size != size:
        return None
    return SharedFile(os.open(path, os.O_RDWR), size)


def _make(path: Path, size: int, initialise: Callable[[memoryview], None]) -> None:
    """Write a new file beside ``path``, then put it in its place; the opener's lock keeps others out."""
    new = path.with_name(path.name + ".new")
    descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        # Not a hole: writing to a mapped hole on a full disk is a bus error.
        os.posix_fallocate(descriptor, 0, size)
        content = bytearray(size)
        initialise(memoryview(content))
        os.pwrite(descriptor, content, 0)
    finally:
        os.close(descriptor)
    new.replace(path)


@contextlib.contextmanager
def _only_opener(path: Path) -> Iterator[None]:
    """One process at a time makes, checks or replaces the file."""
    descriptor = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
