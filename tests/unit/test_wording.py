"""Plain wording: courtesies and openings that mean the same fall away, and nothing that could matter does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratacache.policy.wording import MAX_CHARS, plain_wording

SAME = [
    ("Hi, how can I reset my password? Thanks!", "How do I reset my password?"),
    ("What's a PIN, 如何重置", "what is a PIN, 怎么重置"),
    ("Hello there! How to reset my password", "how do i reset my password"),
    ("Could you please tell me how to boil an egg?", "How do I boil an egg"),
    ("I'd like to know what the capital of Peru is", "what the capital of Peru is"),
    ("What's the capital of Australia?", "what is the capital of Australia"),
    ("Please explain how TLS works", "please explain how TLS works, thank you"),
    ("请问如何重置密码？", "怎么重置密码"),
    ("您好，我想知道怎样重置密码，谢谢！", "怎么重置密码呢"),
    ("你好，请问一下花呗怎么开通", "花呗如何开通？"),
    ("麻烦问一下退货要多久", "退货要多久"),
]

DIFFERENT = [
    ("How to say no, thanks", "how to say no"),
    ("What does hello, thanks mean", "what does hello mean"),
    ("Hello, world in C", "world in C"),
    ("How do I cancel my order?", "How do I not cancel my order?"),
    ("How would I look with a beard?", "how to look with a beard"),
    ("Why can I reset my password?", "How can I reset my password?"),
    ("How do I reset my password?", "How do we reset our password?"),
    ("怎么不能登录", "如何不能登录"),
    ("怎么登录不了的", "如何登录不了的"),
    ("问下载地址", "问载地址"),
    ("请问答案", "案"),
    ("天气怎么样", "天气"),
    ("你好怎么写", "怎么写"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_courtesies_and_openings_are_no_difference(one: str, other: str) -> None:
    assert plain_wording(one) == plain_wording(other) != ""


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_could_matter_stays_a_difference(one: str, other: str) -> None:
    assert plain_wording(one) != plain_wording(other)


@pytest.mark.parametrize("text", ["", "hi", "Hello!", "thanks", "请问", "你好", "Hi, thanks!", "您好，谢谢"])
def test_mere_courtesies_are_not_all_one_question(text: str) -> None:
    assert plain_wording(text) in ("", *map(str.lower, (text.strip("!"), "thanks", "谢谢")))


@given(
    st.one_of(
        st.text(max_size=80),
        st.lists(
            st.sampled_from(["hi, ", "please ", "tell me ", "how can i ", "how to ", "what's ", "x", ", thanks",
                             "你好，", "请问", "如何", "怎么", "重置", "呢", "，谢谢", "?", " "]),
            max_size=8,
        ).map("".join),
    )
)  # fmt: skip
def test_it_is_idempotent_and_never_longer_than_a_contraction_makes_it(text: str) -> None:
    plain = plain_wording(text)
    assert plain_wording(plain) == plain


def test_a_long_text_keeps_its_courtesies() -> None:
    text = "hello, " + "word " * MAX_CHARS
    assert plain_wording(text).startswith("hello")
