"""Where the vectors of a local index lie: in memory, in a file that the kernel may page out, or in a snapshot."""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np

from stratacache.errors import VectorIndexError
from stratacache.vectors.rows import Half


class Arena:
    """float16 ``vectors`` of shape (rows, dimension), zero at first, at an address that never changes.

    Args:
        in_file: whether they lie in a file of their own, so that the kernel can take back their memory.
        snapshot: a file that begins with the first rows' vectors. In memory mode it is mapped copy-on-write.
        folder: for the file; it has no name there, so it is gone with the process.
    """

    def __init__(
        self, rows: int, dimension: int, *, in_file: bool, folder: Path | None, snapshot: Path | None = None
    ) -> None:
        size = rows * dimension * 2
        self.in_file = in_file
        self._map: mmap.mmap | None = None
        try:
            if in_file:
                self._map = _own_file(size, folder, snapshot)
            elif snapshot is not None:
                self._map = _copy_on_write(size, snapshot)
        except OSError as error:
            raise VectorIndexError(f"no room for {size} bytes of vectors: {error}") from error
        self.vectors: Half = (
            np.zeros((rows, dimension), np.float16)
            if self._map is None
            else np.frombuffer(self._map, np.float16).reshape(rows, dimension)
        )

    def rest(self) -> None:
        """Let the kernel have the memory of vectors that lie in a file of their own; they are read again on use."""
        if self._map is not None and self.in_file:
            self._map.madvise(mmap.MADV_DONTNEED)


def _own_file(size: int, folder: Path | None, snapshot: Path | None) -> mmap.mmap:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        if snapshot is not None:
            with snapshot.open("rb") as source:
                shutil.copyfileobj(source, file, 1 << 20)
        file.flush()
        os.ftruncate(file.fileno(), size)
        # Not a hole: writing to a mapped hole on a full disk is a bus error.
        os.posix_fallocate(file.fileno(), 0, size)
        return mmap.mmap(file.fileno(), size)


def _copy_on_write(size: int, snapshot: Path) -> mmap.mmap:
    if snapshot.stat().st_size < size:
        os.truncate(snapshot, size)  # a hole behind the rows; a private page never reaches it
    with snapshot.open("rb") as file:
        return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)
