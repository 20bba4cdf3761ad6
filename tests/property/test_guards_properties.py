"""Guards for any two texts: total, symmetric, the same at every call, and blind to what carries no meaning."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stratacache.policy.guards import Examination, examine

_WORDS = (
    "how why when is not all some 3 30 days km from to York Leeds better than enable disable before after Java get_user"
    " 怎么 不 没有 从 北京 到 上海 比 贵 开启 关闭 所有 三天 5元 把 被 猫 狗 追 ? , . and A B"
)
WORDS = st.sampled_from(_WORDS.split(" "))
SENTENCES = st.lists(WORDS, max_size=12).map(" ".join) | st.lists(WORDS, max_size=12).map("".join)
TEXTS = SENTENCES | st.text(max_size=80)


def said(examination: Examination) -> tuple[str, list[tuple[str, str]]]:
    return examination.verdict, sorted((found.guard, found.verdict) for found in examination.findings)


ONE_SIDED = frozenset({"additions", "instructions"})
"""Guards against what the stored question says beyond the asked one."""


@given(TEXTS, TEXTS)
def test_exchanging_the_texts_changes_no_verdict(one: str, other: str) -> None:
    there, back = (
        [found for found in said(examine(*pair))[1] if found[0] not in ONE_SIDED]
        for pair in ((one, other), (other, one))
    )
    assert there == back


@given(TEXTS, TEXTS)
def test_the_verdict_follows_from_the_findings(one: str, other: str) -> None:
    examination = examine(one, other)
    verdicts = [found.verdict for found in examination.findings]
    expected = "veto" if "veto" in verdicts else "unsure" if "unsure" in verdicts else "pass"
    assert examination.verdict == expected
    assert all(found.detail for found in examination.findings)


@given(TEXTS)
def test_a_text_is_never_vetoed_against_itself(text: str) -> None:
    assert examine(text, text).verdict == "pass"


@given(SENTENCES)
def test_a_question_mark_or_a_please_vetoes_nothing(text: str) -> None:
    assert examine(text, f"{text}?").verdict != "veto"
    assert examine(f"please {text}", text).verdict != "veto" or not text.isascii()


@given(TEXTS, TEXTS)
def test_the_same_again_at_the_second_call(one: str, other: str) -> None:
    assert examine(one, other) == examine(one, other)
