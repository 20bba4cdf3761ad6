"""English inflection of listed verbs, so that a list holds one form and the rules find all."""

from __future__ import annotations

from functools import cache

from stratacache.training.synthetic.lexicon import rows


@cache
def _irregular() -> dict[str, tuple[str, ...]]:
    return {row[0]: row for row in rows("en_irregular_verbs")}


@cache
def inflected(word: str, verb: bool) -> tuple[str, ...]:
    """The word alone, or a verb's base, -s, -ing, past and participle; of a phrase the first word is inflected."""
    if not verb:
        return (word,)
    head, _, rest = word.partition(" ")
    tail = f" {rest}" if rest else ""
    if head in _irregular():
        return tuple(form + tail for form in _irregular()[head])
    return tuple(form + tail for form in (head, _third(head), _stem(head) + "ing", _past(head), _past(head)))


def _third(verb: str) -> str:
    if verb.endswith(("s", "x", "ch", "sh", "z", "o")):
        return verb + "es"
    return verb[:-1] + "ies" if _consonant_y(verb) else verb + "s"


def _stem(verb: str) -> str:
    if verb.endswith("e") and not verb.endswith(("ee", "ye", "oe")):
        return verb[:-1]
    return verb


def _past(verb: str) -> str:
    if _consonant_y(verb):
        return verb[:-1] + "ied"
    return _stem(verb) + "ed" if not verb.endswith("ee") else verb + "d"


def _consonant_y(verb: str) -> bool:
    return verb.endswith("y") and verb[-2:-1] not in set("aeiou")
