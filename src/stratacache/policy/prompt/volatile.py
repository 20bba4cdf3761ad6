"""What in a prompt is another at every request: clocks, ids, names of users; English and Chinese; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal

import msgspec

VolatileKind = Literal["clock", "id", "name"]

NEAR: Final = 48
"""Characters before a date or a time among which a word must say that it is now's: policies state dates too."""


class Volatile(msgspec.Struct, frozen=True, gc=False):
    """``text`` at characters ``start`` to ``end``, which is likely to differ from request to request."""

    kind: VolatileKind
    start: int
    end: int
    text: str


# ASCII: Han stands beside Han without a space, and must not count as one word with a digit.
_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?"
    r"|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\.?"
)
_WEEKDAY = r"(?:(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?)"
_ZONE = r"(?: ?(?:Z|UTC|GMT|[+-]\d{2}:?\d{2}|[A-Z]{2,4}T)\b)?"
_TIME = rf"\d{{1,2}}:\d{{2}}(?::\d{{2}}(?:[.,]\d{{1,9}})?)?(?: ?[AaPp]\.?[Mm]\b\.?)?{_ZONE}"
_ZH_DIGIT = "[〇零一二三四五六七八九十]"
_ZH_DATE = (
    r"(?:\d{4} ?年 ?\d{1,2} ?月(?: ?\d{1,2} ?[日号])?"
    rf"|{_ZH_DIGIT}{{4}}年{_ZH_DIGIT}{{1,2}}月(?:{_ZH_DIGIT}{{1,3}}[日号])?)"
)
_ZH_WEEKDAY = "(?:星期|周|礼拜)[一二三四五六日天]"
_ZH_TIME = (
    rf"(?:凌晨|早上|上午|中午|下午|傍晚|晚上)?(?:\d{{1,2}}|{_ZH_DIGIT}{{1,3}})[点时]"
    r"(?:\d{1,2}分|半|整)?(?:\d{1,2}秒)?"
)
_DATE = (
    r"(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}"
    rf"|(?:{_WEEKDAY},? )?(?:{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?"
    rf"|\d{{1,2}}(?:st|nd|rd|th)? {_MONTH},? \d{{4}})"
    r"|\d{1,2}[/.]\d{1,2}[/.]\d{2,4})"
)
# A day with a time of day is a clock wherever it stands; either alone only near a word that says so.
_STAMP = re.compile(
    rf"(?<![\w.-])(?:{_DATE}(?:[Tt]|,? (?:at )?){_TIME}"
    rf"|{_ZH_DATE}[，, ]*(?:{_ZH_WEEKDAY}[，, ]*)?(?:{_TIME}|{_ZH_TIME})"
    r"|1[6-9]\d{8}(?:\d{3})?(?![\w.]))",
    re.ASCII,
)
_DAY = re.compile(
    rf"(?<![\w.-])(?:{_DATE}(?:,? \(?{_WEEKDAY}\)?)?|{_TIME}|{_WEEKDAY})(?![\w-])"
    rf"|{_ZH_DATE}(?:[，, ]*{_ZH_WEEKDAY})?|{_ZH_WEEKDAY}|{_ZH_TIME}",
    re.ASCII,
)
_NOW = re.compile(
    r"\b(?:current|currently|now|today|todays|tonight|date|time|datetime|timestamp|as of|generated|clock)\b"
    r"|当前|现在|目前|今天|今日|今夜|此刻|日期|时间|截至",
    re.IGNORECASE | re.ASCII,
)
_ID = re.compile(
    r"(?<![\w-])(?:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"|(?:req|request|sess|session|trace|span|run|call|msg|conv|thread|corr|txn)[-_:](?=[\w-]*\d)[0-9a-z][\w-]{7,63}"
    r"|(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{24,64})(?![\w-])"
    r"|(?:(?:request|session|trace|correlation|conversation|billing|transaction|run)[ _-]?(?:id|no\.?|number)"
    r"|请求(?:编号|号|ID|id)|会话(?:编号|号|ID|id)|流水号|追踪号)[\"']? ?[:=：#] ?[\"']?(?P<id>[\w.-]{4,80})",
    re.IGNORECASE | re.ASCII,
)
_NAME = re.compile(
    r"^[ \t>*-]*(?:(?:current |logged[- ]in |signed[- ]in )?(?:user|customer|client|member|employee)"
    r"(?:'s)?(?:[ _-]?name)?"
    r"|username|your name|full name|(?:当前)?(?:用户|客户|会员|员工)(?:名|姓名|昵称)?|姓名|昵称)"
    r"(?:\*\*)? ?[:：](?:\*\*)? ?(?P<name>[^\s:：{<\[][^\n:：{<]{0,47})$"
    r"|\byou are (?:talking|speaking|chatting) (?:to|with) (?P<named>(?-i:[A-Z][\w'-]+(?: [A-Z][\w'-]+){0,2}))",
    re.IGNORECASE | re.MULTILINE,
)


def volatile_in(text: str) -> list[Volatile]:
    """What is volatile in ``text``, in order, no two overlapping. Linear in the text."""
    found: list[Volatile] = []
    end = 0
    for one in sorted(_all(text), key=lambda each: (each.start, -each.end)):
        if one.start >= end:
            found.append(one)
            end = one.end
    return found


def _all(text: str) -> Iterator[Volatile]:
    for match in _STAMP.finditer(text):
        yield _made("clock", match, 0)
    for match in _DAY.finditer(text):
        start = match.start()
        line = text.rfind("\n", max(0, start - NEAR), start) + 1
        if _NOW.search(text, max(line, start - NEAR), start):
            yield _made("clock", match, 0)
    for match in _ID.finditer(text):
        yield _made("id", match, "id" if match["id"] else 0)
    for match in _NAME.finditer(text):
        yield _made("name", match, "name" if match["named"] is None else "named")


def _made(kind: VolatileKind, match: re.Match[str], group: str | int) -> Volatile:
    return Volatile(kind, match.start(group), match.end(group), match[group])
