"""Numbers to one form, only where nothing else can be meant: 1,000 to 1000, twelve months to 12 months, 三天 to 3天."""

from __future__ import annotations

import re
from collections.abc import Callable

from stratacache.policy.normalise.chars import HAN, WIDTH_TABLE

_COUNTED = (
    "people|users|dollars|euros|pounds|yuan|words|years|days|hours|miles|kilometers|kilometres|calories|steps"
)
_GROUPED = re.compile(
    r"(?<![A-Za-z0-9.,_/:$£¥+(-])(?P<money>[$£¥])?(?P<n>[1-9]\d{0,2}(?:,\d{3})+)(?![A-Za-z0-9_/:)-]|[.,]\d)"
)
_GROUP = re.compile(r",\d{3}")
_AFTER_COUNT = re.compile(rf" (?:{_COUNTED})\b| ?[元块人]")
# In most other Latin languages 1,000 is one; "in", "is", "of" and "for" are words of Dutch, German or Danish too.
_ENGLISH_OR_CHINESE = re.compile(
    rf"[{HAN}]|\b(?:what|how|why|which|are|does|the|explain|please|want|need)\b",
    re.IGNORECASE,
)

_TEENS = (
    "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen"
    " nineteen twenty"
)
_WORDS = dict(zip(_TEENS.split(" "), range(2, 21), strict=True)) | {
    "thirty": 30,
    "forty": 40,
    "fifty": 50,
    "sixty": 60,
    "ninety": 90,
}
_UNITS = ("minutes", "hours", "days", "weeks", "months", "years")
# Not after any other word: "version five months ago" is not "version 5 months ago".
_BEFORE_WORD = (
    "in|for|within|after|over|about|than|every|last|past|next|the|of|is|are|least|most|takes|take|only|to|has|have"
    "|had|are|under|nearly|almost|first|these|those|every|during|by|around|and|or"
)
_COUNT = re.compile(
    rf"(?:^|(?<=[,;:?!] )|\b(?:{_BEFORE_WORD}) )(?P<w>{'|'.join(_WORDS)})"
    rf"(?= (?:{'|'.join(_UNITS)})(?![\w'-]))"
)

_DIGITS = re.compile(r"[0-9]+")
_NUMERAL = re.compile("[三四五六七八九十]")
_NUMERALS = "一二三四五六七八九"
# 周三天气, 十三天, 张三年后, 百分之三…: what stands before decides whether the numeral counts.
_NOT_AFTER = "〇零一二三四五六七八九十百千万亿几数第周期拜礼初高大小老阿两点半多分张李王赵刘陈$＄0-9０-９"
_FOLLOWS = r"(?=$|[,;:?!()。、 ]|内|后|前|之|以|的|左右|多久|是|有|能|可以|要|没|不|还|需要)"
_CHINESE = re.compile(
    rf"(?<![{_NOT_AFTER}])(?P<n>[二三四五六七八九]?十[{_NUMERALS}]?|[三四五六七八九])"
    rf"(?P<unit>个月|个小时|个星期|小时|分钟|天|年|周){_FOLLOWS}"
)


def fold_numbers(prose: str, text: str, words: frozenset[str]) -> str:
    """Counts of a piece of prose in digits; unchanged when the other spelling stands in the text too.

    Args:
        prose: the piece.
        text: the whole text it was cut from.
        words: the ``latin_words`` of that text.
    """
    if _GROUP.search(prose) and _ENGLISH_OR_CHINESE.search(prose):
        prose = _fold_unless_present(_GROUPED, "n", _ungrouped, prose, text)
    if not words.isdisjoint(_UNITS) and not words.isdisjoint(_WORDS):
        prose = _fold_unless_present(_COUNT, "w", _english_digits, prose, text)
    if not prose.isascii() and _NUMERAL.search(prose):
        prose = _fold_unless_present(_CHINESE, "n", _chinese_digits, prose, text)
    return prose


def _fold_unless_present(
    pattern: re.Pattern[str], group: str, digits: Callable[[re.Match[str]], str], prose: str, text: str
) -> str:
    """Replace ``group`` by its digits, unless ``text`` has them: "is 1,000 the same as 1000" is about form."""
    found = [(match, digits(match)) for match in pattern.finditer(prose)]
    if not found:
        return prose
    present = {run.lstrip("0") for run in _DIGITS.findall(text.translate(WIDTH_TABLE))}
    pieces: list[str] = []
    done = 0
    for match, number in found:
        if number in present:
            return prose
        pieces += [prose[done : match.start(group)], number]
        done = match.end(group)
    return "".join([*pieces, prose[done:]])


def _ungrouped(match: re.Match[str]) -> str:
    """12,180 may be the list 12 and 180; a last group of zeros, a currency or a counted noun rules that out."""
    number = match["n"]
    if number.endswith(",000") or match["money"] or _AFTER_COUNT.match(match.string, match.end()):
        return number.replace(",", "")
    return number


def _english_digits(match: re.Match[str]) -> str:
    return str(_WORDS[match["w"]])


def _chinese_digits(match: re.Match[str]) -> str:
    """Numerals from 三 to 九十九; 十分钟爱 (dearly loves) is excluded by what must follow the unit."""
    tens, ten, ones = match["n"].rpartition("十")
    value = (_NUMERALS.index(tens) + 1 if tens else 1) * 10 if ten else 0
    return str(value + (_NUMERALS.index(ones) + 1 if ones else 0))
