"""A RocksDB folder: made, recognised, opened for this process alone, and moved aside when it is damaged."""

from __future__ import annotations

import contextlib
import logging
from datetime import UTC, datetime
from pathlib import Path

from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options, Rdict

from stratacache.errors import StoreError

FORMAT = "Stratacache RocksDB store, format 1\n"
TOTALS = b"m"  # the key of the totals
_MARK = "STRATACACHE"  # tells our folders from other programs'
_DAMAGED = "DAMAGED"
_CACHE_BYTES = 16 << 20  # blocks kept in memory, beside the operating system's own cache

_log = logging.getLogger(__name__)


def open_database(path: Path, max_bytes: int, now: float) -> Rdict:
    """Open the folder ``path``; make it if it is missing, start afresh if it is damaged.

    A damaged folder is renamed to ``PATH.corrupt-TIME``, with a warning: a cache can be filled again.

    Args:
        max_bytes: what it will hold, for the sizes of its files.
        now: seconds since the epoch.

    Raises:
        StoreError: the folder belongs to another program or is in use by another process, or cannot be opened.
    """
    try:
        _require_ours(path)
        if not (path / _DAMAGED).exists():
            try:
                return _open(path, max_bytes)
            except Exception as error:  # rocksdict raises nothing more specific
                if not is_damage(error):
                    raise StoreError(f"cannot open the RocksDB store {path}: {_told(error)}") from error
                fault = str(error)
        else:
            fault = "an earlier run met damage"
        aside = _set_aside(path, now)
        _log.warning("%s is damaged (%s); moved to %s, starting empty", path, fault, aside)
        _require_ours(path)
        return _open(path, max_bytes)
    except OSError as error:
        raise StoreError(f"cannot open the RocksDB store {path}: {error}") from error


def file_bytes(max_bytes: int) -> int:
    """The size of one file, and of what is written before a file is made of it."""
    return min(16 << 20, max(64 << 10, max_bytes // 64))


def is_damage(error: Exception) -> bool:
    """Whether what RocksDB says means that the files' content is broken, not that they are locked, or the disk full."""
    message = str(error)
    return message.startswith("Corruption") or ("No such file" in message and "IO error" in message)


def mark_damaged(path: Path) -> None:
    """Leave a note that the next ``open_database`` starts afresh."""
    with contextlib.suppress(OSError):  # a full or read-only disk: the damage will be met again
        (path / _DAMAGED).touch(mode=0o600)


def _open(path: Path, max_bytes: int) -> Rdict:
    """Open it, and read the totals that all else hangs on."""
    database = Rdict(str(path), _options(max_bytes))
    try:
        database.get(TOTALS)
    except BaseException:
        database.close()
        raise
    return database


def _require_ours(path: Path) -> None:
    """Accept a folder with our mark, and mark one that is empty or new."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    mark = path / _MARK
    if not mark.exists():
        if any(path.iterdir()):
            raise StoreError(
                f"{path} is not empty and not a store of Stratacache; name another folder in `store`, or move this one"
            )
        mark.write_text(FORMAT)
    elif mark.read_text(errors="replace") not in (FORMAT, ""):  # "": killed before it was written
        raise StoreError(
            f"{path} is of another version of Stratacache: upgrade, or name another folder in `store`"
        )


def _told(error: Exception) -> str:
    if "LOCK" in str(error):
        return f"it is in use; RocksDB is for one process, several can share sqlite:/// ({error})"
    return str(error)


def _options(max_bytes: int) -> Options:
    table = BlockBasedOptions()
    table.set_bloom_filter(10, False)
    table.set_block_cache(Cache(_CACHE_BYTES))
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(table)
    options.set_compression_type(DBCompressionType.lz4())
    size = file_bytes(max_bytes)
    options.set_write_buffer_size(size)
    options.set_max_total_wal_size(size)
    options.set_target_file_size_base(size)
    options.set_max_bytes_for_level_base(4 * size)
    options.set_max_compaction_bytes(4 * size)  # what a compaction needs for a while, beside what it replaces
    options.set_level_compaction_dynamic_level_bytes(True)
    # A write that RocksDB holds back would hold back the event loop, as rocksdict does not let go of the interpreter.
    options.set_max_write_buffer_number(8)
    options.set_level_zero_slowdown_writes_trigger(64)
    options.set_level_zero_stop_writes_trigger(128)
    options.set_soft_pending_compaction_bytes_limit(0)
    options.set_hard_pending_compaction_bytes_limit(0)
    options.set_max_open_files(256)
    options.set_max_background_jobs(2)
    options.set_keep_log_file_num(2)  # its own diary
    options.set_max_log_file_size(128 << 10)
    options.set_max_manifest_file_size(256 << 10)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options


def _set_aside(path: Path, now: float) -> Path:
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    aside = path.with_name(f"{path.name}.corrupt-{stamp}")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.corrupt-{stamp}-{number}")
    return path.rename(aside)
