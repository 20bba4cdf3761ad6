"""Model folders: tensors in the layout that the forward pass reads, mapped from disk without a copy.

A folder holds config.json, tokenizer.json, chat_template.jinja and model.safetensors. Its tensors are
not Hugging Face's: they are fused and transposed once, at conversion, because on a CPU `x @ W` with W
of shape [in, out] beats `W` of shape [out, in] at one row (measured 40 against 49 ms a token for the
layers of the 135M model, 95 against 107 ms at eight rows), and a mapped file then loads in no time
and is shared by all processes that serve it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from stratacache.engine.config import ModelConfig
from stratacache.engine.errors import ModelUnavailable

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer: qkv [hidden, (H + 2·H_kv)·d], out [H·d, hidden], gate_up [hidden, 2·ffn], down [ffn, hidden].

    Where the architecture has them: qkv_bias [(H + 2·H_kv)·d], q_norm and k_norm [d].
    """

    qkv: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor
    qkv_bias: Tensor | None = None
    q_norm: Tensor | None = None
    k_norm: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Weights:
    """`head` is [hidden, vocab], `embed` [vocab, hidden] or None when tied to it; `norm` is [hidden]."""

    layers: tuple[LayerWeights, ...]
    head: Tensor
    norm: Tensor
    embed: Tensor | None = None


def interleave(rows: Tensor, head_dim: int) -> Tensor:
    """Puts the two halves of each head's rows (Hugging Face's order) side by side in pairs.

    RoPE rotates pair (i, i + d/2) in Hugging Face's order. Neighbouring pairs are complex numbers in
    memory, so one multiplication does it; q·k is unchanged when both are reordered alike.
    """
    halves = rows.reshape(-1, 2, head_dim // 2, *rows.shape[1:])
    return halves.transpose(1, 2).reshape(rows.shape)


def fuse(named: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """From Hugging Face's names and shapes to ours, contiguous, in float32 or wider.

    The norm before a projection is folded into it, x·g @ W = x @ (g·W): one pass fewer per norm. Float32
    holds the product of two bfloat16 numbers exactly, bfloat16 does not. Raises ModelUnavailable for a tensor that is
    missing, and for one that would be left out: the model would not be the one that was trained.
    """
    fused: dict[str, Tensor] = {}
    left = {name for name in named if not name.endswith("rotary_emb.inv_freq")}
    left -= {"lm_head.weight"} if config.tied else set()

    def get(name: str) -> Tensor:
        if name not in named:
            raise ModelUnavailable(f"the model has no tensor {name!r}")
        left.discard(name)
        return named[name] if named[name].dtype is torch.float64 else named[name].float()

    for index in range(config.num_hidden_layers):
        prefix = f"model.layers.{index}."
        attention = prefix + "self_attn."
        query, key = (interleave(get(f"{attention}{part}_proj.weight"), config.head_dim) for part in "qk")
        qkv = torch.cat((query, key, get(attention + "v_proj.weight")))
        gate_up = torch.cat((get(prefix + "mlp.gate_proj.weight"), get(prefix + "mlp.up_proj.weight")))
        layer = {
            "qkv": (qkv * get(prefix + "input_layernorm.weight")).t(),
            "out": get(attention + "o_proj.weight").t(),
            "gate_up": (gate_up * get(prefix + "post_attention_layernorm.weight")).t(),
            "down": get(prefix + "mlp.down_proj.weight").t(),
        }
        if config.qkv_bias:
            query, key = (interleave(get(f"{attention}{part}_proj.bias"), config.head_dim) for part in "qk")
            layer["qkv_bias"] = torch.cat((query, key, get(attention + "v_proj.bias")))
        if config.qk_norm:
            for part in "qk":
                layer[f"{part}_norm"] = interleave(get(f"{attention}{part}_norm.weight"), config.head_dim)
        fused |= {f"{index}.{name}": tensor.contiguous() for name, tensor in layer.items()}
    embed = get("model.embed_tokens.weight")
    fused["head"] = (embed if config.tied else get("lm_head.weight")).t().contiguous()
    if not config.tied:
        fused["embed"] = embed.contiguous()
    fused["norm"] = get("model.norm.weight").contiguous()
    if left:
        raise ModelUnavailable(f"tensor {min(left)!r} has no place in a model of this kind")
    return fused


def assemble(fused: Mapping[str, Tensor], config: ModelConfig, dtype: str, device: str = "cpu") -> Weights:
    """The tensors of `fuse` as Weights; without a copy when they are in `dtype` and on `device` already."""
    tensors = {name: tensor.to(device, DTYPES[dtype]) for name, tensor in fused.items()}
    parts = LayerWeights.__dataclass_fields__
    layers = tuple(
        LayerWeights(**{part: tensors[name] for part in parts if (name := f"{index}.{part}") in tensors})
        for index in range(config.num_hidden_layers)
    )
    return Weights(layers, tensors["head"], tensors["norm"], tensors.get("embed"))


def read_config(folder: Path) -> ModelConfig:
    """The sizes in a folder's config.json."""
    return ModelConfig.from_mapping(json.loads((folder / "config.json").read_text(encoding="utf-8")))


def load(folder: Path, dtype: str, device: str = "cpu") -> tuple[ModelConfig, Weights]:
    """Maps a converted folder. The file must not change while the process lives."""
    from safetensors.torch import load_file

    config = read_config(folder)
    return config, assemble(load_file(folder / "model.safetensors"), config, dtype, device)
