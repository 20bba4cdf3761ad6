"""Whether two answers say the same, as a label for the question that one of them was stored for. Pure.

A label that is wrong misleads the error bound, so what is not clear is ``unsure``, which gives none. The rules, of
which the first that applies holds:

1. equal but for case, punctuation and white space: agree;
2. one begins with yes and the other with no: disagree;
3. both are short and name numbers, and have none in common: disagree;
4. both are short, and the shorter, of few words, stands in the longer as it is: agree, but for a negation in one alone;
5. by the share of content words in common (Dice) and the cosine of the two, where there is one: agree or disagree when
   both say so, or one alone without the other; else unsure.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Literal

from stratacache.policy.normalise.chars import lexicon

Agreement = Literal["agree", "disagree", "unsure"]

MAX_CHARS = 4000
"""Of either answer only so much is read: what comes after repeats or details it."""

_SHORT = 40  # words
_FEW = 6
_AGREE_WORDS, _DISAGREE_WORDS = 0.6, 0.2
_AGREE_COSINE, _DISAGREE_COSINE = 0.8, 0.45
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?|\d+(?:[.,]\d+)*|[\u3400-\u9fff]|[^\W\d_]+")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_YES = frozenset({"yes", "yeah", "correct", "true", "是", "对", "可", "能", "会"})
_NO = frozenset({"no", "not", "incorrect", "false", "不", "否", "没"})
_STOP = lexicon(
    "a an the is are was were be been it its this that these those of in on at to for from by with and or as you your",
    "we our i my can will would should may do does did has have had so if then than there here which who what when",
    "的 了 是 在 和 与 或 有 就 也 都 而 及 着 您 你 我 们 这 那 个",
)


def compare_answers(fresh: str, cached: str, cosine: float | None = None) -> Agreement:
    """The label: ``agree`` when the cached answer would have served where the fresh one was given.

    Args:
        cosine: of the two answers' embeddings; None when there is none.
    """
    one, other = _words(fresh), _words(cached)
    if one == other:
        return "agree"
    if not one or not other or _opposed(one[0], other[0]):
        return "disagree"
    short, long = sorted((one, other), key=len)
    if len(long) > _SHORT:
        return _by_likeness(_dice(one, other), cosine)
    if _other_numbers(short, long):
        return "disagree"
    within = len(short) <= _FEW and _within(short, long)
    alike = "agree" if within else _by_likeness(_dice(one, other), cosine)
    return "unsure" if alike == "agree" and _NO.isdisjoint(short) != _NO.isdisjoint(long) else alike


def _by_likeness(dice: float, cosine: float | None) -> Agreement:
    if cosine is None:
        return "agree" if dice >= _AGREE_WORDS else "disagree" if dice <= _DISAGREE_WORDS / 2 else "unsure"
    if cosine >= _AGREE_COSINE and dice >= _AGREE_WORDS / 2:
        return "agree"
    return "disagree" if cosine <= _DISAGREE_COSINE and dice <= _DISAGREE_WORDS else "unsure"


def _words(text: str) -> list[str]:
    return _WORD.findall(text[:MAX_CHARS].casefold())


def _opposed(first: str, second: str) -> bool:
    return (first in _YES and second in _NO) or (first in _NO and second in _YES)


def _other_numbers(one: list[str], other: list[str]) -> bool:
    numbers = [{word for word in words if _NUMBER.fullmatch(word)} for words in (one, other)]
    return all(numbers) and not numbers[0] & numbers[1]


def _within(short: list[str], long: list[str]) -> bool:
    return any(long[i : i + len(short)] == short for i in range(len(long) - len(short) + 1))


def _dice(one: list[str], other: list[str]) -> float:
    counts = [Counter(word for word in words if word not in _STOP) for words in (one, other)]
    total = counts[0].total() + counts[1].total()
    return 2 * (counts[0] & counts[1]).total() / total if total else 0.0
