"""How much memory a model's attention keys and values take: from its config.json, by formulas with their sources."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from stratacache.errors import StrataError

GIB = 1 << 30
DTYPE_BYTES = {
    "float32": 4, "float": 4, "fp32": 4,
    "bfloat16": 2, "float16": 2, "half": 2, "bf16": 2, "fp16": 2,
    "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "int8": 1,
}  # fmt: skip
"""Bytes of one number, by the names of ``torch_dtype`` and of vLLM's ``--kv-cache-dtype``."""

SHORT, LONG = 512, 1024
"""Mean tokens of a sequence up to which blocks of 16 waste least, and above which 32 save book-keeping."""


class Attention(msgspec.Struct, frozen=True):
    """Layers that are alike: ``bytes_per_token`` of one of them, for at most ``window`` tokens (None: for all).

    ``parts``: over how many GPUs one layer's keys and values can be spread: its KV heads, or 1 for MLA's latent vector.
    """

    kind: str
    layers: int
    bytes_per_token: int
    window: int | None = None
    parts: int = 1


class ModelShape(msgspec.Struct, frozen=True):
    """What decides a model's KV memory. ``context``: the most tokens that it was made for, None when not told."""

    name: str
    attention: tuple[Attention, ...]
    context: int | None = None

    @property
    def bytes_per_token(self) -> int:
        """Of one more token when all windows are full: 2·L·H_kv·d·bytes, for MLA L·(kv_lora + rope)·bytes."""
        return sum(one.layers * one.bytes_per_token for one in self.attention if one.window is None)

    def sequence_bytes(self, tokens: int) -> int:
        """Of a sequence: each layer keeps n tokens, or min(n, w) with a window of w."""
        return sum(
            one.layers * one.bytes_per_token * (tokens if one.window is None else min(tokens, one.window))
            for one in self.attention
        )

    def block_bytes(self, block: int) -> int:
        """Of one block over all layers, windows not yet full: what a paged pool is divided into."""
        return block * sum(one.layers * one.bytes_per_token for one in self.attention)

    def on_each(self, gpus: int) -> ModelShape:
        """What one of ``gpus`` GPUs holds under tensor parallelism; heads that do not divide are held twice."""
        spread = [
            msgspec.structs.replace(
                one, bytes_per_token=one.bytes_per_token * math.ceil(one.parts / gpus) // one.parts
            )
            for one in self.attention
        ]
        return msgspec.structs.replace(self, attention=tuple(spread))

    def sequence_blocks_bytes(self, tokens: int, block: int) -> int:
        """Of a sequence in whole blocks, ceil(n / B) of them; a window may straddle one block more."""
        total = 0
        for one in self.attention:
            kept = tokens if one.window is None else min(tokens, one.window + block)
            total += one.layers * one.bytes_per_token * math.ceil(kept / block) * block
        return total


def reusable_tokens(tokens: int, block: int) -> int:
    """Tokens of a prompt that a prefix cache can give at best: whole blocks, the last token is computed anew."""
    return max(0, (tokens - 1) // block * block)


def block_size(mean_tokens: float) -> int:
    """16 tokens for short sequences, 32 for long ones; in between the waste of half a block a sequence decides: 16."""
    return 32 if mean_tokens > LONG else 16


def read_shape(path: Path, kv_dtype: str = "auto") -> ModelShape:
    """Of a ``config.json``, or of the folder that holds it; raises StrataError that names what is missing."""
    file = path / "config.json" if path.is_dir() else path
    try:
        config = msgspec.json.decode(file.read_bytes())
    except OSError as error:
        raise StrataError(f"cannot read {file}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise StrataError(f"{file}: {error}") from None
    if not isinstance(config, dict):
        raise StrataError(f"{file}: not a JSON object")
    try:
        return shape_of(config, kv_dtype, name=path.name if path.is_dir() else path.stem)
    except StrataError as error:
        raise StrataError(f"{file}: {error}") from None


def shape_of(config: Mapping[str, Any], kv_dtype: str = "auto", *, name: str = "model") -> ModelShape:
    """Of a decoded ``config.json`` as the Hugging Face library writes it; of a multimodal one the text part counts.

    ``kv_dtype``: ``auto`` takes the model's own number format.
    """
    text = config.get("text_config")
    merged = {**config, **text} if isinstance(text, dict) else dict(config)
    width = _number_bytes(merged, kv_dtype)
    layers = _count(merged, "num_hidden_layers", "n_layer")
    context = merged.get("max_position_embeddings")
    called = str(config.get("_name_or_path") or "").rpartition("/")[2] or name
    shape = ModelShape(
        called, _attention(merged, layers, width), context if isinstance(context, int) else None
    )
    if not any(one.layers for one in shape.attention):
        raise StrataError("no layer of it keeps keys and values")
    return shape


def _attention(config: Mapping[str, Any], layers: int, width: int) -> tuple[Attention, ...]:
    if config.get("kv_lora_rank"):
        latent = _count(config, "kv_lora_rank") + _count(config, "qk_rope_head_dim")
        return (Attention("MLA", layers, latent * width),)
    heads = _count(config, "num_attention_heads", "n_head")
    kv_heads = _optional(config, "num_key_value_heads", "num_kv_heads") or heads
    dimension = _optional(config, "head_dim") or _count(config, "hidden_size", "n_embd") // heads
    kind = "MHA" if kv_heads == heads else "MQA" if kv_heads == 1 else "GQA"
    per_token = 2 * kv_heads * dimension * width
    counts = Counter(_layer_kinds(config, layers))
    window = config.get("sliding_window")
    groups = []
    if counts["full"]:
        groups.append(Attention(kind, counts["full"], per_token, parts=kv_heads))
    if counts["sliding"]:
        if not isinstance(window, int) or window < 1:
            raise StrataError("layers with a sliding window and no sliding_window")
        groups.append(Attention(f"{kind}, sliding window", counts["sliding"], per_token, window, kv_heads))
    return tuple(groups)


def _layer_kinds(config: Mapping[str, Any], layers: int) -> list[str]:
    """``full``, ``sliding`` or ``none`` (linear attention, or keys and values of another layer) for each layer."""
    named = config.get("layer_types")
    if isinstance(named, Sequence) and not isinstance(named, str):
        kinds = [_kind(str(one)) for one in named]
        if len(kinds) != layers:
            raise StrataError(f"layer_types names {len(kinds)} layers of {layers}")
    else:
        kinds = _patterned(config, layers)
    shared = _optional(config, "num_kv_shared_layers")
    return kinds[: layers - shared]


def _kind(name: str) -> str:
    if name in ("full_attention", "attention", "global"):
        return "full"
    if name in ("sliding_attention", "local"):
        return "sliding"
    if name in ("linear_attention", "mamba", "conv", "recurrent"):
        return "none"
    raise StrataError(f"a layer type {name!r} that is not known here")


def _patterned(config: Mapping[str, Any], layers: int) -> list[str]:
    """From the older fields: a window for all layers, all but each n-th, or those from one on."""
    if not config.get("sliding_window") or config.get("use_sliding_window") is False:
        return ["full"] * layers
    model = str(config.get("model_type", ""))
    every = _optional(config, "sliding_window_pattern")
    if not every and model.startswith(("gemma2", "gemma3")):
        every = 2 if model.startswith("gemma2") else 6
    if every:
        return ["full" if (i + 1) % every == 0 else "sliding" for i in range(layers)]
    first = _optional(config, "max_window_layers") if model.startswith("qwen") else 0
    return ["full" if i < first else "sliding" for i in range(layers)]


def _number_bytes(config: Mapping[str, Any], kv_dtype: str) -> int:
    name = (
        str(config.get("torch_dtype") or config.get("dtype") or "bfloat16")
        if kv_dtype == "auto"
        else kv_dtype
    )
    try:
        return DTYPE_BYTES[name.removeprefix("torch.")]
    except KeyError:
        raise StrataError(f"an unknown number format {name!r}; known are {', '.join(DTYPE_BYTES)}") from None


def _count(config: Mapping[str, Any], *names: str) -> int:
    value = _optional(config, *names)
    if not value:
        raise StrataError(f"no {' or '.join(names)} in it")
    return value


def _optional(config: Mapping[str, Any], *names: str) -> int:
    """The first of these fields that is there, 0 when none is."""
    for name in names:
        value = config.get(name)
        if value is not None:
            if not isinstance(value, int) or value < 0:
                raise StrataError(f"{name} is {value!r}, not a whole number")
            return value
    return 0


def weight_bytes(folder: Path) -> int | None:
    """Size of the ``.safetensors`` beside a ``config.json``, as they are loaded; None when there are none."""
    files = list((folder if folder.is_dir() else folder.parent).glob("*.safetensors"))
    return sum(file.stat().st_size for file in files) or None
