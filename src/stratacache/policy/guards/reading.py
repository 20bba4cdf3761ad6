"""One text as the guards see it: bounded, width-folded, cut into tokens; read once and remembered."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeVar, cast

from stratacache.policy.guards import lexicon
from stratacache.policy.guards.stem import stem
from stratacache.policy.normalise.chars import HAN, WIDTH_TABLE

MAX_CHARS: int = 1_000
"""What is looked at of a text; of a longer one the guards are never sure."""

Kind = Literal["word", "han", "number", "mark"]
T = TypeVar("T")


class Token(NamedTuple):
    """A Latin (or other spaced) word, one ideograph, a run of digits, or one mark."""

    text: str
    kind: Kind
    start: int
    stem: str


_TABLE = WIDTH_TABLE | {0x2019: "'", 0x2018: "'", 0x201B: "'", 0x02BC: "'", 0x3000: " ", 0x00A0: " "}
# Between letters they are invisible and mean nothing.
_INVISIBLE = dict.fromkeys((0xAD, *range(0x200B, 0x200E), 0x2060, *range(0xFE00, 0xFE10), 0xFEFF), "")
_TABLE |= _INVISIBLE
_TOKEN = re.compile(
    rf"(?P<han>[{HAN}])|(?P<word>[^\W\d_{HAN}]+(?:'[^\W\d_{HAN}]+)*)|(?P<number>[0-9]+(?:[.,][0-9]+)*)|(?P<mark>[^\s\w])"
)
_HAN = re.compile(f"[{HAN}]")
_STOP = lexicon.sections("function_words.txt")
STOP_STEMS = frozenset(stem(word) for word in lexicon.words(_STOP["en"]))
_STOP_CHARS = frozenset("".join(_STOP["zh characters"]).replace(" ", ""))
_PARTICLES = frozenset(stem(word) for word in lexicon.words(_STOP["particles"]))
_STOP_HAN = re.compile("|".join(sorted(lexicon.words(_STOP["zh words"]), key=len, reverse=True)))


def visible(text: str) -> str:
    """``text`` without characters that would only hide its words from who compares it; emoji fall into their parts."""
    return text if text.isascii() else text.translate(_INVISIBLE)


class Reading:
    """A text's tokens and what the guards found in it.

    Attributes:
        text: the width-folded text, at most ``MAX_CHARS`` characters.
        lower: the same in lower case, of the same length.
        cut: the text went on.
        tokens: in order.
        stems: of the tokens that are no marks, in order.
        every: how often each stem or ideograph occurs; only articles and particles are left out.
        content: how often each content unit occurs: stems without function words, single ideographs without particles.
    """

    __slots__ = ("_facts", "content", "cut", "every", "has_han", "lower", "stems", "text", "tokens")

    def __init__(self, text: str) -> None:
        self.cut = len(text) > MAX_CHARS
        self.text = text[:MAX_CHARS].translate(_TABLE)
        lower = self.text.lower()
        self.lower = lower if len(lower) == len(self.text) else self.text
        self.has_han = not self.text.isascii() and _HAN.search(self.text) is not None
        self.tokens = tuple(_tokens(self.text))
        self.stems = tuple(token.stem for token in self.tokens if token.kind != "mark")
        self.every = Counter(unit for unit in self.stems if unit not in _PARTICLES)
        self.content = _content(self)
        self._facts: dict[Callable[[Reading], Any], Any] = {}

    def fact(self, extract: Callable[[Reading], T]) -> T:
        """``extract(self)``, computed once: a stored question is compared with many others."""
        if extract not in self._facts:
            self._facts[extract] = extract(self)
        return cast(T, self._facts[extract])


def _tokens(text: str) -> list[Token]:
    found: list[Token] = []
    for match in _TOKEN.finditer(text):
        kind = cast(Kind, match.lastgroup)
        piece = match[0]
        found.append(Token(piece, kind, match.start(), stem(piece.lower()) if kind == "word" else piece))
    return found


def _content(reading: Reading) -> Counter[str]:
    units = Counter(
        token.stem
        for token in reading.tokens
        if token.kind == "number" or (token.kind == "word" and token.stem not in STOP_STEMS)
    )
    if reading.has_han:
        kept = _STOP_HAN.sub(" ", reading.text)
        units.update(char for char in _HAN.findall(kept) if char not in _STOP_CHARS)
    return units


_REMEMBERED_CHARS = 400
_remembered = lru_cache(maxsize=512)(Reading)


def read(text: str) -> Reading:
    """The reading of a text; short ones are remembered (512 of some 10 kB each)."""
    return _remembered(text) if len(text) <= _REMEMBERED_CHARS else Reading(text)
