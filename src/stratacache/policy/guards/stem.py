"""A light English stemmer: inflected forms of a word to one stem, the same for lexicon and text."""

from __future__ import annotations

from functools import lru_cache

from stratacache.policy.guards import lexicon

_IRREGULAR = {
    form: line.split()[0] for line in lexicon.sections("irregular_en.txt")[""] for form in line.split()[1:]
}
_VOWELS = frozenset("aeiouy")


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """The stem of a lower-case word; not a word itself ("disabling", "disabled" → "disabl"). Linear, never raises.

    Comparatives are left alone ("cheaper" stays): whether -er is an ending depends on the lexicon that asks.
    """
    word = word.removesuffix("'s").removesuffix("'")
    word = _IRREGULAR.get(word, word)
    if len(word) < 4 or not word.isascii():
        return word
    if word.endswith("ies"):
        word = word[:-3] + "y" if len(word) > 4 else word[:-1]
    elif word.endswith(("sses", "shes", "ches", "xes", "zes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    if len(word) > 5 and word.endswith("ing"):
        word = _without(word, 3)
    elif len(word) > 4 and word.endswith("ied"):
        word = word[:-3] + "y"
    elif len(word) > 4 and word.endswith("ed") and not word.endswith("eed"):
        word = _without(word, 2)
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


def _without(word: str, ending: int) -> str:
    """Without the ending and a consonant doubled before it ("stopping" → "stop"); as it was if no vowel is left."""
    base = word[:-ending]
    if not _VOWELS.intersection(base) or len(base) < 3:
        return word
    if base[-1] == base[-2] and base[-1] not in "lsz":
        return base[:-1]
    return base
