"""Guard: characters that hide what is written: invisible ones, changed directions, look-alikes of other scripts.

Language models read tag characters that nobody sees, and a rule that knows "without" does not know it in Cyrillic.
"""

from __future__ import annotations

import re
import unicodedata

from stratacache.policy.guards.finding import Finding
from stratacache.policy.guards.pair import Pair
from stratacache.policy.guards.reading import Reading

_LATIN = "A-Za-z\u00c0-\u024f"
_OTHERS = "\u0370-\u03ff\u0400-\u052f\u0530-\u058f\u13a0-\u13ff"
_HIDING = re.compile(
    "[\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200e\u200f\u202a-\u202e\u2061-\u206f\u3164\uffa0"
    "\ufff0-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
    # Struck through or enclosed; mathematical, circled and other letters in disguise.
    "|[\u0334-\u0338\u20d0-\u20ff]|[\U0001d400-\U0001d7ff\U0001f110-\U0001f189\u24b6-\u24e9\u2460-\u249b]"
    # One word in two alphabets.
    f"|(?<=[{_LATIN}])[{_OTHERS}]|(?<=[{_OTHERS}])[{_LATIN}]"
)


def hidden(reading: Reading) -> frozenset[str]:
    """The characters of a text that hide something."""
    return frozenset(_HIDING.findall(reading.text)) if not reading.text.isascii() else frozenset()


def check(pair: Pair) -> list[Finding]:
    """Veto for such characters on one side only."""
    asked, stored = pair.asked.fact(hidden), pair.stored.fact(hidden)
    if asked == stored:
        return []
    return [Finding("characters", "veto", f"{_names(asked)} / {_names(stored)}")]


def _names(found: frozenset[str]) -> str:
    names = sorted({unicodedata.name(char, f"U+{ord(char):04X}").lower() for char in found})
    return ", ".join(names[:3]) or "none"
