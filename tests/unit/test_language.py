"""The language's tag: what each script gives, terms of another language inside a sentence, and odd texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratacache.policy.language import language_of

TAGS = {
    "en": [
        "What is the capital of France?",
        "hello",
        "refund policy",
        "reset router password",
        "What does 你好 mean?",
        "Beyoncé age",
        "Los Angeles weather",
        "How do I say où est la gare in English, and when would I use it?",
        "who’s the author of https://例え.jp/本",
        "Ｈｅｌｌｏ",
    ],
    "zh": [
        "法国的首都是哪里？",
        "怎么用Python读取CSV文件",
        "ETF是什么",
        "iPhone 15 怎么重启",
        "優惠券怎麼用",
        "NBA MVP 2020 是谁",
        "优の良品怎么样",
        "看看 https://example.com/a/very/long/address/with/words 讲了什么",
    ],
    "ja": ["日本の首都はどこですか", "えっ", "パスワードを忘れました"],
    "ko": ["한국의 수도는 어디입니까?", "Python에서 리스트 정렬하는 법"],
    "ru": ["Какая столица Франции?", "как установить Python на Windows"],
    "uk": ["Яка столиця України?"],
    "ar": ["ما هي عاصمة فرنسا؟"],
    "fa": ["پایتخت فرانسه کجاست؟"],
    "he": ["מהי בירת צרפת?"],
    "el": ["Ποια είναι η πρωτεύουσα;"],
    "hi": ["फ्रांस की राजधानी क्या है?"],
    "th": ["เมืองหลวงของฝรั่งเศสคืออะไร"],
    "latin": [
        "¿Cuál es la capital de Francia?",
        "Quelle est la capitale de la France ?",
        "Wie setze ich mein Passwort zurück?",
        "Qual è la capitale della Francia?",
        "Thủ đô của Pháp là gì?",
        "Apa ibu kota Prancis dan bagaimana cuacanya",
    ],
    "mixed": ["WiFi is slow 怎么办", "hello big привет"],
    "none": ["", "   ", "12345", "😀😀", "?!…", "\ud800"],
}


@pytest.mark.parametrize(("tag", "text"), [(tag, text) for tag, texts in TAGS.items() for text in texts])
def test_each_text_gets_its_tag(tag: str, text: str) -> None:
    assert language_of(text) == tag


@given(st.text())
def test_any_text_has_one_tag_and_always_the_same(text: str) -> None:
    tag = language_of(text)
    assert tag.isalpha()
    assert tag == language_of(text)


@given(
    st.sampled_from([text for texts in TAGS.values() for text in texts]),
    st.sampled_from(["?", " 😀", "!!", " 2024", "…"]),
)
def test_marks_digits_and_emoji_change_nothing(text: str, tail: str) -> None:
    assert language_of(text + tail) == language_of(text)


def test_a_pasted_book_is_told_by_its_beginning() -> None:
    assert language_of("What is this text about? " * 1000 + "这本书讲了什么" * 100_000) == "en"
