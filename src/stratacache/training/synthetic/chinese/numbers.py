"""Chinese numbers and units: changed to another value, or the same value written otherwise."""

from __future__ import annotations

import re

from stratacache.training.synthetic.pair import Draw, Rule
from stratacache.training.synthetic.text import one_of

_COUNTER = (
    "天|年|个月|个小时|小时|分钟|秒|岁|元|块钱|块|公里|公斤|斤|千克|米|厘米|毫升|升|次|张|条|台|期|级|号|楼|集|本|部|度|"
    "个人|人|周|个星期|平方米|平米|寸|英寸|万|亿|楼|层|课|章|季"
)
_DIGITS = "零一二三四五六七八九"
_FIGURE = re.compile(rf"(?<![\d.,\-/:~*A-Za-z+])(\d{{1,5}})(?=(?:{_COUNTER}))(?!万能|人民|人格|部队|天然)")
_PLAIN = re.compile(r"(?<![\d.,\-/:~*A-Za-z+=×])(\d{1,5})(?![\d.,\-/:~*A-Za-z%+=×])")
_HAN = re.compile(
    rf"(?<![一二三四五六七八九十百千万亿几双第星周期零〇\d点*月])([二两三四五六七八九十](?:十[一二三四五六七八九]?)?|十[一二三四五六七八九])(?=(?:{_COUNTER}))(?![万亿级号])"
)
_FIXED = re.compile(
    r"360|12306|百度|五一|十一|双十|三星|四川|三国|七夕|九寨|二手|三亚|一个人|三天两头|千万|两会|四季|两年前|两人世界|七天|"
    r"三本|二本|一本|两天一夜|十年前|第[一二三四五六七八九十\d]+方|三个代表|110|119|120|95\d+|10086|10010"
)


def _value(text: str) -> int:
    if text == "两":
        return 2
    tens, _, ones = text.partition("十") if "十" in text else ("", "", text)
    return (_DIGITS.index(tens) if tens else ("十" in text)) * 10 + (_DIGITS.index(ones) if ones else 0)


def _written(value: int, counter: bool = True) -> str:
    if value == 2 and counter:
        return "两"
    if value < 10:
        return _DIGITS[value]
    tens, ones = divmod(value, 10)
    return ("" if tens == 1 else _DIGITS[tens]) + "十" + (_DIGITS[ones] if ones else "")


def _other(value: int, draw: Draw) -> int:
    if 1900 <= value <= 2035:
        return value + draw.rng.choice([-8, -5, -3, -2, 2, 3, 4])
    scaled = [round(value * factor) for factor in (0.3, 0.5, 1.6, 2, 3, 5)] + [
        value + 2,
        value + 3,
        value + 6,
    ]
    return draw.rng.choice([new for new in scaled if new > 1 and (new >= value * 1.5 or new <= value * 0.67)])


def change_number(text: str, draw: Draw) -> str | None:
    """A number before a measure word, or a free-standing one, becomes another."""
    if _FIXED.search(text) or "***" in text:
        return None

    def figure(match: re.Match[str]) -> str | None:
        return None if int(match[1]) < 2 or match[1].startswith("0") else str(_other(int(match[1]), draw))

    def han(match: re.Match[str]) -> str | None:
        value = _value(match[1])
        usable = [
            n for n in (2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 20, 30) if n >= value * 1.5 or n <= value * 0.67
        ]
        return _written(draw.rng.choice(usable))

    return (
        one_of(text, draw, _FIGURE, figure)
        or one_of(text, draw, _HAN, han)
        or one_of(text, draw, _PLAIN, figure)
    )


def write_number(text: str, draw: Draw) -> str | None:
    """10天 and 十天, half-width and full-width digits."""
    if _FIXED.search(text) or "***" in text:
        return None

    def han(match: re.Match[str]) -> str | None:
        return _written(int(match[1])) if 2 <= int(match[1]) <= 99 else None

    written = one_of(text, draw, _FIGURE, han) or one_of(text, draw, _HAN, lambda m: str(_value(m[1])))
    if written:
        return written
    return one_of(text, draw, _PLAIN, lambda m: "".join(chr(ord(d) + 0xFEE0) for d in m[1]))


_KINDS = (
    ("秒", "分钟", "小时", "天", "周", "个月", "年"),
    ("公斤", "斤", "克", "磅"),
    ("公里", "米", "厘米", "英里"),
    ("毫升", "升"),
    ("元", "美元", "欧元", "港币", "日元", "英镑"),
    ("平方米", "亩", "公顷"),
    ("兆", "G", "T"),
)
_COUNT = r"(?<![\d第*月\-年.])(\d{1,6}|[两三四五六七八九十]|几|多少)"
_UNIT = re.compile(
    _COUNT + "(分钟|小时|天|周|个月|年|公斤|斤|公里|米|厘米|毫升|升|元|美元|平方米)"
    "(?![钱级月之初底份代河饭然气生内色级度后前])"
)


def change_unit(text: str, draw: Draw) -> str | None:
    """The same number of another unit or currency."""
    if _FIXED.search(text) or "***" in text:
        return None

    def new(match: re.Match[str]) -> str | None:
        if match[1].isdigit() and 1900 <= int(match[1]) <= 2035:
            return None
        if match[2] == "年" and not re.search(
            "[了期过约用存贷借还干学当住欠隔等每分晚]$", text[: match.start()]
        ):
            return None  # a reign or a school year
        kind = next(kind for kind in _KINDS if match[2] in kind)
        usable = [other for other in kind if other != match[2] and draw.allows(f"unit {other}")]
        return match[1] + draw.rng.choice(usable) if usable else None

    return one_of(text, draw, _UNIT, new)


_EXACT = {
    "小时": ("分钟", 60),
    "个小时": ("分钟", 60),
    "年": ("个月", 12),
    "周": ("天", 7),
    "个星期": ("天", 7),
    "公斤": ("斤", 2),
    "米": ("厘米", 100),
    "公里": ("米", 1000),
    "分钟": ("秒", 60),
    "升": ("毫升", 1000),
    "天": ("小时", 24),
    "斤": ("两", 10),
    "千克": ("克", 1000),
    "厘米": ("毫米", 10),
    "季度": ("个月", 3),
    "块": ("角", 10),
}
_SAME = {
    "公斤": "千克",
    "公里": "千米",
    "元": "块钱",
    "分钟": "分",
    "平方米": "平米",
    "周": "个星期",
    "小时": "个小时",
    "毫升": "ml",
    "厘米": "cm",
    "美元": "美金",
    "天": "日",
    "千克": "公斤",
    "千米": "公里",
    "块": "元",
    "块钱": "元",
}
_MEASURE = re.compile(
    r"(?<![\d第*月\-年.])(\d{1,5}|[两三四五六七八九十])(个小时|小时|年|周|个星期|公斤|千克|斤|米|公里|千米|分钟|升|元|块钱|块|平方米|毫升|厘米|美元|天|季度)(?![钱级月之初底份代河饭然气生色度的前后])"
)


def rewrite_unit(text: str, draw: Draw) -> str | None:
    """两小时 -> 120分钟, 3公斤 -> 6斤, 5公里 -> 5千米."""
    if _FIXED.search(text) or "***" in text:
        return None

    def new(match: re.Match[str]) -> str | None:
        count = int(match[1]) if match[1].isdigit() else _value(match[1])
        if 1900 <= count <= 2035 or match[1].startswith("0"):
            return None
        options = [f"{match[1]}{_SAME[match[2]]}"] if match[2] in _SAME else []
        if match[2] in _EXACT and count <= 24:
            unit, many = _EXACT[match[2]]
            options.append(f"{count * many}{unit}")
        return draw.rng.choice(options) if options else None

    return one_of(text, draw, _MEASURE, new)


RULES = (
    Rule("number", "zh", 0, "number", change_number),
    Rule("number_written", "zh", 1, "number", write_number),
    Rule("unit", "zh", 0, "unit", change_unit),
    Rule("unit_rewrite", "zh", 1, "unit", rewrite_unit),
)
