"""Text normalisation for the exact key: one form for what differs only in how it was typed.

The form is used to build a key and is never sent to a model. Two texts with equal forms get the same answer,
so every rule here keeps the meaning, and what is in doubt is left alone: a miss costs a model call, a wrong
answer costs trust. ``docs/guide/exact-key.md`` lists the rules with examples.
"""

from __future__ import annotations

from collections.abc import Sequence

from stratacache.policy.normalise.chars import latin_words
from stratacache.policy.normalise.forms import is_form_sensitive, is_material_prompt
from stratacache.policy.normalise.prose import normalise_prose
from stratacache.policy.normalise.text import tidy

NORMALISER_VERSION: int = 1
"""Part of every key: raise it whenever any text's normal form changes, so that old entries are not found."""

MAX_PROSE: int = 20_000
"""Characters; a longer text is pasted material rather than a question and is only tidied."""


def normalise(text: str) -> str:
    """The normal form of one question: pure, idempotent, linear in ``len(text)``, never raises.

    A question about its own form (translate, spell, count letters, 翻译, 标点 …) is only tidied.
    """
    return normalise_all((text,))[0]


def normalise_all(texts: Sequence[str]) -> list[str]:
    """The normal forms of what one speaker said in turn; when one is about form, all are only tidied.

    "Translate what I send you." makes material of every later message.
    """
    plain = [tidy(text) for text in texts]
    words = [latin_words(text) if len(text) <= MAX_PROSE else None for text in plain]
    if any(w is not None and is_form_sensitive(t, w) for t, w in zip(plain, words, strict=True)):
        return plain
    return [t if w is None else normalise_prose(t, w) for t, w in zip(plain, words, strict=True)]


__all__ = ["MAX_PROSE", "NORMALISER_VERSION", "is_material_prompt", "normalise", "normalise_all", "tidy"]
