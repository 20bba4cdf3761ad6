"""The filter of questions: no false negative within its capacity, false positives at the rate it reports."""

from __future__ import annotations

import hashlib
import multiprocessing
import random
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratacache.errors import SettingsError, StoreError
from stratacache.stores.bloom import BloomFilter


def digest_of(name: object) -> bytes:
    return hashlib.sha256(str(name).encode()).digest()[:16]


@pytest.mark.parametrize("shared", [False, True])
async def test_the_rates_are_within_their_bounds_whatever_the_number_of_questions(
    tmp_path: Path, shared: bool
) -> None:
    capacity, error = 2_000, 0.01
    questions = BloomFilter(
        capacity, error, tmp_path / "questions" if shared else None, random_bytes=random.Random(1).randbytes
    )
    new = 0
    for number in range(5 * capacity):
        new += not await questions.note(digest_of(number))
        if number % capacity == capacity - 1:
            stats = await questions.stats()
            held = [await questions.seen(digest_of(old)) for old in range(number + 1 - capacity, number + 1)]
            assert all(held)
            assert stats.expected <= 2.1 * error
            assert stats.measured <= 2.5 * error
            assert stats.questions <= 2.1 * capacity
            assert stats.fill <= 0.55
    assert new > 0.97 * 5 * capacity
    gone = [await questions.seen(digest_of(number)) for number in range(capacity)]
    assert sum(gone) <= 3 * error * capacity, "the oldest questions are forgotten"
    await questions.close()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 60), max_size=300), st.integers(1, 20))
async def test_the_last_questions_are_never_forgotten(numbers: list[int], capacity: int) -> None:
    questions = BloomFilter(capacity, 0.001)
    recent: dict[int, None] = {}  # in the order of their last note
    for number in numbers:
        known = await questions.note(digest_of(number))
        assert known or number not in list(recent)[-capacity:]
        recent.pop(number, None)
        recent[number] = None
        for old in list(recent)[-capacity:]:
            assert await questions.seen(digest_of(old))


async def test_a_question_that_is_noted_again_and_again_outlives_the_generations() -> None:
    questions = BloomFilter(100, 0.01)
    for number in range(1_000):
        await questions.note(digest_of(number))
        if number % 50 == 0:
            assert await questions.note(digest_of("often")) == (number > 0)


async def test_stats_of_an_empty_filter() -> None:
    stats = await BloomFilter(1_000).stats()
    assert (stats.questions, stats.fill, stats.expected, stats.measured) == (0, 0.0, 0.0, 0.0)


async def test_the_estimate_is_near_the_number_of_questions() -> None:
    questions = BloomFilter(10_000)
    for number in range(4_000):
        await questions.note(digest_of(number))
        await questions.note(digest_of(number))
    assert abs((await questions.stats()).questions - 4_000) < 120


async def test_a_file_keeps_what_was_noted_and_is_nobody_elses(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "questions"
    first = BloomFilter(1_000, 0.01, path)
    second = BloomFilter(1_000, 0.01, path)
    assert not await first.note(digest_of("a"))
    assert await second.seen(digest_of("a"))
    await first.close()
    await second.close()
    third = BloomFilter(1_000, 0.01, path)
    assert await third.note(digest_of("a"))
    await third.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_one_process_rotates_for_all(tmp_path: Path) -> None:
    both = [BloomFilter(100, 0.01, tmp_path / "questions") for _ in range(2)]
    for number in range(1_000):
        await both[number % 2].note(digest_of(number))
        for old in range(max(0, number - 95), number + 1):
            assert await both[(number + 1) % 2].seen(digest_of(old))
    for questions in both:
        assert (await questions.stats()).fill < 0.55
        await questions.close()


@pytest.mark.parametrize(
    "content",
    [b"x", b"another program's file" * 200, b"\xff" * 2464, b"\x00" * 2464],
    ids=["short", "foreign", "ones", "zeros"],
)
async def test_a_foreign_or_damaged_file_is_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "questions"
    path.write_bytes(content)
    questions = BloomFilter(1_000, 0.01, path)
    assert not await questions.seen(digest_of("a"))
    assert not await questions.note(digest_of("a"))
    assert await questions.seen(digest_of("a"))
    await questions.close()


async def test_a_filter_whose_bits_are_all_set_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "questions"
    await BloomFilter(1_000, 0.01, path).close()
    content = path.read_bytes()
    path.write_bytes(content[:64] + b"\xff" * (len(content) - 64))
    questions = BloomFilter(1_000, 0.01, path)
    assert not await questions.seen(digest_of("a"))
    await questions.close()


async def test_another_capacity_replaces_the_file_and_leaves_the_one_in_use_alone(tmp_path: Path) -> None:
    path = tmp_path / "questions"
    old = BloomFilter(1_000, 0.01, path)
    await old.note(digest_of("a"))
    new = BloomFilter(100, 0.01, path)
    assert not await new.seen(digest_of("a"))
    assert await old.seen(digest_of("a"))
    assert not await old.note(digest_of("b"))
    await old.close()
    await new.close()


def _note_all(path: Path, first: int, count: int) -> None:
    import asyncio

    async def work() -> None:
        questions = BloomFilter(50_000, 0.01, path)
        for number in range(first, first + count):
            await questions.note(digest_of(number))
        await questions.close()

    asyncio.run(work())


async def test_processes_that_note_at_once_lose_next_to_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    path = tmp_path / "questions"
    workers = [context.Process(target=_note_all, args=(path, 10_000 * n, 10_000)) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    questions = BloomFilter(50_000, 0.01, path)
    missed = sum([not await questions.seen(digest_of(number)) for number in range(30_000)])
    await questions.close()
    assert missed <= 3


async def test_a_file_that_cannot_be_made_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "questions").mkdir()
    with pytest.raises(StoreError, match="cannot open the question filter"):
        BloomFilter(1_000, 0.01, tmp_path / "questions")


@pytest.mark.parametrize(("capacity", "error"), [(0, 0.01), (10, 0.0), (10, 1.0)])
def test_a_filter_that_could_not_work_is_refused(capacity: int, error: float) -> None:
    with pytest.raises(SettingsError):
        BloomFilter(capacity, error)


async def test_after_close_every_call_is_an_error_but_close(tmp_path: Path) -> None:
    for questions in (BloomFilter(10), BloomFilter(10, 0.01, tmp_path / "questions")):
        await questions.close()
        await questions.close()
        for call in (questions.seen(digest_of("a")), questions.note(digest_of("a")), questions.stats()):
            with pytest.raises(StoreError, match="closed"):
                await call
