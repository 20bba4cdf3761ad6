"""The SQLite file itself: made, recognised, checked, and moved aside when it is damaged."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from stratacache.errors import StoreError

if sys.platform != "win32":
    import fcntl

_WAL_BYTES = 4 << 20  # checkpoint there
_CACHE_KIB = 8192
# Above this a whole-file check would delay the start by seconds; damage is then found by the read that meets it.
_CHECKED_BYTES = 256 << 20
_SPARE_PAGES = 64  # free pages kept for the next writes; the file gives back the others ...
_VACUUM_PAGES = 256  # ... at most so many per call, to bound its time


class Layout(NamedTuple):
    """What is in a file of ours. ``application`` and ``version`` tell it from others.

    ``emptied``: versions that are not worth reading; such a file starts empty. ``synchronous``: as SQLite's pragma;
    with WAL, NORMAL means that a power cut may lose the last writes, and OFF that it may damage the file.
    ``most_bytes``: bound of the file, 0 for none.
    """

    application: int
    version: int
    emptied: tuple[int, ...]
    page_bytes: int
    synchronous: str
    script: str
    most_bytes: int = 0


_log = logging.getLogger(__name__)


class _Damaged(Exception):
    """The file is not a whole database; the message says how that was seen."""


def open_writer(path: Path, layout: Layout, busy_seconds: float, now: float) -> sqlite3.Connection:
    """Open ``path`` for writing; make it if it is missing, start afresh if it is damaged.

    A damaged file is renamed to ``PATH.corrupt-TIME``, with a warning: a cache can be filled again. Call it in
    the thread that will use the connection. ``now``: seconds since the epoch.

    Raises:
        StoreError: the file belongs to another program or a newer version, or cannot be opened.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _only_opener(path):
            try:
                return _prepare(path, layout, busy_seconds)
            except _Damaged as damage:
                aside = _set_aside(path, now)
                _log.warning("%s is damaged (%s); moved to %s, starting empty", path, damage, aside)
                return _prepare(path, layout, busy_seconds)
    except (OSError, sqlite3.Error, _Damaged) as error:
        raise StoreError(f"cannot open the SQLite store {path}: {error}") from error


def open_reader(path: Path, layout: Layout, busy_seconds: float, now: float) -> sqlite3.Connection:
    """A read-only connection. A file that is missing or damaged is dealt with as by ``open_writer`` before."""
    if not path.exists() or _marker(path).exists():
        open_writer(path, layout, busy_seconds, now).close()
    try:
        connection = _connect(path, busy_seconds)
        _configure(connection, layout)
        connection.execute("PRAGMA query_only = ON")
    except sqlite3.Error as error:
        raise StoreError(f"cannot open the SQLite store {path} for reading: {error}") from error
    return connection


def is_damage(error: sqlite3.Error) -> bool:
    """True when ``error`` says that the file's content is broken, not that it is locked, full or missing."""
    code = getattr(error, "sqlite_errorcode", None)  # absent on errors that the Python module itself raises
    return code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_too_much(error: sqlite3.Error) -> bool:
    """True when less might have been written: the disk is full, or a value is larger than SQLite takes."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_TOOBIG)


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing. IMMEDIATE: waiting for another process's write happens here, not halfway."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite has rolled back by itself after a full disk
            connection.execute("ROLLBACK")
        raise


def shrink(connection: sqlite3.Connection) -> None:
    """Give free pages at the file's end back to the disk."""
    free: int = connection.execute("PRAGMA freelist_count").fetchone()[0]
    if free > _SPARE_PAGES:
        # A script, because execute() steps this pragma once and so frees a single page.
        connection.executescript(f"PRAGMA incremental_vacuum({min(free - _SPARE_PAGES, _VACUUM_PAGES)})")


def mark_damaged(path: Path) -> None:
    """Leave a note that the next ``open_writer``, in whatever process, starts afresh."""
    with contextlib.suppress(OSError):  # a full or read-only disk: the damage will be met again
        _marker(path).touch(mode=0o600)


def _marker(path: Path) -> Path:
    return path.with_name(path.name + ".damaged")


@contextlib.contextmanager
def _only_opener(path: Path) -> Iterator[None]:
    """One process at a time makes, checks or replaces the file; else a second one could move the fresh file away.

    The lock has a file of its own: closing any descriptor of a database drops SQLite's locks on it.
    """
    descriptor = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if sys.platform != "win32":
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _prepare(path: Path, layout: Layout, busy_seconds: float) -> sqlite3.Connection:
    """Open a whole file of ours, or make one; raises _Damaged or StoreError otherwise."""
    if _marker(path).exists():
        raise _Damaged("an earlier run met damage")
    _make(path)
    connection = _connect(path, busy_seconds)
    try:
        _configure(connection, layout)
        if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            _create(connection, layout)
        _require_ours(connection, layout, path)
        _upgrade(connection, layout, path)
        if path.stat().st_size <= _CHECKED_BYTES:
            _require_whole(connection)
    except sqlite3.Error as error:
        connection.close()
        if is_damage(error):
            raise _Damaged(str(error)) from error
        raise
    except BaseException:
        connection.close()
        raise
    return connection


def _make(path: Path) -> None:
    """Make the file if it is missing. Here and not by SQLite for its mode, which the -wal and -shm files get too."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return
    for suffix in ("-wal", "-shm"):  # of a file that was deleted, which other processes may still have open
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _connect(path: Path, busy_seconds: float) -> sqlite3.Connection:
    # isolation_level=None: transactions begin and end where we say, not where the module guesses.
    return sqlite3.connect(path, timeout=busy_seconds, isolation_level=None)


def _configure(connection: sqlite3.Connection, layout: Layout) -> None:
    connection.execute(f"PRAGMA synchronous = {layout.synchronous}")
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_BYTES // layout.page_bytes}")
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
    if layout.most_bytes:
        connection.execute(f"PRAGMA max_page_count = {layout.most_bytes // layout.page_bytes}")


def _create(connection: sqlite3.Connection, layout: Layout) -> None:
    connection.execute(f"PRAGMA page_size = {layout.page_bytes}")  # these two only before anything is written
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(
        f"BEGIN IMMEDIATE; {layout.script} PRAGMA application_id = {layout.application};"
        f"PRAGMA user_version = {layout.version}; COMMIT;"
    )


def _require_ours(connection: sqlite3.Connection, layout: Layout, path: Path) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != layout.application:
        raise StoreError(
            f"{path} is another program's database; name another file in `store`, or move this one away"
        )
    if version != layout.version and version not in layout.emptied:
        raise StoreError(
            f"{path} has schema version {version}, this Stratacache reads version {layout.version}: "
            "upgrade Stratacache, or name another file in `store`"
        )


def _upgrade(connection: sqlite3.Connection, layout: Layout, path: Path) -> None:
    """Empty a file of an earlier version in place: a cache can be filled again."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version == layout.version:
        return
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    dropped = "".join([f'DROP TABLE "{name}";' for (name,) in tables])
    connection.executescript(
        f"BEGIN IMMEDIATE; {dropped} {layout.script} PRAGMA user_version = {layout.version}; COMMIT;"
    )
    _log.warning("%s has schema version %d, now %d: the cache starts empty", path, version, layout.version)


def _require_whole(connection: sqlite3.Connection) -> None:
    verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if verdict != "ok":
        raise _Damaged(str(verdict).replace("\n", " "))


def _set_aside(path: Path, now: float) -> Path:
    """Rename the file and its companions; the write-ahead log first, so that it never meets the fresh file."""
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    aside = path.with_name(f"{path.name}.corrupt-{stamp}")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.corrupt-{stamp}-{number}")
    for suffix in ("-wal", "-shm", ""):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    _marker(path).unlink(missing_ok=True)
    return aside
