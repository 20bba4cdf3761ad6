"""What the error bound believes, for people to look at: the curve of a scene and where on it answers are served."""

from __future__ import annotations

import math

import msgspec

from stratacache.policy.bound.curve import Curve, Labels
from stratacache.policy.bound.ledger import MARGIN, Ledger
from stratacache.policy.bound.scale import BINS, centre, probability

MOST_PICTURES = 12


class Point(msgspec.Struct, frozen=True):
    """One bin: at the verifier's probability ``p`` an answer is wrong with ``risk``, or with ``upper`` at the caution
    that the bound takes. ``right`` and ``wrong`` are the labels there, ``served`` the answers; all fade with time."""

    p: float
    risk: float
    upper: float
    right: float
    wrong: float
    served: float


class Picture(msgspec.Struct, frozen=True):
    """A scene and risk in a language: answers are served from ``threshold_p`` on, None while none are.

    ``max_error`` is allowed of the ``requests`` that looked, of which ``hits`` were answered.
    """

    scene: str
    risk: str
    language: str
    max_error: float
    threshold_p: float | None
    requests: float
    hits: float
    points: tuple[Point, ...]


def draw(
    where: tuple[str, str, str], max_error: float, ledger: Ledger, labels: Labels, curve: Curve
) -> Picture:
    """``where``: scene, risk and language. Changes nothing."""
    floor = ledger.threshold(curve, max_error)
    points = [
        Point(
            p=probability(centre(index)),
            risk=curve.risk[index],
            upper=min(1.0, curve.risk[index] + MARGIN * curve.doubt[index]),
            right=labels.right[index],
            wrong=labels.wrong[index],
            served=ledger.served[index],
        )
        for index in range(BINS)
    ]
    threshold = probability(floor) if floor < math.inf else None
    return Picture(*where, max_error, threshold, ledger.requests, ledger.hits, tuple(points))
