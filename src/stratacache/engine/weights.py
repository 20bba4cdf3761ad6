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

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer: qkv [hidden, (H + 2·H_kv)·d], out [H·d, hidden], gate_up [hidden, 2·ffn], down [ffn, hidden]."""

    qkv: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, slots=True)
class Weights:
    """All of a model. `head` is [hidden, vocab]: the tied embedding, transposed; `norm` is [hidden]."""

    layers: tuple[LayerWeights, ...]
    head: Tensor
    norm: Tensor


def interleave(rows: Tensor, head_dim: int) -> Tensor:
    """Puts the two halves of each head's rows (Hugging Face's order) side by side in pairs.

    RoPE rotates pair (i, i + d/2) in Hugging Face's order. Neighbouring pairs are complex numbers in
    memory, so one multiplication does it; q·k is unchanged when both are reordered alike.
    """
    halves = rows.view(-1, 2, head_dim // 2, rows.shape[1])
    return halves.transpose(1, 2).reshape(rows.shape)


def fuse(named: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """From Hugging Face's names and shapes to ours, contiguous, in the dtype that came.

    The norm before a projection is folded into it, x·g @ W = x @ (g·W): one pass fewer per norm.
    """
    fused: dict[str, Tensor] = {}
    for index in range(config.num_hidden_layers):
        prefix = f"model.layers.{index}."
        query, key = (
            interleave(named[f"{prefix}self_attn.{part}_proj.weight"], config.head_dim) for part in "qk"
        )
        qkv = torch.cat((query, key, named[prefix + "self_attn.v_proj.weight"]))
        gate_up = torch.cat((named[prefix + "mlp.gate_proj.weight"], named[prefix + "mlp.up_proj.weight"]))
        fused[f"{index}.qkv"] = (qkv * named[prefix + "input_layernorm.weight"]).t().contiguous()
        fused[f"{index}.out"] = named[prefix + "self_attn.o_proj.weight"].t().contiguous()
        fused[f"{index}.gate_up"] = (
            (gate_up * named[prefix + "post_attention_layernorm.weight"]).t().contiguous()
        )
        fused[f"{index}.down"] = named[prefix + "mlp.down_proj.weight"].t().contiguous()
    fused["head"] = named["model.embed_tokens.weight"].t().contiguous()
    fused["norm"] = named["model.norm.weight"].contiguous()
    return fused


def assemble(fused: Mapping[str, Tensor], config: ModelConfig, dtype: str) -> Weights:
    """The tensors of `fuse` as Weights; without a copy when they are in `dtype` already."""
    tensors = {name: tensor.to(DTYPES[dtype]) for name, tensor in fused.items()}
    layers = tuple(
        LayerWeights(**{part: tensors[f"{index}.{part}"] for part in ("qkv", "out", "gate_up", "down")})
        for index in range(config.num_hidden_layers)
    )
    return Weights(layers, tensors["head"], tensors["norm"])


def read_config(folder: Path) -> ModelConfig:
    """The sizes in a folder's config.json."""
    return ModelConfig.from_mapping(json.loads((folder / "config.json").read_text(encoding="utf-8")))


def load(folder: Path, dtype: str) -> tuple[ModelConfig, Weights]:
    """Maps a converted folder. The file must not change while the process lives."""
    from safetensors.torch import load_file

    config = read_config(folder)
    return config, assemble(load_file(folder / "model.safetensors"), config, dtype)
