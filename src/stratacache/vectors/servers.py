"""Which vector server a URL names."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

from stratacache.errors import SettingsError
from stratacache.ports import Clock, VectorIndex
from stratacache.vectors.served import BUDGET


def open_vector_server(
    url: str, dimension: int, fingerprint: str, clock: Clock, *, budget: float = BUDGET
) -> VectorIndex:
    """The index on the server that ``url`` names; connects when it is first used.

    Args:
        url: ``redis[s]://…`` as for a store, with ``method=sets`` (vector sets, the default) or ``method=search``
            (the query engine) among its options; or ``milvus://[user:password@]host:port[/database]``, with
            ``tls=true`` for an encrypted connection.
        fingerprint: of the embedder; the vectors of another are kept apart.
        budget: seconds for one operation.

    Raises:
        SettingsError: the URL is no good, or the extra with the client library is not installed.
    """
    scheme, _, rest = url.partition("://")
    if scheme == "milvus":
        return _milvus(rest, dimension, fingerprint, clock, budget)
    if scheme in ("redis", "rediss"):
        return _redis(url, dimension, fingerprint, clock, budget)
    raise SettingsError(f"index: {scheme}:// is no vector server; use redis://, rediss:// or milvus://")


def _redis(url: str, dimension: int, fingerprint: str, clock: Clock, budget: float) -> VectorIndex:
    try:
        from stratacache.stores.redis_nodes import connect
        from stratacache.stores.redis_url import parse_redis_url
        from stratacache.vectors.redis_search import RedisSearchIndex
        from stratacache.vectors.redis_vector_set import RedisVectorSet
    except ModuleNotFoundError as error:
        raise SettingsError(f"index: redis:// needs {error.name}: pip install 'stratacache[redis]'") from None

    before, _, query = url.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    methods: dict[str, type[RedisVectorSet] | type[RedisSearchIndex]] = {
        "sets": RedisVectorSet,
        "search": RedisSearchIndex,
    }
    method = options.pop("method", "sets")
    if method not in methods:
        raise SettingsError(f"index: method must be sets or search, not {method!r}")
    nodes = connect(parse_redis_url(f"{before}?{urlencode(options)}" if options else before))
    return methods[method](nodes, dimension, fingerprint, clock, budget=budget)


def _milvus(rest: str, dimension: int, fingerprint: str, clock: Clock, budget: float) -> VectorIndex:
    try:
        from stratacache.vectors.milvus import MilvusIndex, MilvusPlace
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"index: milvus:// needs {error.name}: pip install 'stratacache[milvus]'"
        ) from None

    return MilvusIndex(MilvusPlace.parse(rest), dimension, fingerprint, clock, budget=budget)
