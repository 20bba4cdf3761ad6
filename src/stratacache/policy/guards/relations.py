"""Ordered relations in a text: what stands left and right of a word such as *than*, *before*, *to* or 比.

The sides are taken as bags of content words near the word, so no grammar is needed: an exchange shows when a word of
one text's left side stands right in the other, and the reverse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from stratacache.policy.guards.reading import STOP_STEMS, Token

Order = Literal["same", "swapped", "unclear"]
NEAR = 6
"""Tokens looked at on either side."""
MOST = 8
"""Relations of a kind that are looked at in a text; each is compared with each of the other text."""


class Relation(NamedTuple):
    """``pole``: +1 or -1 by which end the left side takes; 0 when the scale's word is not known."""

    scale: str
    pole: int
    left: frozenset[str]
    right: frozenset[str]


def side(tokens: Sequence[Token], ends: frozenset[str]) -> frozenset[str]:
    """Content stems of the tokens up to a mark or one of ``ends``; at most ``NEAR`` tokens."""
    found = set()
    for token in tokens[:NEAR]:
        if token.kind == "mark" or token.stem in ends:
            break
        if token.stem not in STOP_STEMS or (token.text.isupper() and token.text != "I"):
            found.add(token.stem)
    return frozenset(found)


def order(one: Relation, other: Relation) -> Order:
    """Whether two relations have their sides alike or exchanged, by the words that tell the sides apart."""
    left, right = one.left - one.right, one.right - one.left
    other_left, other_right = other.left - other.right, other.right - other.left
    kept = (left & other_left, right & other_right)
    moved = (left & other_right, right & other_left)
    if not any(kept) and _most(moved[0], left, other_right) and _most(moved[1], right, other_left):
        return "swapped"
    if not any(moved) and _most(kept[0], left, other_left) and _most(kept[1], right, other_right):
        return "same"
    return "unclear"


def _most(common: frozenset[str], one: frozenset[str], other: frozenset[str]) -> bool:
    """At least half of the shorter side: one character in common makes no two places one."""
    return bool(common) and 2 * len(common) >= min(len(one), len(other))
