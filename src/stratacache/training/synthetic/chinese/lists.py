"""Chinese word lists: two-way replacement of listed words, written without spaces."""

from __future__ import annotations

import re
from functools import cache

from stratacache.training.synthetic.lexicon import partners
from stratacache.training.synthetic.pair import Draw
from stratacache.training.synthetic.text import spliced


@cache
def _partners(name: str) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for left, right, *options in partners(name):
        for old, new in [(left, right)] if ">" in options else [(left, right), (right, left)]:
            found.setdefault(old, []).append((new, f"{name} {min(old, new)} {max(old, new)}"))
    return found


@cache
def alternation(words: tuple[str, ...]) -> re.Pattern[str]:
    """The words as one pattern, the longest first; Latin words are not found inside longer ones."""
    ordered = sorted(words, key=len, reverse=True)
    return re.compile(
        "|".join(
            rf"(?<![A-Za-z0-9]){re.escape(w)}(?![A-Za-z0-9+#])" if w.isascii() else re.escape(w)
            for w in ordered
        )
    )


def replaced(text: str, draw: Draw, name: str, blocked: re.Pattern[str] | None = None) -> str | None:
    """One listed word replaced by its partner, where the list allows this direction and the part this entry."""
    listed = _partners(name)
    matches = list(alternation(tuple(listed)).finditer(text))
    draw.rng.shuffle(matches)
    for match in matches:
        around = text[max(0, match.start() - 3) : match.end() + 3]
        usable = [new for new, entry in listed[match[0]] if draw.allows(entry) and new not in text]
        if usable and not (blocked and blocked.search(around)):
            return spliced(text, match.span(), draw.rng.choice(usable))
    return None
