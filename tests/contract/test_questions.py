"""What every filter of questions promises: no false negatives within its capacity, and few false positives."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.clock import FakeClock
from tests.contract.backends import KINDS, Kind, kinds

from stratacache.errors import StoreError
from stratacache.ports import QuestionFilter

CAPACITY = 1000
ERROR = 0.01


def digest_of(name: object) -> bytes:
    return hashlib.sha256(str(name).encode()).digest()[:16]


@pytest.fixture(params=KINDS, ids=lambda kind: str(kind.name))
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


@pytest.fixture
async def questions(kind: Kind, tmp_path: Path) -> AsyncIterator[QuestionFilter]:
    async with kind.open(FakeClock(), 200_000, tmp_path) as backend:
        made = backend.questions(CAPACITY, ERROR)
        yield made
        await made.close()


async def test_what_was_noted_was_seen(questions: QuestionFilter) -> None:
    assert not await questions.seen(digest_of("a"))
    assert not await questions.note(digest_of("a"))
    assert await questions.seen(digest_of("a"))
    assert await questions.note(digest_of("a"))
    assert not await questions.seen(digest_of("b"))


async def test_asking_notes_nothing(questions: QuestionFilter) -> None:
    for _ in range(3):
        assert not await questions.seen(digest_of("a"))
    assert (await questions.stats()).fill == 0


async def test_nothing_is_forgotten_within_the_capacity(questions: QuestionFilter) -> None:
    for number in range(CAPACITY):
        await questions.note(digest_of(number))
    for number in range(CAPACITY):
        assert await questions.seen(digest_of(number))


async def test_it_does_not_fill_up(questions: QuestionFilter) -> None:
    for number in range(4 * CAPACITY):
        await questions.note(digest_of(number))
    for number in range(3 * CAPACITY, 4 * CAPACITY):
        assert await questions.seen(digest_of(number)), "the latest are the last to be forgotten"
    guessed = [await questions.seen(digest_of(f"never {number}")) for number in range(2000)]
    assert sum(guessed) < 2000 * ERROR * 4
    stats = await questions.stats()
    assert stats.capacity == CAPACITY
    assert CAPACITY <= stats.questions <= 2.2 * CAPACITY
    assert 0 < stats.fill <= 0.6
    assert 0 < stats.expected <= 2 * ERROR * 1.2
    assert stats.measured <= 2 * ERROR * 2


@kinds(questions=True)
async def test_instances_share_what_they_noted(questions: QuestionFilter, kind: Kind, tmp_path: Path) -> None:
    async with kind.open(FakeClock(), 200_000, tmp_path) as backend:
        other = backend.questions(CAPACITY, ERROR)
        assert not await other.note(digest_of("a"))
        assert await questions.seen(digest_of("a"))
        assert not await questions.note(digest_of("b"))
        assert await other.note(digest_of("b"))
        await other.close()


async def test_after_close_every_call_is_an_error_but_close(questions: QuestionFilter) -> None:
    await questions.close()
    await questions.close()
    for call in (questions.seen(digest_of("a")), questions.note(digest_of("a")), questions.stats()):
        with pytest.raises(StoreError, match="closed"):
            await call
