"""Vector servers that are down, hang, forget, or hold something else: an error in time, and as before afterwards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Literal

import msgspec
import numpy as np
import pytest
from pymilvus import DataType, MilvusClient
from tests.clock import FakeClock
from tests.contract.test_vector_index import HERE, digest_of, question_of, texts, vectors_of
from tests.contract.vector_servers import DIMENSION, FINGERPRINT, redisearch
from tests.servers.milvus import MilvusServer
from tests.servers.redis import RedisServer

from stratacache.errors import SettingsError, VectorIndexError
from stratacache.ports import VectorIndex
from stratacache.vectors.served import mark_of
from stratacache.vectors.servers import open_vector_server

Method = Literal["sets", "search", "milvus"]
MARK = mark_of(FINGERPRINT, DIMENSION)


class Place(msgspec.Struct, frozen=True):
    """A server of the test's own, and how an index on it is opened."""

    server: RedisServer | MilvusServer
    method: Method

    @property
    def url(self) -> str:
        return self.server.url if self.method == "milvus" else f"{self.server.url}?method={self.method}"

    def open(self, clock: FakeClock, fingerprint: str = FINGERPRINT, budget: float = 5.0) -> VectorIndex:
        return open_vector_server(self.url, DIMENSION, fingerprint, clock, budget=budget)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["sets", "search", "milvus"])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    if request.param == "milvus":
        with MilvusServer() as milvus:
            yield Place(milvus, "milvus")
    else:
        with RedisServer(options=("--loadmodule", str(redisearch()))) as redis:
            yield Place(redis, request.param)


@pytest.fixture
async def index(place: Place, clock: FakeClock) -> AsyncIterator[VectorIndex]:
    opened = place.open(clock)
    yield opened
    await opened.close()


async def eventually(true: Callable[[], object]) -> None:
    """Until ``true()``, which may raise VectorIndexError meanwhile, gives no error."""
    end = time.monotonic() + 60.0
    while True:
        try:
            await true()  # type: ignore[misc]
        except VectorIndexError:
            assert time.monotonic() < end
            await asyncio.sleep(0.05)
        else:
            return


async def found(index: VectorIndex, text: str) -> None:
    """Until ``text`` is; an index that is made anew takes in what is there in the background."""
    async with asyncio.timeout(30.0):
        while True:
            if text in await texts(index, vectors_of(1)[0]):
                return
            await asyncio.sleep(0.02)


async def refused(index: VectorIndex, clock: FakeClock) -> None:
    (vector,) = vectors_of(1)
    for call in (
        index.search(HERE, vector, 10),
        index.add(question_of(clock, "a"), vector),
        index.remove([digest_of("a")]),
        index.stats(),
        index.check(),
    ):
        with pytest.raises(VectorIndexError):
            await call


async def test_instances_share_it_and_it_outlives_them(
    place: Place, index: VectorIndex, clock: FakeClock
) -> None:
    (vector,) = vectors_of(1)
    other = place.open(clock)
    await index.add(question_of(clock, "a"), vector)
    assert await texts(other, vector) == ["question a"]
    await other.remove([digest_of("a")])
    assert await texts(index, vector) == []
    await other.add(question_of(clock, "b"), vector)
    await other.close()
    later = place.open(clock)
    assert await texts(later, vector) == ["question b"]
    await later.close()


async def test_the_vectors_of_two_embedders_do_not_meet(
    place: Place, index: VectorIndex, clock: FakeClock
) -> None:
    (vector,) = vectors_of(1)
    other = place.open(clock, fingerprint="another")
    await index.add(question_of(clock, "a"), vector)
    await other.add(question_of(clock, "b"), vector)
    assert await texts(index, vector) == ["question a"]
    assert await texts(other, vector) == ["question b"]
    await other.close()


async def test_a_server_that_is_down_is_an_error_until_it_is_up(
    place: Place, index: VectorIndex, clock: FakeClock
) -> None:
    (vector,) = vectors_of(1)
    await index.add(question_of(clock, "a"), vector)
    place.server.kill()
    async with asyncio.timeout(60.0):
        await refused(index, clock)
    place.server.start()
    await eventually(lambda: index.add(question_of(clock, "b"), vector))
    await found(index, "question b")


async def test_a_server_that_comes_later(place: Place, clock: FakeClock) -> None:
    place.server.kill()
    index = place.open(clock)
    async with asyncio.timeout(60.0):
        await refused(index, clock)
    place.server.start()
    (vector,) = vectors_of(1)
    await eventually(lambda: index.add(question_of(clock, "a"), vector))
    assert await texts(index, vector) == ["question a"]
    await index.close()


async def test_a_server_that_hangs_is_an_error_in_time(place: Place, clock: FakeClock) -> None:
    index = place.open(clock, budget=0.5)
    (vector,) = vectors_of(1)
    await eventually(lambda: index.add(question_of(clock, "a"), vector))
    place.server.pause()
    try:
        async with asyncio.timeout(15.0):  # five calls of half a second, on a busy machine
            await refused(index, clock)
    finally:
        place.server.resume()
    await eventually(lambda: index.add(question_of(clock, "b"), vector))
    await index.close()


async def test_what_the_server_lost_is_begun_anew(place: Place, index: VectorIndex, clock: FakeClock) -> None:
    (vector,) = vectors_of(1)
    await index.add(question_of(clock, "a"), vector)
    if isinstance(place.server, RedisServer):
        place.server.flush()
    else:
        client = MilvusClient(place.server.url.replace("milvus", "http"), dedicated=True)
        client.drop_collection(f"strata_{MARK}")
        client.close()
    assert await texts(index, vector) == []
    await index.add(question_of(clock, "b"), vector)
    await found(index, "question b")
    await index.check()


async def test_an_index_for_other_vectors_is_refused(
    place: Place, index: VectorIndex, clock: FakeClock
) -> None:
    (vector,) = vectors_of(1)
    if place.method == "sets":
        other = np.ones(3, np.float32).tobytes()
        place.server.command("VADD", f"{{strata}}vs:{MARK}:{HERE.hex()}", "FP32", other, "x")  # type: ignore[union-attr]
    elif place.method == "search":
        fields = ("v", "VECTOR", "FLAT", 6, "TYPE", "FLOAT32", "DIM", 3, "DISTANCE_METRIC", "L2")
        place.server.command("FT.CREATE", f"{{strata}}vi:{MARK}", "SCHEMA", *fields)  # type: ignore[union-attr]
    else:
        client = MilvusClient(place.server.url.replace("milvus", "http"), dedicated=True)
        schema = client.create_schema()
        schema.add_field("digest", DataType.VARCHAR, max_length=64, is_primary=True)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=3)
        client.create_collection(f"strata_{MARK}", schema=schema)
        client.close()
    with pytest.raises(VectorIndexError):
        await index.add(question_of(clock, "a"), vector)
    with pytest.raises(VectorIndexError):
        await index.search(HERE, vector, 10)


async def test_a_question_that_is_too_large_is_refused(index: VectorIndex, clock: FakeClock) -> None:
    (vector,) = vectors_of(1)
    with pytest.raises(VectorIndexError, match="larger"):
        await index.add(question_of(clock, "a", text="x" * 100_000), vector)
    with pytest.raises(VectorIndexError, match="UTF-8"):
        await index.add(question_of(clock, "a", text="\ud800"), vector)
    assert await texts(index, vector) == []


@pytest.mark.parametrize("place", ["sets"], indirect=True)
async def test_vector_sets_are_swept_as_questions_come(
    place: Place, index: VectorIndex, clock: FakeClock
) -> None:
    vectors = vectors_of(50)
    for number, vector in enumerate(vectors[:40]):
        await index.add(question_of(clock, number, partition=bytes([number % 4]) * 16, ttl=10.0), vector)
    clock.advance(10.0)
    for number, vector in enumerate(vectors[40:]):
        await index.add(question_of(clock, f"new {number}"), vector)
    stats = await index.stats()
    assert (stats.vectors, stats.partitions) == (10, 1)
    await index.check()


@pytest.mark.parametrize("place", ["milvus"], indirect=True)
async def test_milvus_is_swept_now_and_then(index: VectorIndex, clock: FakeClock) -> None:
    vectors = vectors_of(11)
    for number, vector in enumerate(vectors[:10]):
        await index.add(question_of(clock, number, ttl=10.0), vector)
    clock.advance(60.0)
    await index.add(question_of(clock, "new"), vectors[10])
    assert (await index.stats()).vectors == 1


@pytest.mark.parametrize("place", ["sets", "search"], indirect=True)
async def test_what_is_not_ours_is_no_candidate(place: Place, index: VectorIndex, clock: FakeClock) -> None:
    (vector,) = vectors_of(1)
    await index.add(question_of(clock, "a"), vector)
    server, blob, until = place.server, vector.tobytes(), clock.now() + 600.0
    assert isinstance(server, RedisServer)
    if place.method == "sets":
        key = f"{{strata}}vs:{MARK}:{HERE.hex()}"
        for number, attributes in enumerate((f'{{"e":{until}}}', f'{{"e":{until},"q":"AAAA"}}', "[]", "")):
            server.command("VADD", key, "FP32", blob, str(number), "NOQUANT", "SETATTR", attributes)
    else:
        foreign = ("p", HERE.hex(), "x", str(until), "v", blob)
        server.command("HSET", f"{{strata}}vd:{MARK}:1", *foreign)
        server.command("HSET", f"{{strata}}vd:{MARK}:2", *foreign, "q", b"\xc1")
    assert await texts(index, vector) == ["question a"]


@pytest.mark.parametrize(
    "url",
    [
        "qdrant://host",
        "redis://host?method=flat",
        "redis://host:port",
        "milvus://",
        "milvus://host?secure=1",
        "milvus://host?tls=yes",
        "milvus://host:port",
        "milvus://host?prefix=a-b",
    ],
)
def test_a_url_that_names_no_vector_server_is_refused(url: str, clock: FakeClock) -> None:
    with pytest.raises(SettingsError):
        open_vector_server(url, DIMENSION, FINGERPRINT, clock)
