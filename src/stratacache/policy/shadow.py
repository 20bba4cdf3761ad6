"""What shadow mode has seen of a scene, and whether that is enough to let the semantic tier answer there. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from stratacache.policy.bound.interval import wilson

LEAST = 50
"""Comparisons before anything is advised: with 50 of 50 right the interval still reaches down to 93 %."""

Advice = Literal["more_traffic", "calibrate", "serve"]


class ShadowScene(msgspec.Struct, frozen=True):
    """``hits`` would have been answered. Of those, so many agreed with the model's answer or not; the rest is open.

    ``precision`` is the share of agreement with its 95 % interval; None while nothing was compared. ``error`` is the
    most wrong answers per request that this interval leaves possible. ``advice``: see :func:`shadow_scene`.
    """

    scene: str
    hits: int
    agree: int
    disagree: int
    open: int
    precision: float | None
    low: float
    high: float
    error: float
    max_error: float
    advice: Advice


def shadow_scene(
    scene: str, results: Mapping[str, int], requests: int, max_error: float, least: int = LEAST
) -> ShadowScene:
    """The report of ``scene``: of its ``requests`` some would have been answered, ``results`` by how they compared.

    ``serve`` is advised when even the lower limit of the precision keeps to ``max_error``; ``calibrate`` when the upper
    one does not; else there was too little traffic to tell.
    """
    agree, disagree = results.get("agree", 0), results.get("disagree", 0)
    hits, known = sum(results.values()), agree + disagree
    precision = agree / known if known else None
    low, high = wilson(precision, known) if precision is not None else (0.0, 1.0)
    share = hits / max(requests, hits, 1)
    advice: Advice = "more_traffic"
    if known >= least and (1 - low) * share <= max_error:
        advice = "serve"
    elif known >= least and (1 - high) * share > max_error:
        advice = "calibrate"
    return ShadowScene(
        scene=scene,
        hits=hits,
        agree=agree,
        disagree=disagree,
        open=hits - known,
        precision=precision,
        low=low,
        high=high,
        error=(1 - low) * share,
        max_error=max_error,
        advice=advice,
    )
