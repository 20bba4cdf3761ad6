"""What a text denies: its negators, without the ones that negate nothing (not only, or not, 是不是, 不但)."""

from __future__ import annotations

import re

from stratacache.policy.guards import lexicon
from stratacache.policy.guards.reading import Reading

_LISTS = lexicon.sections("negation.txt")


def _either(section: str) -> str:
    return "|".join(re.escape(w) for w in sorted(lexicon.words(_LISTS[section]), key=len, reverse=True))


_EMPTY = re.compile(
    rf"\b(?:{_either('en empty')})\b|{_either('zh empty')}|(?P<c>[\u4e00-\u9fff])[不没](?P=c)"
    r"|\bno\.? ?\d|能[^\s,，。?？!！]{0,6}不能(?=[\s?？!！]|$)"
)
_NEGATOR = re.compile(rf"\b(?:{_either('en')})\b|\b[a-z]+n't\b|{_either('zh')}")
_ASKS = re.compile("怎么|怎样|如何|为什么|为何|为啥|还没|什么|谁|哪|咋")
_TAIL = re.compile(r"[没不](?:有)?[\s?!。，,.、]*$")
_YES_NO = re.compile(
    r"^\W*(?:is|are|was|were|do|does|did|can|could|will|would|should|has|have|had|am|may|isn't|aren't|don't|doesn't"
    r"|didn't|can't|couldn't|won't|wouldn't|shouldn't|hasn't|haven't|wasn't|weren't)\b"
)
_ZH_YES_NO = re.compile(
    r"(?:[吗嘛吧]|(?<![什怎多这那])么)(?:[\s?!。，,.]|$)|(?P<c>[\u4e00-\u9fff])[不没](?P=c)|能否|是否|可否|[没不][\s?!]*$"
)


def negators(reading: Reading) -> tuple[str, ...]:
    """The negators of a text in order: "can't", "unable", "没有", 用不了."""
    text = reading.lower
    text = _EMPTY.sub(lambda match: " " * len(match[0]), text)
    if reading.has_han and not _ASKS.search(text):
        text = _TAIL.sub(" ", text)
    return tuple(match[0] for match in _NEGATOR.finditer(text))


def asks_yes_or_no(reading: Reading) -> bool:
    """True when it asks whether something is so; then "isn't it" and "is it" ask the same."""
    return _YES_NO.match(reading.lower) is not None or (
        reading.has_han and _ZH_YES_NO.search(reading.lower) is not None
    )
