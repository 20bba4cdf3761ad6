"""Calendar dates to one form: full dates to ``2024-M03-05``, months to ``2024-M03``.

The M keeps a form apart from what a person may type: ``2003-04`` also names a season and ``2024-12-25`` a
subtraction, and such readings are left as they stand. Day-month order is never guessed: 03/05/2024 stays.
"""

from __future__ import annotations

import re

from stratacache.policy.normalise.chars import HAN

_MONTHS = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

# Lower-case "may" and "march" are verbs and all-capital MAR or DEC are names: only these spellings are months.
_LOWER = "|".join(m for m in _MONTHS if m not in ("may", "march"))
_NAME = "|".join(m.capitalize() for m in _MONTHS) + "|" + _LOWER
_SHORT = r"(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept|Sep|Oct|Nov|Dec)\b\.?"
_MONTH = f"(?:{_NAME}|{_SHORT})"
_START = r"(?<![A-Za-z0-9_./:+~–—-])"
_END = r"(?![0-9A-Za-z_/:~–—-]|[.,]\d|年)"
_YEAR = r"[12]\d{3}"
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"

_ENGLISH = re.compile(
    rf"{_START}(?:(?P<m1>{_MONTH}) (?P<d1>{_DAY})(?:, ?| )(?P<y1>{_YEAR})"
    rf"|(?P<d2>{_DAY})(?: of)? (?P<m2>{_MONTH}),? (?P<y2>{_YEAR})"
    rf"|(?<!\d )(?<!\dst )(?<!\dnd )(?<!\drd )(?<!\dth )(?P<m3>{_MONTH}),? (?P<y3>{_YEAR})){_END}"
)
_NUMERIC = re.compile(
    rf"{_START}(?P<y>{_YEAR})(?:-(?P<m1>\d\d?)-(?P<d1>\d\d?)|/(?P<m2>\d\d?)/(?P<d2>\d\d?)|-(?P<m3>\d\d)(?![期号版届批轮])){_END}"
)
# 5号线 is a metro line, 5日均线 an average over five days, 5日游 a tour of five days.
_DAY_SIGN = r"(?:日(?![均线元游本])|号(?=$|[,;:?!()。、 ]|是|的|有|到|前|后|之|天气|星期|周|晚|早|上午|下午|这天|那天))"
_CHINESE = re.compile(
    rf"(?<![0-9./:+~–—前-])(?P<y>{_YEAR})年(?P<m>\d\d?)月(?:(?P<d>\d\d?){_DAY_SIGN}|份)?"
    r"(?![0-9~–—-]|[上中下]旬)"
)
_NUMERALS = "〇零一二三四五六七八九"
_CHINESE_WORDS = re.compile(
    rf"(?<![{_NUMERALS}十百千前$＄])(?P<y>[一二][{_NUMERALS}]{{3}})年(?P<m>十[一二]?|[一二三四五六七八九])月"
    rf"(?:(?P<d>[二三]?十[一二三四五六七八九]?|[一二三四五六七八九]){_DAY_SIGN}|份)?(?![0-9一二三四五六七八九十~–—-]|[上中下]旬)"
)
_ANY_YEAR = re.compile(_YEAR)
_OTHER_CALENDAR = re.compile(r"农历|阴历|旧历|回历|佛历|公元前|\bBC\b|\bBCE\b|\bAH\b|\bBE\b")

# "iPhone 5 March 2024" holds a model number, "On March 5, 2024 people" a count.
_BEFORE_DAY = re.compile(
    rf"(?:^|[,;:(。、{HAN}]|\b(?:on|of|the|from|since|until|till|by|before|after|to|and|or|dated|between|is|was)) ?$",
    re.IGNORECASE,
)
# "What is 2024-12?" may be a subtraction; so may a number that stands alone.
_ARITHMETIC_BEFORE = re.compile(
    r"(?:^|(?:\bis|'s|\bcalculate|\bcompute|\bsolve|\bevaluate|计算|算|求)) ?$", re.IGNORECASE
)
_ARITHMETIC_AFTER = re.compile(r" ?(?:$|[?.!。=]|equals|等于|是多少|得多少)")
_COUNTED = re.compile(
    r" (?:people|men|women|children|soldiers|users|students|workers|members|troops|votes)\b"
)


def fold_dates(prose: str) -> str:
    """Valid, unambiguous dates of a piece of prose in one form; everything else unchanged.

    When one date stands there in two spellings the text is about the spelling, and nothing changes.
    """
    digits = ("1" in prose or "2" in prose) and _ANY_YEAR.search(prose)
    if not (digits or "年" in prose) or _OTHER_CALENDAR.search(prose):
        return prose
    seen: dict[str, str] = {}
    clash = False

    def fold(match: re.Match[str]) -> str:
        nonlocal clash
        canonical = _canonical(match)
        if canonical is None:
            return match[0]
        clash |= seen.setdefault(canonical, match[0]) != match[0]
        return canonical

    folded = prose
    for pattern in (_NUMERIC, _CHINESE, _CHINESE_WORDS, _ENGLISH):
        folded = pattern.sub(fold, folded)
    return prose if clash else folded


def _canonical(match: re.Match[str]) -> str | None:
    groups = {name[0]: value for name, value in match.groupdict().items() if value is not None}
    year, month = _number(groups["y"]), _month(groups["m"])
    if not 1 <= month <= 12 or not _is_date(match):
        return None
    if "d" in groups:
        day = _number(groups["d"])
        return f"{year:04d}-M{month:02d}-{day:02d}" if 1 <= day <= _days(year, month) else None
    # 2003-04 may be a season and 1999-01 a span; from 2012 on the month cannot be a later year's end digits.
    if match.re is _NUMERIC and (year < 2012 or month > year % 100):
        return None
    return f"{year:04d}-M{month:02d}"


def _is_date(match: re.Match[str]) -> bool:
    """False for what only looks like one: a subtraction, a model number before a month, a count after it."""
    before = match.string[max(0, match.start() - 12) : match.start()]
    if match.re is _NUMERIC:
        return not (_ARITHMETIC_BEFORE.search(before) and _ARITHMETIC_AFTER.match(match.string, match.end()))
    if match.re is _ENGLISH:
        return not (
            (match["d2"] and not _BEFORE_DAY.search(before)) or _COUNTED.match(match.string, match.end())
        )
    return True


def _days(year: int, month: int) -> int:
    if month == 2 and (year % 4 or (year % 100 == 0 and year % 400)):
        return 28
    return _DAYS[month - 1]


def _month(text: str) -> int:
    if text[0].isalpha() and text[0].isascii():
        prefix = text[:3].lower()
        return 1 + next(i for i, name in enumerate(_MONTHS) if name.startswith(prefix))
    return _number(text)


def _number(text: str) -> int:
    """Digits, digits with an English ordinal ending, or Chinese numerals below 100 or digit by digit."""
    digits = text.rstrip("stndrh")
    if digits.isdecimal():
        return int(digits)
    if "十" in text:
        tens, _, ones = text.partition("十")
        return (_NUMERALS.index(tens) - 1 if tens else 1) * 10 + (_NUMERALS.index(ones) - 1 if ones else 0)
    return int("".join(str(max(0, _NUMERALS.index(c) - 1)) for c in text))
