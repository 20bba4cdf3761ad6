"""No text makes the classifier raise, and what it says is consistent."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stratacache.policy.cacheability import CACHEABLE, REASONS, classify
from stratacache.policy.cacheability.gates import GATES

_WORDS = st.sampled_from(
    [
        "how",
        "do",
        "i",
        "my",
        "is",
        "it",
        "what",
        "怎么",
        "我的",
        "今天",
        "吗",
        "这个",
        "refund",
        "that?",
        "can't",
        "3",
        "%",
    ]
)
TEXTS = st.one_of(st.text(max_size=900), st.lists(_WORDS, max_size=60).map(" ".join))


@given(TEXTS)
def test_never_raises_and_is_consistent(text: str) -> None:
    said = classify(text)
    assert said == classify(text)
    assert said.reason in REASONS
    assert said.reason in GATES or said.reason == said.kind
    assert said.cacheable == (said.kind in CACHEABLE)
    assert not said.cacheable or said.stands_alone
    assert 0 <= said.confidence <= 1


@given(TEXTS, st.sampled_from([" ", "\n", "\u3000", "\t "]))
def test_white_space_around_changes_nothing(text: str, space: str) -> None:
    assert classify(space + text.strip() + space) == classify(text.strip()) or len(text) > 590
