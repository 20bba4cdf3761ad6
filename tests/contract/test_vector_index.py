"""What every vector index promises, tried on every kind for real."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from tests.clock import FakeClock
from tests.contract.vector_kinds import DIMENSION, INDEX_KINDS, VectorKind

from stratacache.errors import VectorIndexError
from stratacache.ports import Vector, VectorIndex
from stratacache.types import Question

HERE, THERE = b"h" * 16, b"\x00\xff" * 8


def digest_of(name: object) -> bytes:
    return hashlib.sha256(str(name).encode()).digest()[:16]


def question_of(
    clock: FakeClock, name: object, *, partition: bytes = HERE, ttl: float = 600.0, text: str = ""
) -> Question:
    now = clock.now()
    return Question(digest_of(name), partition, text or f"question {name}", now, now + ttl)


def vectors_of(count: int, seed: int = 0) -> list[Vector]:
    """Random unit vectors."""
    found = np.random.default_rng(seed).standard_normal((count, DIMENSION)).astype(np.float32)
    return list(found / np.linalg.norm(found, axis=1, keepdims=True))


def near(vector: Vector, distance: float = 0.05, seed: int = 1) -> Vector:
    """A unit vector close to ``vector``."""
    moved = vector + distance * vectors_of(1, seed)[0]
    found: Vector = moved / np.linalg.norm(moved)
    return found


async def texts(index: VectorIndex, vector: Vector, count: int = 10, partition: bytes = HERE) -> list[str]:
    return [found.question.text for found in await index.search(partition, vector, count)]


async def fill(index: VectorIndex, clock: FakeClock, count: int, partition: bytes = HERE) -> list[Vector]:
    found = vectors_of(count)
    for number, vector in enumerate(found):
        await index.add(question_of(clock, number, partition=partition), vector)
    return found


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=INDEX_KINDS, ids=lambda kind: str(kind.name))
def kind(request: pytest.FixtureRequest) -> VectorKind:
    chosen: VectorKind = request.param
    return chosen


@pytest.fixture
async def index(kind: VectorKind, clock: FakeClock, tmp_path: Path) -> AsyncIterator[VectorIndex]:
    async with kind.open(clock, tmp_path) as opened:
        yield opened
        await opened.check()


async def test_an_empty_index_has_no_candidates(index: VectorIndex) -> None:
    assert list(await index.search(HERE, vectors_of(1)[0], 10)) == []
    assert (await index.stats()).vectors == 0


async def test_every_field_of_a_question_comes_back(index: VectorIndex, clock: FakeClock) -> None:
    now = clock.now()
    question = Question(
        digest_of("a"), THERE, "你好 \x00 ?", now - 1.25, now + 600.5, "c0ffee", ("beef", "f00d")
    )
    vector = vectors_of(1)[0]
    await index.add(question, vector)
    (found,) = await index.search(THERE, vector, 10)
    assert found.question == question
    assert found.similarity == pytest.approx(1.0, abs=2e-3)


async def test_the_nearest_come_first_with_their_cosine(index: VectorIndex, clock: FakeClock) -> None:
    vectors = await fill(index, clock, 20)
    asked = near(vectors[7])
    found = await index.search(HERE, asked, 5)
    cosines = sorted((float(asked @ vector) for vector in vectors), reverse=True)[:5]
    assert [one.similarity for one in found] == pytest.approx(cosines, abs=2e-3)
    assert found[0].question.digest == digest_of(7)


async def test_a_vector_of_any_length_means_its_direction(index: VectorIndex, clock: FakeClock) -> None:
    one, other = vectors_of(2)
    await index.add(question_of(clock, "one"), one * 7)
    await index.add(question_of(clock, "other"), other)
    (found, _) = await index.search(HERE, one * np.float32(0.01), 2)
    assert found.question.digest == digest_of("one")
    assert found.similarity == pytest.approx(1.0, abs=2e-3)


async def test_no_more_than_asked_for(index: VectorIndex, clock: FakeClock) -> None:
    vectors = await fill(index, clock, 12)
    for count in (0, 1, 3, 12, 50):
        assert len(await index.search(HERE, vectors[0], count)) == min(count, 12)


async def test_partitions_do_not_meet(index: VectorIndex, clock: FakeClock) -> None:
    (vector,) = vectors_of(1)
    await index.add(question_of(clock, "here"), vector)
    await index.add(question_of(clock, "there", partition=THERE), vector)
    assert await texts(index, vector) == ["question here"]
    assert await texts(index, vector, partition=THERE) == ["question there"]
    assert await texts(index, vector, partition=b"x" * 16) == []
    assert (await index.stats()).vectors == 2


async def test_an_add_replaces(index: VectorIndex, clock: FakeClock) -> None:
    old, new = vectors_of(2)
    await index.add(question_of(clock, "a", text="old"), old)
    await index.add(question_of(clock, "a", text="new"), new)
    (found,) = await index.search(HERE, new, 10)
    assert found.question.text == "new"
    assert found.similarity == pytest.approx(1.0, abs=2e-3)
    assert (await index.stats()).vectors == 1


async def test_an_add_moves_a_question_to_another_partition(index: VectorIndex, clock: FakeClock) -> None:
    (vector,) = vectors_of(1)
    await index.add(question_of(clock, "a"), vector)
    await index.add(question_of(clock, "a", partition=THERE), vector)
    assert await texts(index, vector) == []
    assert await texts(index, vector, partition=THERE) == ["question a"]


async def test_what_was_removed_is_not_found(index: VectorIndex, clock: FakeClock) -> None:
    vectors = await fill(index, clock, 10)
    await index.remove([digest_of(3), digest_of("nobody"), digest_of(4), digest_of(3)])
    found = await texts(index, vectors[3], 10)
    assert len(found) == 8
    assert not {"question 3", "question 4"} & set(found)
    assert (await index.stats()).vectors == 8
    await index.remove([])
    await index.remove([digest_of(number) for number in range(10)])
    assert await texts(index, vectors[0]) == []


async def test_a_question_lives_until_its_expiry_and_no_longer(index: VectorIndex, clock: FakeClock) -> None:
    one, other = vectors_of(2)
    await index.add(question_of(clock, "short", ttl=10.0), one)
    await index.add(question_of(clock, "long", ttl=20.0), other)
    clock.advance(9.5)
    assert set(await texts(index, one)) == {"question short", "question long"}
    clock.advance(0.5)
    assert await texts(index, one) == ["question long"]


async def test_what_has_expired_is_not_taken_in_and_replaces(index: VectorIndex, clock: FakeClock) -> None:
    (vector,) = vectors_of(1)
    await index.add(question_of(clock, "a"), vector)
    await index.add(question_of(clock, "a", ttl=0.0), vector)
    assert await texts(index, vector) == []


async def test_a_question_may_live_for_ever(index: VectorIndex, clock: FakeClock) -> None:
    (vector,) = vectors_of(1)
    await index.add(question_of(clock, "a", ttl=math.inf), vector)
    clock.advance(1e8)
    (found,) = await index.search(HERE, vector, 1)
    assert found.question.expires_at == math.inf


@pytest.mark.parametrize(
    "spoiled",
    [
        np.full(DIMENSION, np.nan, np.float32),
        np.array([np.inf] + [0.0] * (DIMENSION - 1), np.float32),
        np.zeros(DIMENSION, np.float32),
        np.ones(DIMENSION + 1, np.float32),
        np.ones((1, DIMENSION), np.float32),
        np.ones(0, np.float32),
    ],
    ids=["nan", "infinite", "zero", "too long", "two-dimensional", "empty"],
)
async def test_a_vector_without_direction_is_refused(
    index: VectorIndex, clock: FakeClock, spoiled: Vector
) -> None:
    (vector,) = vectors_of(1)
    await index.add(question_of(clock, "a"), vector)
    with pytest.raises(VectorIndexError):
        await index.add(question_of(clock, "a"), spoiled)
    with pytest.raises(VectorIndexError):
        await index.search(HERE, spoiled, 10)
    assert await texts(index, vector) == ["question a"]


async def test_many_are_found_again(index: VectorIndex, clock: FakeClock, kind: VectorKind) -> None:
    vectors = await fill(index, clock, kind.many)
    matrix = np.stack(vectors)
    found = wanted = 0
    for number in range(0, kind.many, 7):
        asked = near(vectors[number], seed=number)
        true = {digest_of(at) for at in np.argsort(-(matrix @ asked))[:10].tolist()}
        got = {one.question.digest for one in await index.search(HERE, asked, 10)}
        assert digest_of(number) in got
        found, wanted = found + len(true & got), wanted + 10
    assert found >= (wanted * 0.995 if kind.exact else wanted * 0.97)  # float16 may swap near ties
    assert (await index.stats()).vectors == kind.many


async def test_of_many_those_removed_and_expired_are_not_found(
    index: VectorIndex, clock: FakeClock, kind: VectorKind
) -> None:
    vectors = vectors_of(kind.many)
    for number, vector in enumerate(vectors):
        await index.add(question_of(clock, number, ttl=10.0 if number % 3 == 0 else 600.0), vector)
    await index.remove([digest_of(number) for number in range(kind.many) if number % 3 == 1])
    clock.advance(10.0)
    left = set(range(2, kind.many, 3))
    for number in range(60):
        got = {one.question.text for one in await index.search(HERE, vectors[number], 10)}
        assert len(got) == 10
        assert got <= {f"question {at}" for at in left}
        assert (f"question {number}" in got) == (number in left)


async def test_searches_and_changes_at_once(index: VectorIndex, clock: FakeClock, kind: VectorKind) -> None:
    vectors = vectors_of(kind.many)

    async def change(first: int) -> None:
        for number in range(first, kind.many, 4):
            await index.add(question_of(clock, number), vectors[number])
            if number % 5 == 0:
                await index.remove([digest_of(number)])

    async def ask() -> None:
        for number in range(0, kind.many, 5):
            for one in await index.search(HERE, vectors[number], 10):
                at = int(one.question.text.split()[1])
                assert one.similarity == pytest.approx(float(vectors[number] @ vectors[at]), abs=2e-3)
                assert one.question.partition == HERE

    await asyncio.gather(*(change(first) for first in range(4)), *(ask() for _ in range(3)))
    assert (await index.stats()).vectors == kind.many - len(range(0, kind.many, 5))


async def test_after_close_all_is_refused_and_closing_twice_is_no_error(
    kind: VectorKind, clock: FakeClock, tmp_path: Path
) -> None:
    async with kind.open(clock, tmp_path) as opened:
        await opened.close()
        await opened.close()
        with pytest.raises(VectorIndexError):
            await opened.search(HERE, vectors_of(1)[0], 10)
        with pytest.raises(VectorIndexError):
            await opened.add(question_of(clock, "a"), vectors_of(1)[0])
        with pytest.raises(VectorIndexError):
            await opened.remove([digest_of("a")])
        with pytest.raises(VectorIndexError):
            await opened.stats()
