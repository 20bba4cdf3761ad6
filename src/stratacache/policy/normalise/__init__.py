"""Text normalisation for the exact key: one form for what differs only in how it was typed.

The form is used to build a key and is never sent to a model. Two texts with equal forms get the same answer,
so every rule here keeps the meaning, and what is in doubt is left alone: a miss costs a model call, a wrong
answer costs trust. ``docs/guide/exact-key.md`` lists the rules with examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

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
    both = [_forms_memo(text) if len(text) <= _MEMO_CHARS else _forms(text) for text in texts]
    if any(form is None for _, form in both):
        return [plain for plain, _ in both]
    return [plain if form is None else form for plain, form in both]


def _forms(text: str) -> tuple[str, str | None]:
    """The tidied text and its normal form, None when the text is about its own form."""
    plain = tidy(text)
    if len(plain) > MAX_PROSE:
        return plain, plain
    words = latin_words(plain)
    return plain, None if is_form_sensitive(plain, words) else normalise_prose(plain, words)


# What hits is asked again and again, and a remembered form costs a hundredth of a computed one. At most some 2 MB.
_MEMO_CHARS = 512
_forms_memo = lru_cache(maxsize=1024)(_forms)


__all__ = ["MAX_PROSE", "NORMALISER_VERSION", "is_material_prompt", "normalise", "normalise_all", "tidy"]
