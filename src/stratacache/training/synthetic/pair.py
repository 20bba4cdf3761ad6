"""The values of the synthetic generator: real questions, labelled pairs, and the rules that make pairs."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Literal

Language = Literal["en", "zh"]
Part = Literal["train", "eval"]

_HELD_OUT = 5  # every fifth lexicon entry or intent, by hash, is kept for evaluation


@dataclass(frozen=True, slots=True)
class Sourced:
    """A real question, given by the caller."""

    text: str
    language: Language


@dataclass(frozen=True, slots=True)
class Pair:
    """Two questions; ``label`` is 1 when one answer serves both, else 0. ``rule`` says what made the pair."""

    q1: str
    q2: str
    label: int
    language: Language
    rule: str
    source: Literal["rules", "grammar"]


def is_held_out(name: str) -> bool:
    """Whether a lexicon entry or intent is kept for evaluation: about a fifth, by hash, stable over runs."""
    return hashlib.sha256(name.encode()).digest()[0] % _HELD_OUT == 0


@dataclass(frozen=True, slots=True)
class Draw:
    """What a rule may draw on: randomness, and which part of the lexicon it is to use."""

    rng: Random
    part: Part

    def allows(self, *names: str) -> bool:
        """Whether an edit by these lexicon entries belongs to this part.

        ``train`` edits use no held-out entry and ``eval`` edits at least one, so no edit is in both.
        """
        return any(map(is_held_out, names)) == (self.part == "eval")


Rewrite = Callable[[str, Draw], str | tuple[str, str] | None]
"""A question and the draw to a rewritten question, to two that stand for it (each with an addition, say), or None
where the rule does not surely apply."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rewrite whose label is sure. Rules of one ``surface`` make alike-looking edits of both labels."""

    name: str
    language: Language
    label: int
    surface: str
    rewrite: Rewrite


def normalised(text: str) -> str:
    """The text without case, width, punctuation and spacing: two such equal texts are one question."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return re.sub(r"[\s_]+", " ", re.sub(r"[^\w\s$€£¥%+#]", " ", folded)).strip()
