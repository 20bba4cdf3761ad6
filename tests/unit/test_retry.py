"""Retries: what is worth one, how long to wait, and how many there may be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratacache.policy import retry


@pytest.mark.parametrize(
    ("status", "headers", "worth"),
    [
        (200, {}, False),
        (400, {}, False),
        (401, {}, False),
        (408, {}, True),
        (429, {}, True),
        (500, {}, True),
        (501, {}, False),
        (503, {}, True),
        (529, {}, True),
        (429, {"x-should-retry": "false"}, False),
        (400, {"x-should-retry": "true"}, True),
    ],
)
def test_what_may_fare_better(status: int, headers: dict[str, str], worth: bool) -> None:
    assert retry.may_fare_better(status, headers) is worth


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Thu, 01 Jan 1970 00:02:00 GMT"}, 20.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:30 GMT"}, 0.0),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "x", "retry-after": "9"}, 9.0),
    ],
)
def test_what_the_server_asks_for(headers: dict[str, str], seconds: float | None) -> None:
    assert retry.retry_after(headers, now=100.0) == seconds


@given(st.integers(0, 1000), st.floats(0, 1, exclude_max=True))
def test_pauses_double_within_bounds(number: int, draw: float) -> None:
    whole = min(retry.LONGEST_PAUSE, retry.FIRST_PAUSE * 2.0 ** min(number, 16))
    assert whole / 2 <= retry.pause(number, draw) <= whole


@given(st.lists(st.booleans(), max_size=400))
def test_retries_stay_a_share_of_requests(steps: list[bool]) -> None:
    budget = retry.RetryBudget()
    requests = spent = 0
    for is_request in steps:
        if is_request:
            budget.request()
            requests += 1
        else:
            spent += budget.spend()
    assert spent <= 10 + 0.2 * requests + 1e-6


def test_an_outage_uses_the_reserve_up() -> None:
    budget = retry.RetryBudget()
    assert [budget.spend() for _ in range(11)] == [True] * 10 + [False]
    for _ in range(5):
        budget.request()
    assert budget.spend()
