"""Where entries are kept: one contract (``ports.Store``), several backends, named by URL."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import parse_qsl

from stratacache.errors import SettingsError
from stratacache.ports import Clock
from stratacache.settings import SCHEMES, store_problem
from stratacache.stores.backend import Backend
from stratacache.stores.bloom import BloomFilter

__all__ = ["Backend", "open_backend"]


def open_backend(url: str, *, max_bytes: int, clock: Clock) -> Backend:
    """The store that ``url`` names and what comes with it, ready for use.

    Args:
        url: as the setting ``store`` documents it.
        max_bytes: bound of payload and overhead; a shared server has a bound of its own.
        clock: what entries expire by.

    Raises:
        SettingsError: the URL names no store or misses its path, ``max_bytes`` is not positive, or the extra with the
            client library is not installed.
        StoreError: the store is there but cannot be used, such as a file of another program. A server that cannot be
            reached is no error: it may come.
    """
    problem = store_problem(url)
    if problem is not None:
        raise SettingsError(f"store: {problem}")
    scheme, _, rest = url.partition("://")
    return _OPENERS[scheme](rest, max_bytes, clock)


def _redis(scheme: str) -> Callable[[str, int, Clock], Backend]:
    def opened(rest: str, _: int, clock: Clock) -> Backend:
        try:
            from stratacache.stores.redis import open_redis
        except ModuleNotFoundError as error:
            raise SettingsError(
                f"store: {scheme}:// needs {error.name}: pip install 'stratacache[redis]'"
            ) from None
        return open_redis(f"{scheme}://{rest}", clock)

    return opened


def _memory(_: str, max_bytes: int, clock: Clock) -> Backend:
    from stratacache.stores.memory import MemoryStore

    store = MemoryStore(max_bytes, clock)
    return Backend(store, listing=store)


def _sqlite(rest: str, max_bytes: int, clock: Clock) -> Backend:
    from stratacache.stores.sqlite import SQLiteStore
    from stratacache.stores.sqlite_relay import SQLiteRelay

    path = Path(rest[1:]).expanduser()
    store = SQLiteStore(path, max_bytes, clock)
    relay = SQLiteRelay(path.with_name(path.name + ".flights"), clock)
    questions = partial(BloomFilter, path=path.with_name(path.name + ".questions"))
    return Backend(store, questions, store.bulletin(), relay, store.question_log(), store)


def _memcached(rest: str, max_bytes: int, clock: Clock) -> Backend:
    from stratacache.stores.memcached import MemcachedStore
    from stratacache.stores.memcached_relay import MemcachedRelay
    from stratacache.stores.memcached_ring import Ring

    hosts, _, options = rest.partition("?")  # max_bytes: the servers have their own
    prefix = dict(parse_qsl(options)).get("prefix", "stratacache")
    ring = Ring.of(hosts.rstrip("/"))
    return Backend(MemcachedStore(ring, clock, prefix=prefix), relay=MemcachedRelay(ring, prefix=prefix))


def _rocksdb(rest: str, max_bytes: int, clock: Clock) -> Backend:
    try:
        from stratacache.stores.rocksdb import RocksDBStore
    except ImportError as error:
        raise SettingsError("store: rocksdb:// needs an extra: pip install 'stratacache[rocksdb]'") from error

    path = Path(rest[1:]).expanduser()
    questions = partial(BloomFilter, path=path.with_name(path.name + ".questions"))
    store = RocksDBStore(path, max_bytes, clock)
    return Backend(store, questions=questions, listing=store)


# A backend is imported when it is named: nobody waits for a client library that is not used.
_OPENERS: dict[str, Callable[[str, int, Clock], Backend]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "memcached": _memcached,
    "rocksdb": _rocksdb,
    **{scheme: _redis(scheme) for scheme in SCHEMES if scheme.startswith("redis")},
}
