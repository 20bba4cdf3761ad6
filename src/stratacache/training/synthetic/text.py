"""Small text helpers of the rules: replace one span, keep its case, pick a match."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache

from .pair import Draw


def like(model: str, word: str) -> str:
    """``word`` written with the capitals of ``model``: all, first, or its own."""
    if len(model) > 1 and model.isupper() and not word.isupper():
        return word.upper()
    if model[:1].isupper() and word[:1].islower():
        return word[:1].upper() + word[1:]
    return word


def spliced(text: str, span: tuple[int, int], new: str) -> str:
    """``text`` with the span replaced by ``new``."""
    return text[: span[0]] + new + text[span[1] :]


@cache
def _alternation(words: tuple[str, ...], flags: int) -> re.Pattern[str]:
    body = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    return re.compile(rf"(?<![\w'-])(?:{body})(?![\w'-]|\.\w)", flags)


def words_in(text: str, words: Iterable[str], *, cased: bool = False) -> list[re.Match[str]]:
    """Whole-word matches of any of ``words``, longest first at each place."""
    return list(_alternation(tuple(words), 0 if cased else re.IGNORECASE).finditer(text))


def one_of(
    text: str, draw: Draw, pattern: re.Pattern[str], new: Callable[[re.Match[str]], str | None]
) -> str | None:
    """``text`` with one match of ``pattern``, at random, replaced by ``new(match)``; None where nothing fits."""
    matches = list(pattern.finditer(text))
    draw.rng.shuffle(matches)
    for match in matches:
        replacement = new(match)
        if replacement is not None and replacement != match[0]:
            return spliced(text, match.span(), replacement)
    return None


def first_lower(text: str) -> str:
    """The text with its first letter in lower case, unless the first word is "I" or an abbreviation."""
    head = text.split(" ", 1)[0]
    if head in {"I", "I'm", "I've", "I'd", "I'll"} or head[1:] != head[1:].lower():
        return text
    return text[:1].lower() + text[1:]


def first_upper(text: str) -> str:
    """The text with its first letter in upper case."""
    return text[:1].upper() + text[1:]
