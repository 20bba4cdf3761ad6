"""Rotary position embedding: the angles of each position, for plain, linear and Llama 3's scaled RoPE.

Only kinds whose angles depend on the position alone: with one that depends on the context's length
(dynamic, longrope) KV that was computed in a short context would be wrong in a long one, and could not be
reused. Those are refused when a model is loaded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stratacache.engine.errors import ModelUnavailable


@dataclass(frozen=True, slots=True)
class Rope:
    """Base, and how frequencies are scaled: `kind` is default, linear or llama3; the rest as in config.json."""

    theta: float
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Rope:
        """From a config.json of either age. Raises ModelUnavailable for a kind that is not supported."""
        given = values.get("rope_parameters") or values.get("rope_scaling") or {}
        if not isinstance(given, Mapping):
            given = {"rope_type": given}
        kind = given.get("rope_type", given.get("type")) or "default"
        if kind not in ("default", "linear", "llama3"):
            raise ModelUnavailable(
                f"RoPE of kind {kind!r} is not supported, only default, linear and llama3: angles that "
                "change with the context's length make KV worthless for reuse"
            )
        scaled = {name: given[name] for name in cls.__dataclass_fields__ if name in given}
        theta = given.get("rope_theta", values.get("rope_theta", 10_000.0))
        return cls(float(theta), kind, **scaled)

    def frequencies(self, plain: Any) -> Any:
        """Scales the tensor of inverse frequencies θ^(-2j/d); see Llama 3.1's `apply_scaling`."""
        if self.kind == "linear":
            return plain / self.factor
        if self.kind == "default":
            return plain
        waves = self.original_max_position_embeddings * plain / (2 * math.pi)  # turns within the old context
        share = (waves - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        share = share.clamp(0, 1)  # 0: slow, stretched by the factor; 1: fast, left alone
        return (1 - share) * plain / self.factor + share * plain
