"""Records of the question log: what is written comes back, and nothing else is taken for a record."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.clock import FakeClock

from stratacache.errors import StoreError
from stratacache.ports import LogRecord
from stratacache.stores.log_records import LARGEST, Row, Sieve, decode, encode
from stratacache.types import Question

times = st.floats(allow_nan=False)
texts = st.text(max_size=50)
questions = st.builds(
    Question,
    st.binary(max_size=32),
    st.binary(max_size=32),
    texts,
    times,
    times,
    texts,
    st.lists(texts, max_size=3).map(tuple),
)
records = st.builds(LogRecord, questions, st.binary(max_size=40), texts)


@given(records)
def test_a_record_comes_back(record: LogRecord) -> None:
    assert decode(encode(record)) == record


@given(records, st.data())
def test_a_damaged_record_is_none(record: LogRecord, data: st.DataObject) -> None:
    whole = encode(record)
    at = data.draw(st.integers(0, len(whole) - 1))
    flipped = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    assert decode(flipped) is None
    assert decode(whole[:at]) is None


@given(st.binary(max_size=100))
def test_what_is_foreign_is_none(value: bytes) -> None:
    assert decode(value) is None


def test_what_cannot_be_written_is_refused() -> None:
    whole = Question(b"d", b"p", "a" * LARGEST, 0.0, math.inf)
    with pytest.raises(StoreError, match="larger"):
        encode(LogRecord(whole))
    with pytest.raises(StoreError, match="UTF-8"):
        encode(LogRecord(Question(b"d", b"p", "\ud800", 0.0, math.inf)))


@given(st.lists(st.sampled_from(["whole", "expired", "garbled"]), max_size=40), st.integers(1, 8))
async def test_a_reader_gets_all_that_is_whole_and_asks_for_nothing_twice(
    kinds: list[str], count: int
) -> None:
    rows: list[Row] = []
    for number, kind in enumerate(kinds):
        question = Question(bytes([number]), b"p", kind, 0.0, 1.0 if kind == "expired" else 1e18)
        value = b"garbled" if kind == "garbled" else encode(LogRecord(question))
        rows.append((bytes([number + 1]), value))
    read: list[bytes] = []

    async def following(after: bytes, most: int) -> list[Row]:
        first = after[0] if after else 0
        given_now = rows[first : first + most]
        read.extend(position for position, _ in given_now)
        return given_now

    sieve = Sieve(FakeClock())
    got: list[bytes] = []
    after = b""
    while found := await sieve.read(after, count, following):
        got += [record.question.digest for _, record in found]
        after = found[-1][0]
    again = len(read)
    assert await sieve.read(after, count, following) == []
    assert got == [bytes([number]) for number, kind in enumerate(kinds) if kind == "whole"]
    assert len(read) == again
    assert sieve.skipped >= kinds.count("garbled")
