"""The curve that the error bound shows to people."""

from __future__ import annotations

from stratacache.policy.bound.picture import MOST_PICTURES
from stratacache.policy.bound.pooled import Bound, Limits


def taught() -> Bound:
    bound = Bound(Limits(max_error=0.02))
    for number in range(400):
        bound.looked("default")
        entry = number.to_bytes(16, "big")
        bound.decide("default", entry, 0.95, 0.5, language="en")
        bound.observe("default", entry, 0.95, number % 100 != 0, language="en")
    return bound


def test_it_is_what_the_bound_decides_by_and_changes_nothing() -> None:
    bound = taught()
    before = bound.snapshot()
    (picture,) = bound.pictures()
    assert bound.snapshot() == before
    numbers = bound.explain("default", bytes(15) + b"\xff" * 1, 0.95, language="en")
    assert picture.threshold_p == numbers["threshold_p"]
    assert (picture.scene, picture.risk, picture.language) == ("default", "", "en")
    assert (picture.requests, picture.hits, picture.max_error) == (400, numbers["hits"], 0.02)
    risks = [point.risk for point in picture.points]
    assert risks == sorted(risks, reverse=True)
    assert all(point.risk <= point.upper <= 1 for point in picture.points)
    assert sum(point.wrong for point in picture.points) == 4


def test_where_nothing_can_be_served_there_is_no_threshold() -> None:
    bound = Bound(Limits(max_error=0.0))
    bound.looked("default")
    assert bound.pictures()[0].threshold_p is None


def test_there_are_only_so_many_and_the_busiest_come_first() -> None:
    bound = Bound()
    for number in range(MOST_PICTURES + 5):
        for _ in range(number + 1):
            bound.looked(f"scene{number}")
    pictures = bound.pictures()
    assert len(pictures) == MOST_PICTURES
    assert pictures[0].scene == f"scene{MOST_PICTURES + 4}"
