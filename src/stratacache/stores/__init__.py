"""Where entries are kept: one contract (``ports.Store``), several backends, named by URL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stratacache.errors import SettingsError
from stratacache.ports import Clock, Store
from stratacache.settings import store_problem

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
    problem = store_problem(url)
    if problem is not None:
        raise SettingsError(f"store: {problem}")
    scheme, _, rest = url.partition("://")
    return _OPENERS[scheme](rest, max_bytes, clock)


def _memory(_: str, max_bytes: int, clock: Clock) -> Store:
    from stratacache.stores.memory import MemoryStore

    return MemoryStore(max_bytes, clock)


def _sqlite(rest: str, max_bytes: int, clock: Clock) -> Store:
    from stratacache.stores.sqlite import SQLiteStore

    return SQLiteStore(Path(rest[1:]).expanduser(), max_bytes, clock)


# A backend is imported when it is named: nobody waits for a client library that is not used.
_OPENERS: dict[str, Callable[[str, int, Clock], Store]] = {"memory": _memory, "sqlite": _sqlite}
