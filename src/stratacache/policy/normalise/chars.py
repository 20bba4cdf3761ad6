"""Character classes shared by the normaliser's rules, and the width table."""

from __future__ import annotations

import re

HAN = "\u3400-\u4dbf\u4e00-\u9fff\u3007"
"""Ideographs as a regex class body. Kana and Hangul are left out on purpose: spaces separate words in Korean."""

HSPACE = " \t\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
"""Horizontal white space as a regex class body. Zero-width characters are not in it: they join emoji."""

_FOLDED_PUNCTUATION = "!#%&()+,-./:;=?@"


def _width_table() -> dict[int, int]:
    """Full-width letters, digits and plain punctuation to ASCII.

    Not blind NFKC: that turns x² into x2, ½ into 1⁄2 and ① into 1. Full-width quotes, brackets, ``\\``, ``^``,
    ``_``, ``|``, ``~`` and the back-tick stay too: their ASCII twins delimit code and quotations.
    """
    plain = [chr(c) for c in range(0x21, 0x7F) if chr(c).isalnum()] + list(_FOLDED_PUNCTUATION)
    return {ord(c) + 0xFEE0: ord(c) for c in plain}


WIDTH_TABLE = _width_table()

_WORD = re.compile(r"[a-z]+[0-9]*")
_GAPS = {code: " " for code in range(128) if not chr(code).isalnum()}


def latin_words(text: str) -> frozenset[str]:
    """The lower-cased ASCII words of a text, whatever their width: a cheap test of which rules can apply."""
    if text.isascii():
        return frozenset(text.lower().translate(_GAPS).split())
    return frozenset(_WORD.findall(text.lower().translate(WIDTH_TABLE)))


def lexicon(*lines: str) -> frozenset[str]:
    """A word list written as lines of words."""
    return frozenset(word for line in lines for word in line.split())
