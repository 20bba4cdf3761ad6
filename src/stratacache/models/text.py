"""The rules of what an embedder is given, and of what it may give back; ``RULES`` counts their versions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stratacache.errors import ModelError
from stratacache.ports import Vector

RULES = 1
"""Part of every fingerprint: vectors made by different rules are not compared."""
HEAD = 384
TAIL = 128
_SHORTEST = 1e-6  # of a vector; no model gives one so near to zero unless it is broken


def embeddable(text: str) -> str:
    """``text`` as embedders get it: of more than ``HEAD`` + ``TAIL`` characters, the first ``HEAD`` and last ``TAIL``.

    What is asked stands at the beginning or the end of a long message, and the embedding only finds candidates:
    guards and verifier see the whole text. Lone surrogates, which have no UTF-8, become question marks.

    Raises:
        ModelError: ``nothing_to_embed``: no letter of any script is in it (empty, emoji, digits, punctuation).
    """
    short = text if len(text) <= HEAD + TAIL else f"{text[:HEAD]} {text[-TAIL:]}"
    if not any(map(str.isalpha, short)):
        raise ModelError("the question has no letters", code="nothing_to_embed")
    return short.encode("utf-8", "replace").decode("utf-8")


def unit(raw: NDArray[np.generic] | Sequence[float], model: str) -> Vector:
    """``raw``, shape (dimension,), scaled to length 1, read-only.

    Raises:
        ModelError: ``embedder_error``: not one row of numbers, not finite, or zero. ``model`` names it in the message.
    """
    try:
        wide = np.asarray(raw, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ModelError(f"{model} gave something that is no vector", code="embedder_error") from error
    length = float(np.sqrt(np.sum(wide * wide))) if wide.ndim == 1 else float("nan")
    if not _SHORTEST < length < float("inf"):
        raise ModelError(f"{model} gave a vector that is zero or not finite", code="embedder_error")
    vector = (wide / length).astype(np.float32)
    vector.flags.writeable = False  # the memo hands the same one to many
    return vector
