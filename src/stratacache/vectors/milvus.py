"""An index on Milvus: one collection for each embedder, whose partition key is the partition of the questions.

Rows have no expiry that Milvus knows: searches filter by it, and expired rows are deleted now and then. The collection
is made when it is missing. Milvus' client blocks, so it runs in threads.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote

import grpc  # type: ignore[import-untyped]
import msgspec
from pymilvus import DataType, MilvusClient
from pymilvus.exceptions import MilvusException

from stratacache.errors import SettingsError, StoreError, VectorIndexError
from stratacache.ports import Clock, Vector
from stratacache.types import Candidate, IndexStats, Question, Secret
from stratacache.vectors.rows import unit
from stratacache.vectors.served import BUDGET, Gate, mark_of, pack, unpack, until

_THREADS = 8
_WAITING = 256  # operations; more mean that the server cannot follow
_SWEEP_SECONDS = 30.0  # between two deletions of what has expired
_INDEX = {"M": 16, "efConstruction": 200}
_EXPANSION_SEARCH = 128
_ROW_BYTES = 700  # beside the vector: estimated
_LOST = (100, 101)  # codes: the collection is not found, or not loaded
_PREFIX = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")

# Each failure is logged there with a traceback, however many there are; they are raised as well.
logging.getLogger("pymilvus").setLevel(logging.CRITICAL)

T = TypeVar("T")


class MilvusPlace(msgspec.Struct, frozen=True):
    """A Milvus server. ``prefix`` begins the collections' names."""

    address: str
    user: str = ""
    password: Secret = Secret()
    database: str = ""
    tls: bool = False
    prefix: str = "strata"

    @classmethod
    def parse(cls, rest: str) -> MilvusPlace:
        """``[user:password@]host[:port][/database][?tls=true&prefix=word]``, what follows ``milvus://``.

        Raises:
            SettingsError: it is no such thing. The message never repeats it.
        """
        before, _, query = rest.partition("?")
        authority, _, database = before.partition("/")
        login, _, address = authority.rpartition("@")
        user, _, password = login.partition(":")
        options = dict(parse_qsl(query, keep_blank_values=True))
        tls, prefix = options.pop("tls", "false"), options.pop("prefix", "strata")
        if options:
            raise SettingsError(f"index: milvus:// knows tls and prefix, not {', '.join(sorted(options))}")
        if tls not in ("true", "false"):
            raise SettingsError("index: tls must be true or false")
        if not _PREFIX.fullmatch(prefix):
            raise SettingsError("index: prefix must be letters, digits and _")
        host, _, port = address.rpartition(":") if ":" in address else (address, "", "19530")
        if not host or not port.isdecimal():
            raise SettingsError("index: milvus:// needs host or host:port")
        return cls(
            f"{host}:{port}", unquote(user), Secret(unquote(password)), database, tls == "true", prefix
        )


class MilvusIndex:
    """A ``ports.VectorIndex`` on Milvus, with whole (float32) vectors in a graph.

    Connects when it is first used, and again after a failure.

    Args:
        fingerprint: of the embedder; vectors of another are in another collection.
        clock: wall time judges expiry.
        budget: seconds for one operation.
    """

    def __init__(
        self, place: MilvusPlace, dimension: int, fingerprint: str, clock: Clock, *, budget: float = BUDGET
    ) -> None:
        self._place = place
        self._dimension = dimension
        self._clock = clock
        self._budget = budget
        self._collection = f"{place.prefix}_{mark_of(fingerprint, dimension)}"
        self._gate = Gate(
            f"milvus {place.address}",
            budget,
            (StoreError, MilvusException, grpc.RpcError, grpc.FutureTimeoutError, OSError, ValueError),
        )
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="milvus")
        self._waiting = 0
        self._making = asyncio.Lock()
        self._client: Any = None  # once its collection is known to fit
        self._swept_at = clock.monotonic()

    async def search(self, partition: bytes, vector: Vector, count: int) -> Sequence[Candidate]:
        asked = [unit(vector, self._dimension).tolist()]
        if count <= 0:
            return []
        chosen = f'partition == "{partition.hex()}" and expires > {self._clock.now()!r}'
        found = await self._run(
            lambda client: client.search(
                self._collection,
                asked,
                filter=chosen,
                limit=count,
                output_fields=["question"],
                search_params={"params": {"ef": max(_EXPANSION_SEARCH, 2 * count)}},
                timeout=self._budget,
            )
        )
        candidates = []
        for row in found[0]:
            question = _question_in(row["entity"].get("question", ""))
            if question is not None and question.partition == partition:
                candidates.append(Candidate(question, float(row["distance"])))
        return candidates

    async def add(self, question: Question, vector: Vector) -> None:
        stored = unit(vector, self._dimension).tolist()
        if not question.expires_at > self._clock.now():
            await self.remove([question.digest])
            return
        row = {
            "digest": question.digest.hex(),
            "partition": question.partition.hex(),
            "expires": until(question),
            "question": base64.b64encode(pack(question)).decode(),
            "vector": stored,
        }
        await self._run(lambda client: client.upsert(self._collection, [row], timeout=self._budget))
        if self._clock.monotonic() - self._swept_at >= _SWEEP_SECONDS:
            self._swept_at = self._clock.monotonic()
            past = f"expires <= {self._clock.now()!r}"
            await self._run(lambda client: client.delete(self._collection, filter=past, timeout=self._budget))

    async def remove(self, digests: Sequence[bytes]) -> None:
        ids = [digest.hex() for digest in digests]
        if ids or self._gate.closed:
            await self._run(lambda client: client.delete(self._collection, ids=ids, timeout=self._budget))

    async def stats(self) -> IndexStats:
        """As ``ports.VectorIndex``, with expired questions that are not deleted yet; partitions are not known: 0."""
        rows = await self._run(
            lambda client: client.query(
                self._collection, filter="", output_fields=["count(*)"], timeout=self._budget
            )
        )
        vectors = int(rows[0]["count(*)"])
        return IndexStats(vectors, 0, vectors * (4 * self._dimension + _ROW_BYTES))

    async def check(self) -> None:
        """As ``ports.VectorIndex``: whether the collection is there and fits."""
        await self._run(self._require_fit)

    async def close(self) -> None:
        if self._gate.closed:
            return
        self._gate.closed = True
        client, self._client = self._client, None
        if client is not None:
            self._threads.submit(client.close)
        self._threads.shutdown(wait=False)

    async def _run(self, step: Callable[[Any], T]) -> T:
        """``step`` with a client whose collection is there; one that was lost since is made again."""

        async def attempt() -> T:
            try:
                return await self._in_thread(step, await self._connected())
            except MilvusException as error:
                if error.code not in _LOST:
                    raise
            self._client = None
            return await self._in_thread(step, await self._connected())

        return await self._gate.run(attempt)

    async def _connected(self) -> Any:
        async with self._making:
            if self._client is None:
                self._client = await self._in_thread(lambda _: self._connect(), None)
            return self._client

    async def _in_thread(self, step: Callable[[Any], T], client: Any) -> T:
        if self._waiting >= _WAITING:
            raise VectorIndexError(f"{_WAITING} operations are waiting for milvus already")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, step, client)
        finally:
            self._waiting -= 1

    def _connect(self) -> Any:
        """A client, once the collection is there, fits and is loaded. In a thread."""
        place = self._place
        client = MilvusClient(
            uri=f"{'https' if place.tls else 'http'}://{place.address}",
            user=place.user,
            password=str(place.password),
            db_name=place.database,
            timeout=self._budget,
            dedicated=True,  # else all clients of one address share a connection, and one that closes it ends them
        )
        try:
            if not client.has_collection(self._collection, timeout=self._budget):
                self._create(client)
            self._require_fit(client)
            client.load_collection(self._collection, timeout=self._budget)
        except BaseException:
            client.close()
            raise
        return client

    def _create(self, client: Any) -> None:
        schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("digest", DataType.VARCHAR, max_length=64, is_primary=True)
        schema.add_field("partition", DataType.VARCHAR, max_length=64, is_partition_key=True)
        schema.add_field("expires", DataType.DOUBLE)
        schema.add_field("question", DataType.VARCHAR, max_length=65_535)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=self._dimension)
        indexes = client.prepare_index_params()
        indexes.add_index("vector", index_type="HNSW", metric_type="COSINE", params=_INDEX)
        client.create_collection(
            self._collection,
            schema=schema,
            index_params=indexes,
            consistency_level="Strong",
            timeout=self._budget,
        )

    def _require_fit(self, client: Any) -> None:
        told = client.describe_collection(self._collection, timeout=self._budget)
        fields = {field["name"]: field for field in told["fields"]}
        expected = {"digest", "partition", "expires", "question", "vector"}
        dimension = fields.get("vector", {}).get("params", {}).get("dim")
        if not expected <= fields.keys() or int(dimension or 0) != self._dimension:
            raise VectorIndexError(
                f"the collection {self._collection} is not for vectors of {self._dimension}: drop it, or use another "
                "prefix"
            )


def _question_in(value: str) -> Question | None:
    try:
        return unpack(base64.b64decode(value, validate=True))
    except (binascii.Error, ValueError):
        return None
