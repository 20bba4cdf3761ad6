"""Where entries are kept: one contract (``ports.Store``), several backends, named by URL."""

from __future__ import annotations

from collections.abc import Callable
from difflib import SequenceMatcher
from pathlib import Path

from stratacache.errors import SettingsError
from stratacache.ports import Clock, Store

__all__ = ["open_store"]


def open_store(url: str, *, max_bytes: int, clock: Clock) -> Store:
    """The store that ``url`` names, ready for use.

    Args:
        url: ``memory://``, ``sqlite:///relative/path`` or ``sqlite:////absolute/path``.
        max_bytes: bound of payload and overhead.
        clock: what entries expire by.

    Raises:
        SettingsError: the URL names no store or misses its path, or ``max_bytes`` is not positive.
        StoreError: the store is there but cannot be used, such as a file of another program.
    """
    scheme, separator, rest = url.partition("://")
    opener = _OPENERS.get(scheme.lower()) if separator else None
    if opener is None:
        known = sorted(
            _OPENERS, key=lambda name: SequenceMatcher(None, scheme.lower(), name).ratio(), reverse=True
        )
        raise SettingsError(
            f"store: {url!r} names no store that Stratacache has; valid schemes are "
            + ", ".join(f"{name}://" for name in known)
        )
    return opener(rest, max_bytes, clock)


def _memory(rest: str, max_bytes: int, clock: Clock) -> Store:
    from stratacache.stores.memory import MemoryStore

    if rest.strip("/"):
        raise SettingsError(f"store: memory:// takes no path, but {rest!r} was given")
    return MemoryStore(max_bytes, clock)


def _sqlite(rest: str, max_bytes: int, clock: Clock) -> Store:
    from stratacache.stores.sqlite import SQLiteStore

    if len(rest) < 2 or not rest.startswith("/"):
        raise SettingsError(
            "store: a SQLite store needs a path: sqlite:///relative/file.db or sqlite:////absolute/file.db"
        )
    return SQLiteStore(Path(rest[1:]).expanduser(), max_bytes, clock)


# A backend is imported when it is named: nobody waits for a client library that is not used.
_OPENERS: dict[str, Callable[[str, int, Clock], Store]] = {"memory": _memory, "sqlite": _sqlite}
