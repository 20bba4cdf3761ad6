"""New and returning users: each new once, within a bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stratacache.observe.visitors import Visitors


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 12).map(str)), max_size=80), st.integers(2, 6)
)
def test_who_was_here_among_the_last_is_returning_and_who_never_was_is_new(
    visits: list[tuple[str, str]], generation: int
) -> None:
    visitors, seen = Visitors(generation), list[tuple[str, str]]()
    for visit in visits:
        age = visitors.age(*visit)
        visitors.check()
        if visit not in seen:
            assert age == "new"
        elif visit in seen[-generation:]:
            assert age == "returning"
        seen.append(visit)


def test_who_says_nothing_of_themselves_is_unknown() -> None:
    assert Visitors().age("acme", "") == "unknown"
