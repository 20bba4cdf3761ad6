"""What the guards promise beside their verdicts: details, lexicons, bounded work, no input that blows up."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from stratacache.policy.guards import MAX_CHARS, antonyms, examine, lexicon, numerals
from stratacache.policy.guards.quantities import quantities
from stratacache.policy.guards.reading import Reading
from stratacache.policy.guards.stem import stem


def test_the_detail_shows_both_sides_asked_first() -> None:
    findings = examine("Refund within 30 days?", "Refund within 60 days?").findings
    assert [(one.guard, one.verdict, one.detail) for one in findings] == [
        ("numbers", "veto", "30 days / 60 days")
    ]


def test_equal_texts_pass_without_a_look() -> None:
    assert examine("怎么退款", "怎么退款").findings == ()


def test_a_longer_text_than_is_compared_is_unsure() -> None:
    long = "how do I cook rice " * 60
    assert len(long) > MAX_CHARS
    assert examine(long + "a", long + "b").verdict == "unsure"


@pytest.mark.parametrize("table", [antonyms.ENGLISH, antonyms.CHINESE])
def test_the_lexicons_of_opposites_are_large_and_symmetric(table: dict[str, dict[str, bool]]) -> None:
    pairs = {(word, other) for word, others in table.items() for other in others}
    assert len(pairs) // 2 >= 400
    assert all((other, word) in pairs for word, other in pairs)
    assert all(word != other for word, other in pairs)


@pytest.mark.parametrize("name", ["antonyms_en.txt", "antonyms_zh.txt"])
def test_no_group_of_opposites_has_a_word_on_both_sides(name: str) -> None:
    for lines in lexicon.sections(name).values():
        for line in lines:
            left, right = (side.split() for side in line.removeprefix("?").split("/"))
            assert left, line
            assert right, line
            assert not set(left) & set(right), line


@pytest.mark.parametrize(
    ("forms", "expected"),
    [
        ("enable enables enabled enabling", 1),
        ("stop stops stopped stopping", 1),
        ("copy copies copied copying", 1),
        ("buy buys bought buying", 1),
        ("install installs installed installing", 1),
        ("man men", 1),
        ("bus us is this", 4),
    ],
)
def test_inflected_forms_have_one_stem(forms: str, expected: int) -> None:
    assert len({stem(form) for form in forms.split()}) == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("三千二", 3200),
        ("一百二", 120),
        ("一百零二", 102),
        ("两万", 20000),
        ("一万五", 15000),
        ("二〇二四", 2024),
        ("十", 10),
        ("十二", 12),
        ("二十", 20),
        ("一亿三千万", 130_000_000),
        ("三百五十", 350),
        ("一千零一", 1001),
    ],
)
def test_chinese_numerals(text: str, value: float) -> None:
    assert numerals.chinese(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("two hundred fifty", 250), ("three thousand two hundred", 3200), ("twenty one", 21), ("million", 1e6)],
)
def test_english_numerals(text: str, value: float) -> None:
    assert numerals.english(text.split()) == value


@pytest.mark.parametrize(
    "text", ["三星手机", "一下", "一起去", "one of them", "give me a second", "四川", "万一下雨"]
)
def test_what_only_looks_like_a_number_is_none(text: str) -> None:
    assert quantities(Reading(text)) == ()


# Units of text, each repeated to 100,000 characters.
_UNITS = (
    "a1 |2 hours to |不能从北京到上海 |1,|aA|a_|-- |第|十|((|not only |A better than B |被把|xxxxx-|1.|0x|三月|3:"
    "|from to |不|没|前|比|a.b|\u200b|🙂|\ud800|ﷺ|İ"
)
NASTY = _UNITS.split("|")


@pytest.mark.parametrize("unit", NASTY)
def test_a_hundred_kilobytes_of_anything_are_judged(unit: str) -> None:
    text = (unit * 100_000)[:100_000]
    assert examine(text + "x", text + "y").verdict in ("unsure", "veto")
    short = text[:MAX_CHARS]
    assert examine(short, short[1:]).verdict in ("pass", "unsure", "veto")


def calls_of(asked: str, stored: str) -> int:
    """Python and C calls of one examination: a measure of its work that no busy machine changes."""
    count = 0

    def counting(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counting)
    try:
        examine(asked, stored)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    "unit",
    ["The cat saw 2 dogs near Rome from Paris. ", "从北京到上海的火车不贵吗，3天。", "get_user() not all "],
)
def test_work_grows_no_faster_than_the_text_and_not_beyond_the_bound(unit: str) -> None:
    whole = unit * (2 * MAX_CHARS // len(unit))
    calls_of(whole[:900], whole[:899])  # fills the memo of stems
    small, large = calls_of(whole[:440], whole[:439]), calls_of(whole[:880], whole[:879])
    assert large <= 2.3 * small
    assert calls_of(whole, whole[:-1]) <= 1.3 * large
