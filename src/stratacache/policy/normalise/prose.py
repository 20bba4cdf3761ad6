"""Applies the rules to one question: exact spans are cut out first, then each stretch of prose is folded."""

from __future__ import annotations

import re

from stratacache.policy.normalise import chinese, english
from stratacache.policy.normalise.chars import HAN
from stratacache.policy.normalise.dates import fold_dates
from stratacache.policy.normalise.numbers import fold_numbers
from stratacache.policy.normalise.spans import (
    FILLER,
    Span,
    is_opaque,
    is_plain,
    skeleton,
    split_quoted,
    split_tokens,
)
from stratacache.policy.normalise.text import (
    collapse_spaces,
    fold_apostrophes,
    fold_spacing,
    fold_width,
    tidy_lines,
)

_SENTENCE_BREAKS = ("?", "!", ". ", ";", ":", "。")
_BEFORE_QUESTION_MARK = re.compile(rf"[A-Za-z0-9%)\"{HAN}{FILLER}]")
_BEFORE_STOP = re.compile(rf"[A-Za-z{HAN}]")
_DOTTED_END = re.compile(rf"[^.]\.[^{HAN}]*$")


def normalise_prose(text: str, words: frozenset[str]) -> str:
    """The normal form of a tidied text that is not about its own form. Idempotent.

    ``words`` are the ``latin_words`` of the text, which tell quickly what cannot apply.
    """
    if "\n" in text:
        return tidy_lines(text)
    spans = _cut(text)
    if spans is None:
        return text
    if len(spans) == 1 and spans[0][0]:
        line = english.fold_case(_fold(spans[0][1], text, words), first=True)
        return _fold_end(line, line)
    last = len(spans) - 1
    spans = [
        (p, _fold_between(part, text, words, i > 0, i < last) if p else part)
        for i, (p, part) in enumerate(spans)
    ]
    spans = [(p, english.fold_case(part, first=i == 0) if p else part) for i, (p, part) in enumerate(spans)]
    if spans[-1][0]:
        spans[-1] = (True, _fold_end(spans[-1][1], skeleton(spans)))
    return "".join(part for _, part in spans)


def _cut(line: str) -> list[Span] | None:
    """Prose, width and spaces folded, and exact spans; None when the whole line is exact."""
    if is_plain(line):
        return [(True, collapse_spaces(line))]
    quoted = None if is_opaque(line) else split_quoted(line)
    if quoted is None:
        return None
    spans: list[Span] = []
    for prose, part in quoted:
        spans += split_tokens(fold_width(collapse_spaces(part))) if prose else [(False, part)]
    return spans


def _fold_between(prose: str, text: str, words: frozenset[str], before: bool, after: bool) -> str:
    """Fold with fillers for exact spans ``before`` and ``after``, so that no rule takes a cut for an end."""
    folded = _fold(FILLER * before + prose + FILLER * after, text, words)
    return folded[before : len(folded) - after]


def _fold(prose: str, text: str, words: frozenset[str]) -> str:
    spaced = fold_spacing(fold_apostrophes(prose))
    folded = fold_dates(fold_numbers(spaced, text, words))
    if folded != spaced:
        folded = fold_spacing(folded)  # digits that replaced numerals may now stand beside a space that goes
    return folded


def _fold_end(last: str, line: str) -> str:
    """Drop a final mark that repeats what the words say: ``last`` is the end of ``line``.

    A question mark goes when the sentence is a question without it, a full stop when the sentence is complete.
    """
    mark, rest, whole = last[-1:], last[:-1], line[:-1]
    if mark == "?" and _BEFORE_QUESTION_MARK.match(whole[-1:]):
        sentence = _last_sentence(whole)
        return rest if english.is_question(sentence) or chinese.is_question(sentence) else last
    if (
        mark in (".", "。")
        and _BEFORE_STOP.match(rest[-1:])
        and not _DOTTED_END.search(whole.rsplit(" ", 1)[-1])
    ):
        sentence = _last_sentence(whole)
        return rest if english.is_finished(sentence) and chinese.is_finished(sentence) else last
    return last


def _last_sentence(line: str) -> str:
    start = max(line.rfind(mark) for mark in _SENTENCE_BREAKS)
    return line[start + 1 :].strip()
