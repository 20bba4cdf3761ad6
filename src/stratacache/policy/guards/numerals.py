"""Numerals in words to their values: English ("two hundred and fifty", "1.5 million") and Chinese (三千二, 两万)."""

from __future__ import annotations

_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
    " eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_ORDINALS = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth"
    " fifteenth sixteenth seventeenth eighteenth nineteenth twentieth"
)

_EN_ONES = {word: value for value, word in enumerate(_ONES.split(" "))}
_EN_TENS = dict(zip(_TENS.split(" "), range(20, 100, 10), strict=True))
EN_SCALES = {
    "hundred": 100.0,
    "thousand": 1e3,
    "million": 1e6,
    "billion": 1e9,
    "trillion": 1e12,
    "lakh": 1e5,
    "lakhs": 1e5,
    "lac": 1e5,
    "crore": 1e7,
    "crores": 1e7,
    "dozen": 12.0,
    "k": 1e3,
    "mn": 1e6,
    "bn": 1e9,
}
EN_WORDS = _EN_ONES | _EN_TENS
EN_ORDINALS = {word: value for value, word in enumerate(_ORDINALS.split(" "), start=1)}
_ZH_DIGITS = {char: value for value, char in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2, "俩": 2}
_ZH_SCALES = {"十": 10, "百": 100, "千": 1000}
_ZH_GROUPS = {"万": 10_000, "亿": 100_000_000}
ZH_CHARS = "零〇一二两三四五六七八九十百千万亿"


def english(words: list[str]) -> float:
    """The value of numeral words such as ["two", "hundred", "fifty"]; every word must be one of this module's."""
    total = current = 0.0
    for word in words:
        if word in EN_SCALES:
            scale = EN_SCALES[word]
            current = (current or 1) * scale
            if scale > 100:
                total, current = total + current, 0.0
        else:
            current += EN_WORDS[word]
    return total + current


def chinese(text: str) -> float:
    """The value of a run of ``ZH_CHARS``: 一百二 is 120, 二〇二四 is 2024, 一万五 is 15000."""
    if not any(char in _ZH_SCALES or char in _ZH_GROUPS for char in text):
        return float("".join(str(_ZH_DIGITS[char]) for char in text))
    total = group = digit = 0
    last = 1
    for char in text:
        if char in _ZH_DIGITS:
            digit = _ZH_DIGITS[char]
            last = 1 if digit == 0 else last
        elif char in _ZH_SCALES:
            last = _ZH_SCALES[char]
            group, digit = group + (digit or 1) * last, 0
        else:
            last = _ZH_GROUPS[char]
            below = group + digit
            total = (total + below or 1) * last if last > 10_000 else total + (below or 1) * last
            group = digit = 0
    return float(total + group + digit * (last // 10 if last > 10 else 1))
