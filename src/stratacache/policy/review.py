"""What people are asked about: which semantic answers go into the review queue, and which of them come first. Pure."""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

Kind = Literal["hit", "shadow_hit", "near_miss"]
Verdict = Literal["right", "wrong", "skip"]

STRATA = {"unsure": 100, "random": 50, "near_miss": 50, "vetoed": 50}
"""Most pairs of each stratum: hits by rising confidence, hits at random, what was refused by falling probability, and
what guards vetoed by falling similarity."""
NEARLY = 0.3  # the least probability of a near miss
RANDOM_SHARE = 0.02  # of the hits
_SPREAD = (
    1_000_000  # equal pairs of the random stratum get an equal draw, so one asked often is in it no sooner
)


class Item(msgspec.Struct, frozen=True, gc=False):
    """A question that was asked beside a stored one, and what was made of the two.

    ``id``: 32 hex digits; ``entry`` that of the stored answer. ``rank``: the lowest of a stratum come first.
    ``reason``: why nothing was served, "" for a hit. ``probability`` is the verifier's, None where it was not asked.
    ``guards`` are their findings. Times are seconds since the epoch; from ``expires_at`` on the answer is gone.
    """

    id: str
    kind: Kind
    stratum: str
    rank: float
    reason: str
    tenant: str
    scene: str
    language: str
    risk: str
    asked: str
    stored: str
    entry: str
    similarity: float
    probability: float | None
    guards: tuple[str, ...]
    at: float
    expires_at: float


def pair_id(tenant: str, asked: str, entry: str) -> str:
    """The same pair is one item, however often it is met."""
    told = msgspec.json.encode([tenant, asked, entry])
    return hashlib.sha256(b"stratacache review\0" + told).hexdigest()[:32]


def stratum_of_hit(identity: str, confidence: float) -> tuple[str, float]:
    """The stratum and rank of a hit. By the digest and not by a draw, so that all instances agree."""
    draw = int(identity[:12], 16) / 16**12
    if draw < RANDOM_SHARE:
        return "random", (int(identity[12:24], 16) % _SPREAD) / _SPREAD
    return "unsure", confidence


def stratum_of_miss(probability: float | None, similarity: float) -> tuple[str, float]:
    """The stratum and rank of a pair that was refused."""
    return ("vetoed", -similarity) if probability is None else ("near_miss", -probability)
