"""The features of a question: named signals from lexicons, and hashed n-grams of its words or characters."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final
from unicodedata import normalize
from zlib import crc32

from stratacache.policy.cacheability.lexicon import PATTERNS

BUCKETS: Final = 16_384
"""Hashed n-grams share so many weights; a power of two."""

# Each signal is one weight: it carries over to words and domains that were not in the training questions.
SIGNALS: Final = (
    *PATTERNS,
    "words_2",
    "words_3",
    "words_4",
    "words_6",
    "words_many",
    "chinese",
    "now_and_holder",
    "mine_and_how",
)
_COMPILED: Final = tuple(re.compile(pattern) for pattern in PATTERNS.values())
_NUMBER_OF: Final = {name: number for number, name in enumerate(SIGNALS)}
_TOKEN = re.compile(r"[a-z]+(?:'[a-z]+)?|[\u3400-\u9fff]|\d+|[?!]")
_LENGTHS: Final = ((2, "words_2"), (3, "words_3"), (4, "words_4"), (6, "words_6"))


def features_of(question: str) -> tuple[list[int], list[int]]:
    """``(signals, ngrams)``: numbers into :data:`SIGNALS`, and distinct buckets below :data:`BUCKETS`."""
    text = " ".join(normalize("NFKC", question).replace("’", "'").lower().split())
    tokens = ["0" if token.isdigit() else token for token in _TOKEN.findall(text)]
    signals = [number for number, pattern in enumerate(_COMPILED) if pattern.search(text)]
    names = {SIGNALS[number] for number in signals}
    length = sum(word not in "?!" for word in tokens)
    chinese = any("\u3400" <= token <= "\u9fff" for token in tokens)
    size = (length + 1) // 2 if chinese else length
    extra = [next((name for limit, name in _LENGTHS if size <= limit), "words_many")]
    if chinese:
        extra.append("chinese")
    if "holder" in names and "now" in names:
        extra.append("now_and_holder")
    if "how_to" in names and {"mine", "i"} & names:
        extra.append("mine_and_how")
    return signals + [_NUMBER_OF[name] for name in extra], sorted(_buckets(tokens))


def _buckets(tokens: list[str]) -> set[int]:
    """Words and pairs anywhere, up to four words at the beginning, the last two; the same of Chinese characters."""
    grams = [*tokens, *(f"{a} {b}" for a, b in pairwise(tokens))]
    grams += [f"{a} {b} {c}" for a, b, c in zip(tokens, tokens[1:], tokens[2:], strict=False)]
    grams += ["^ " + " ".join(tokens[:count]) for count in range(1, min(len(tokens), 4) + 1)]
    grams += [" ".join(tokens[-count:]) + " $" for count in range(1, min(len(tokens), 3) + 1)]
    return {crc32(gram.encode()) % BUCKETS for gram in grams}
