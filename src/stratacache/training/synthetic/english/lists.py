"""English word lists: replacement of listed words, verbs in all their forms, by their partners."""

from __future__ import annotations

import re
from functools import cache

from stratacache.training.synthetic.english.forms import inflected
from stratacache.training.synthetic.lexicon import partners
from stratacache.training.synthetic.pair import Draw
from stratacache.training.synthetic.text import like, spliced, words_in

_NEAR = 25  # characters on each side of a word in which a fixed phrase may hold it


@cache
def _partners(name: str, cased: bool) -> dict[str, list[tuple[str, str]]]:
    """Every form of every listed word, with its partners and the lexicon entry that each belongs to."""
    found: dict[str, list[tuple[str, str]]] = {}
    for left, right, *options in partners(name):
        entry = f"{name} {min(left, right)} {max(left, right)}"
        for old, new in [(left, right)] if ">" in options else [(left, right), (right, left)]:
            for old_form, new_form in zip(
                inflected(old, "v" in options), inflected(new, "v" in options), strict=True
            ):
                found.setdefault(old_form if cased else old_form.lower(), []).append((new_form, entry))
    return found


def replaced(
    text: str, draw: Draw, name: str, blocked: re.Pattern[str] | None = None, *, cased: bool = False
) -> str | None:
    """One listed word replaced by its partner, where the list allows this direction and the part this entry.

    ``blocked`` found near a word spares it. ``cased``: names are matched as written.
    """
    listed = _partners(name, cased)
    matches = words_in(text, listed, cased=cased)
    draw.rng.shuffle(matches)
    for match in matches:
        if blocked and blocked.search(text[max(0, match.start() - _NEAR) : match.end() + _NEAR]):
            continue
        forms = listed[match[0] if cased else match[0].lower()]
        usable = [new for new, entry in forms if draw.allows(entry) and not words_in(text, (new,))]
        usable = [new for new in usable if _article_fits(text[: match.start()], new)]
        if usable:
            new = draw.rng.choice(usable)
            return spliced(text, match.span(), new if cased else like(match[0], new))
    return None


def _article_fits(before: str, new: str) -> bool:
    article = re.search(r"\b(an?|the) $", before, re.I)
    if not article:
        return True
    if article[1].lower() == "the":
        return not new.startswith("the ")
    return (new[0].lower() in "aeiou") == (article[1].lower() == "an")
