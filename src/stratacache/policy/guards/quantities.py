"""The quantities of a text: numbers with their units, dates, ordinals and clock times, in comparable form.

One pass after the other takes what it knows out of the text, the most particular first, so that "March 5, 2024" is a
date before its 5 could be a count. What only looks like a number stays: 三星, 一下, "one of them", "a second".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from stratacache.policy.guards import lexicon, numerals
from stratacache.policy.guards.reading import Reading


class Unit(NamedTuple):
    """A unit's dimension, its family (within which conversion is exact) and its factor to the family's base."""

    dimension: str
    family: str
    factor: float


class Quantity(NamedTuple):
    """A value in its family's base unit. Dimension "" is a bare number, whose ``digits`` tell 3.1 from 3.10."""

    value: float
    dimension: str
    family: str = ""
    digits: str = ""
    shown: str = ""


Match = re.Match[str]


def _units() -> dict[str, Unit]:
    found: dict[str, Unit] = {}
    for line in lexicon.sections("units.txt")["units"]:
        name, dimension, family, factor, *aliases = line.split()
        for alias in [name, *aliases]:
            found.setdefault(alias.replace("_", " "), Unit(dimension, family, float(factor)))
    return found


def _compile(pattern: str) -> re.Pattern[str]:
    """With ASCII word boundaries: in 128g的 the unit ends before the ideograph."""
    return re.compile(pattern, re.ASCII)


def _longest_first(words: list[str]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))


UNITS = _units()
_MONTH_NAMES = (
    "january jan|february feb|march mar|april apr|may|june jun|july jul|august aug|september sep sept|october oct"
    "|november nov|december dec"
)
_MONTHS = {
    name: month for month, names in enumerate(_MONTH_NAMES.split("|"), start=1) for name in names.split(" ")
}
_MONTH = _longest_first(list(_MONTHS))
_BARE_MONTH = _longest_first([name for name in _MONTHS if len(name) > 4 and name != "march"])
_WORD_UNIT = _longest_first([unit for unit in UNITS if unit[0].isascii() and unit[0].isalpha()])
_HAN_UNIT = _longest_first([unit for unit in UNITS if not unit.isascii() and unit[0] not in "°℃℉€£¥₹円％"])
_NUMERAL = _longest_first([word for word in numerals.EN_WORDS if word != "one"])
_ORDINAL = _longest_first(list(numerals.EN_ORDINALS))
_SCALE = _longest_first([word for word in numerals.EN_SCALES if len(word) > 2])
_VERSIONED = _longest_first(sorted(lexicon.words(lexicon.sections("units.txt")["versioned"])))
_ZH = f"[{numerals.ZH_CHARS}]"
_ZH_DAY = r"[0-3]?\d|[二三]?十[一二三四五六七八九]?|[一二三四五六七八九]"


_TIMES = re.compile(r"(?<=\d) ?[x×*] ?(?=\d)")


def quantities(reading: Reading) -> tuple[Quantity, ...]:
    """The quantities of a text, by kind and then in order."""
    if not _MAY_COUNT.search(reading.lower):
        return ()
    found: list[Quantity] = []
    rest = _TIMES.sub(" * ", reading.lower)
    for pattern, read in _PASSES:

        def take(match: Match, read: Callable[[Match], list[Quantity]] = read) -> str:
            found.extend(read(match))
            return " " * len(match[0])

        rest = pattern.sub(take, rest)
    return tuple(found)


def _number(text: str) -> float:
    """Of ASCII digits with grouping commas, of a Chinese numeral, or of neither of them 0 (1.2.3)."""
    if text[0] in numerals.ZH_CHARS:
        return numerals.chinese(text)
    plain = text.replace(",", "")
    return float(plain) if plain.count(".") < 2 else 0.0


def _date(year: str | None, month: str | None, day: str | None) -> list[Quantity]:
    found = []
    if year:
        value = _number(year)
        found.append(Quantity(value + 2000 if value < 50 else value, "year", shown=year))
    if month:
        number = float(_MONTHS[month]) if month in _MONTHS else _number(month)
        found.append(Quantity(number, "month of the year", shown=month))
    if day:
        found.append(Quantity(_number(day), "day of the month", shown=day))
    return found


def _clock(match: Match) -> list[Quantity]:
    hour, minute = int(_number(match["h"])), int(match["m"] or 0)
    half = match["half"] or ""
    if half in ("pm", "p.m", "下午", "晚上", "傍晚") and hour < 12:
        hour += 12
    elif half in ("am", "a.m") and hour == 12:
        hour = 0
    return [Quantity(hour * 3600.0 + minute * 60, "clock", "day" if half else "", shown=match[0].strip())]


def _zh_clock(match: Match) -> list[Quantity]:
    found = _clock(match)
    return [found[0]._replace(value=found[0].value + 1800)] if match[0].endswith("半") else found


def _ordinal(match: Match) -> list[Quantity]:
    word = match["word"]
    value = float(numerals.EN_ORDINALS[word]) if word else _number(match["d"] or match["zh"])
    return [Quantity(value, "ordinal", shown=match[0].strip())]


def _measured(value: float, unit: str | None, digits: str, shown: str) -> list[Quantity]:
    if not unit:
        return [Quantity(value, "", "", digits, shown)]
    known = UNITS[unit.removeprefix("多")]
    if known.dimension == "time" and unit == "年" and 1000 <= value < 3000:
        return [Quantity(value, "year", shown=shown)]
    if known.family == "fahrenheit":
        return [Quantity((value - 32) / 1.8, known.dimension, "celsius", "", shown)]
    return [Quantity(value * known.factor, known.dimension, known.family, "", shown)]


def _version(match: Match) -> list[Quantity]:
    return [Quantity(0.0, "version", "", match["n"], match[0].strip())]


def _digits(match: Match) -> list[Quantity]:
    number, unit = match["n"], match["unit"] or match["han"] or match["sign"]
    if number.count(".") > 1:
        return _version(match)
    scale = match["scale"] or match["k"]
    value = _number(number) * (numerals.EN_SCALES.get(scale, 1.0) if scale else 1.0)
    for group in match["zscale"] or "":
        value *= numerals.chinese(group)
    plain = not scale and not match["zscale"]
    found = _measured(value, unit.strip(" .") if unit else None, number if plain else "", match[0].strip())
    if found[0].dimension == "" and plain and len(number) == 4 and "1900" <= number <= "2099":
        return [Quantity(value, "year", shown=number)]
    return found


def _words(match: Match) -> list[Quantity]:
    names = [word for word in re.split(r"[ -]", match["n"]) if word not in ("and", "a", "an")]
    value = numerals.english(names)
    if value == 1 and match["unit"] and UNITS[match["unit"]].dimension == "count":
        return []
    return _measured(value, match["unit"], "", match[0].strip())


def _zh_words(match: Match) -> list[Quantity]:
    value = numerals.chinese(match["n"])
    if value == 1 and UNITS[match["unit"].removeprefix("多")].dimension == "count":
        return []  # 一个, 一次: no count, as "a" is none
    half = 0.5 if match["half"] else 0.0
    return _measured(value + half, match["unit"], "", match[0].strip())


def _zh_tail(match: Match) -> list[Quantity]:
    """一米七五 is 1.75 m, 三块五 3.50 yuan: what follows the unit are its decimals."""
    tail = match["tail"]
    digits = tail if tail.isdigit() and tail.isascii() else str(int(numerals.chinese(tail)))
    return _measured(_number(match["n"]) + float(f"0.{digits}"), match["unit"], "", match[0].strip())


def _half(match: Match) -> list[Quantity]:
    return _measured(0.5, match["unit"] or match["zh"], "", match[0].strip())


def _share(match: Match) -> list[Quantity]:
    return [Quantity(_number(match["n"]), "share", "metric", "", match[0])]


_MAY_COUNT = re.compile(
    rf"[0-9]|[半第点月两{numerals.ZH_CHARS}]|\b(?:{_NUMERAL}|one|half|dozen|hundred|thousand|million|lakh|crore"
    rf"|{_ORDINAL}|{_BARE_MONTH})\b"
)
_PASSES: tuple[tuple[re.Pattern[str], Callable[[Match], list[Quantity]]], ...] = (
    (
        _compile(r"(?<![\d./-])([12]\d{3})([-/.])([01]?\d)\2([0-3]?\d)(?![\d/-])"),
        lambda m: _date(m[1], m[3], m[4]),
    ),
    (
        _compile(
            rf"(?:(?<!\d)(\d{{4}}|\d\d) ?年 ?)?(?<![\d第十])(1[0-2]|0?[1-9]|十[一二]?|[一二三四五六七八九]) ?月份?"
            rf"(?: ?({_ZH_DAY}) ?[日号])?"
        ),
        lambda m: _date(m[1], m[2], m[3]),
    ),
    (
        _compile(rf"\b({_MONTH})\b\.? ([0-3]?\d)(?:st|nd|rd|th)?\b(?![:.]\d)(?:,? ([12]\d{{3}})\b)?"),
        lambda m: _date(m[3], m[1], m[2]),
    ),
    (
        _compile(rf"\b([0-3]?\d)(?:st|nd|rd|th)? (?:of )?({_MONTH})\b\.?(?:,? ([12]\d{{3}})\b)?"),
        lambda m: _date(m[3], m[2], m[1]),
    ),
    (_compile(rf"\b({_MONTH})\b\.?,? ([12]\d{{3}})\b"), lambda m: _date(m[2], m[1], None)),
    (_compile(rf"\b({_BARE_MONTH})\b"), lambda m: _date(None, m[1], None)),
    (
        _compile(
            r"(?<![\d:.])(?P<h>[012]?\d)(?::(?P<m>[0-5]\d))?(?: ?(?P<half>[ap]\.?m)\b|(?<=:\d\d)(?![\d:]))"
        ),
        _clock,
    ),
    (
        _compile(
            r"(?P<half>下午|晚上|傍晚|上午|早上|凌晨|中午)?"
            r"(?<![\d.])(?P<h>[012]?\d|十[一二]?|[一二两三四五六七八九]) ?点"
            r"(?:钟|半|整|(?P<m>[0-5]\d)分?|(?![击赞评心子数券卡什\d]))"
        ),
        _zh_clock,
    ),
    (
        _compile(
            rf"(?<![\w.])(?P<d>\d{{1,4}})(?:st|nd|rd|th)\b|\b(?<!a )(?<!per )(?P<word>{_ORDINAL})\b"
            rf"|第 ?(?P<zh>\d{{1,9}}+|{_ZH}{{1,24}}+)"
        ),
        _ordinal,
    ),
    (
        # 3.10 is not 3.1 after the name of what has versions.
        _compile(rf"(?:\b(?:{_VERSIONED}|version|ver|v)\.? ?|版本 ?)(?P<n>\d+(?:\.\d+)*)(?![a-z0-9%])"),
        _version,
    ),
    (_compile(rf"百分之(?P<n>\d{{1,9}}(?:\.\d+)?|{_ZH}{{1,24}}+)"), _share),
    (
        _compile(
            r"\bhalf (?:an? )?(?P<unit>hour|day|year|month|dozen|mile|litre|liter)\b"
            r"|(?<!个)半个?(?P<zh>小时|天|年|月|钟头)"
        ),
        _half,
    ),
    (
        _compile(
            rf"(?<![\d.{numerals.ZH_CHARS}])(?P<n>\d{{1,3}}|{_ZH}{{1,3}})(?P<unit>[米块])"
            rf"(?P<tail>[1-9]\d?|[一二三四五六七八九]{{1,2}})"
            rf"(?:(?=一(?:{_HAN_UNIT}))|(?![\d.{numerals.ZH_CHARS}花]|个?(?:{_HAN_UNIT})))"
        ),
        _zh_tail,
    ),
    (
        _compile(
            r"(?P<sign>us\$|hk\$|[$£¥€₹]|\brs\.?)? ?(?<![a-z0-9._])"
            r"(?P<n>\d+(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)*)"
            rf"(?:[ -]?(?P<scale>{_SCALE})s?\b|(?P<k>k|mn|bn)\b|(?P<zscale>[百千万亿]+))?"
            rf"(?:[ -]?(?P<unit>(?:{_WORD_UNIT})\b(?!/)|[%°℃℉$€£][cf]?)| ?(?P<han>多?(?:{_HAN_UNIT}))|(?![a-z0-9_]))"
        ),
        _digits,
    ),
    (
        _compile(
            rf"\b(?P<n>(?:{_NUMERAL}|one(?=[ -](?:{_SCALE}|{_WORD_UNIT})\b)|an? (?=(?:{_SCALE})\b)(?:{_SCALE}))"
            rf"(?:(?: and |[ -])(?:{_NUMERAL}|one|{_SCALE})\b)*)(?:[ -](?P<unit>{_WORD_UNIT})\b)?"
        ),
        _words,
    ),
    (
        _compile(
            rf"(?<!{_ZH})(?P<n>{_ZH}{{1,24}}+)(?P<half>个半(?=小时|钟头|月|星期))?(?P<unit>多?(?:{_HAN_UNIT}))"
        ),
        _zh_words,
    ),
)
