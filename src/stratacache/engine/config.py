"""Settings of the engine and the shape of a model: frozen values, checked once, no torch."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stratacache.engine.errors import ModelUnavailable, SettingsError
from stratacache.engine.rope import Rope

SMALL_BLOCK, LARGE_BLOCK = 16, 32
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float64": 8}


ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3")
_NEEDED = (
    "model_type",
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
    "rms_norm_eps",
)


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder's sizes, in the names that Hugging Face's config.json uses, and how its layers differ.

    `qkv_bias` (Qwen2): the projections of Q, K and V have one. `qk_norm` (Qwen3): each head of Q and K is
    normalised. `windows`: per layer, how many tokens it looks back including its own; None for all.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    eos_token_ids: tuple[int, ...]
    rope: Rope
    qkv_bias: bool
    qk_norm: bool
    tied: bool
    windows: tuple[int | None, ...]

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> ModelConfig:
        """Reads a config.json. Raises ModelUnavailable for a shape this engine would get wrong."""
        kind = values.get("model_type")
        if missing := [name for name in _NEEDED if values.get(name) is None]:
            raise ModelUnavailable(f"config.json has no {missing[0]}")
        if kind not in ARCHITECTURES:
            raise ModelUnavailable(
                f"model_type: architecture {kind!r} is not supported, only {', '.join(ARCHITECTURES)}"
            )
        if (values.get("attention_bias") and kind != "qwen2") or values.get("mlp_bias"):
            raise ModelUnavailable("biases other than Qwen2's are not supported")
        if values.get("hidden_act", "silu") != "silu":
            raise ModelUnavailable(f"activation {values['hidden_act']!r} is not supported, only silu")
        heads, hidden = values["num_attention_heads"], values["hidden_size"]
        end = values.get("eos_token_id")
        return cls(
            vocab_size=values["vocab_size"],
            hidden_size=hidden,
            intermediate_size=values["intermediate_size"],
            num_hidden_layers=values["num_hidden_layers"],
            num_attention_heads=heads,
            num_key_value_heads=values.get("num_key_value_heads") or heads,
            head_dim=values.get("head_dim") or hidden // heads,
            max_position_embeddings=values["max_position_embeddings"],
            rms_norm_eps=values["rms_norm_eps"],
            eos_token_ids=tuple(end) if isinstance(end, list) else () if end is None else (end,),
            rope=Rope.from_mapping(values),
            qkv_bias=kind == "qwen2",
            qk_norm=kind == "qwen3",
            tied=bool(values.get("tie_word_embeddings", False)),
            windows=_windows(values),
        )

    def kv_bytes_per_token(self, dtype: str) -> int:
        """2 (K and V) · layers · KV heads · head size · bytes of the type."""
        return 2 * self.num_hidden_layers * self.num_key_value_heads * self.head_dim * DTYPE_BYTES[dtype]


def _windows(values: Mapping[str, Any]) -> tuple[int | None, ...]:
    """The window of each layer, from what Mistral's and Qwen's config.json say about it."""
    layers, window = values["num_hidden_layers"], values.get("sliding_window")
    kinds = values.get("layer_types")
    if kinds is None:
        first = 0 if values["model_type"] == "mistral" else layers
        if values.get("use_sliding_window"):
            first = values.get("max_window_layers", layers)
        kinds = ["sliding_attention" if layer >= first else "full_attention" for layer in range(layers)]
    if set(kinds) - {"full_attention", "sliding_attention"}:
        raise ModelUnavailable(f"layers of type {', '.join(sorted(set(kinds)))} are not supported")
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How the engine runs. Raises SettingsError when made of what cannot be.

    block_size      tokens in a KV block; None: 16 or 32, as the observed mean length says
    num_blocks      size of the pool; None: as many as `kv_memory` bytes hold
    max_context     prompt + answer, in tokens; None: what the model was trained for
    token_budget    tokens computed in one step, over all sequences
    max_running     sequences in the batch; at most `token_budget`, so that each can decode each step
    max_waiting     sequences in line before new ones are refused
    watermark       share of the pool that an admission leaves over while others run
    prefix_cache    reuse blocks of earlier requests with the same prefix
    share_inflight  a request whose next block is being computed by another one waits for that block
    conversation_share  share of the pool that idle conversations may keep
    conversation_idle   seconds after which an idle conversation gives its blocks up
    """

    block_size: int | None = None
    num_blocks: int | None = None
    kv_memory: int = 512 * 1024 * 1024
    max_context: int | None = None
    token_budget: int = 256
    max_running: int = 16
    max_waiting: int = 256
    watermark: float = 0.01
    prefix_cache: bool = True
    share_inflight: bool = True
    conversation_share: float = 0.5
    conversation_idle: float = 600.0
    dtype: str = "float32"
    device: str = "cpu"
    threads: int = 1

    def __post_init__(self) -> None:
        for name in ("block_size", "kv_memory", "token_budget", "max_running", "max_waiting", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise SettingsError(f"{name} must be at least 1, not {value}")
        for name in ("watermark", "conversation_share"):
            if not 0 <= getattr(self, name) < 1:
                raise SettingsError(f"{name} must be from 0 to below 1, not {getattr(self, name)}")
        if self.max_running > self.token_budget:
            raise SettingsError(
                f"max_running ({self.max_running}) is over token_budget ({self.token_budget})"
            )
        if self.max_context is not None and self.max_context < 2:
            raise SettingsError(f"max_context must hold a prompt and an answer, not {self.max_context}")
        if self.dtype not in DTYPE_BYTES:
            raise SettingsError(f"dtype must be one of {', '.join(DTYPE_BYTES)}, not {self.dtype!r}")

    @property
    def first_block_size(self) -> int:
        """The block size to begin with."""
        return SMALL_BLOCK if self.block_size is None else self.block_size

    def pool_blocks(self, model: ModelConfig) -> int:
        """Blocks in the pool at the first size. Raises SettingsError when the memory holds none."""
        per_block = model.kv_bytes_per_token(self.dtype) * self.first_block_size
        blocks = self.kv_memory // per_block if self.num_blocks is None else self.num_blocks
        if self.block_size is None:
            blocks -= blocks % (LARGE_BLOCK // SMALL_BLOCK)
        if blocks < 1:
            raise SettingsError(f"kv_memory {self.kv_memory} holds no block of {per_block} bytes")
        return blocks

    def context_limit(self, model: ModelConfig) -> int:
        """Longest sequence, in tokens: the setting, the model and the whole pool bound it."""
        wanted = self.max_context or model.max_position_embeddings
        return min(wanted, model.max_position_embeddings, self.pool_blocks(model) * self.first_block_size)


class LengthMeter:
    """Mean length of the last sequences, and the block size that suits it.

    Small blocks share more exactly and waste less of their last one; large ones have half the
    bookkeeping, which counts when sequences are long. Between the two limits the size stays as it is.
    """

    SHORT, LONG = 512, 1024
    LEAST, MOST = 64, 512  # sequences observed before a change, and remembered

    def __init__(self) -> None:
        self._lengths: deque[int] = deque(maxlen=self.MOST)
        self._sum = 0

    def note(self, length: int) -> None:
        """A sequence of `length` tokens, answer included, has ended."""
        if len(self._lengths) == self.MOST:
            self._sum -= self._lengths[0]
        self._lengths.append(length)
        self._sum += length

    def block_size(self, now: int) -> int:
        """The size to use, where `now` is in use."""
        if len(self._lengths) < self.LEAST:
            return now
        mean = self._sum / len(self._lengths)
        return SMALL_BLOCK if mean <= self.SHORT else LARGE_BLOCK if mean > self.LONG else now
