"""Reads a GGUF model file: sizes, tensors under Hugging Face's names, tokenizer, chat template."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stratacache.engine.errors import ModelUnavailable
from stratacache.engine.gguf_tokenizer import tokenizer_json

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
}
_WITH_BIAS = ("attn_q", "attn_k", "attn_v")
_GLOBAL_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}


def hf_name(name: str) -> str:
    """`blk.3.attn_q.weight` → `model.layers.3.self_attn.q_proj.weight`; refuses unknown tensors."""
    stem, _, suffix = name.rpartition(".")
    if suffix == "weight" and stem in _GLOBAL_NAMES:
        return f"{_GLOBAL_NAMES[stem]}.weight"
    block, _, part = stem.removeprefix("blk.").partition(".")
    known = _WITH_BIAS if suffix == "bias" else _LAYER_NAMES if suffix == "weight" else ()
    if not block.isdecimal() or part not in known:
        raise ModelUnavailable(f"unexpected tensor {name!r} in the model file")
    return f"model.layers.{block}.{_LAYER_NAMES[part]}.{suffix}"


def unpermute(rows: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Undoes llama.cpp's order of Q and K rows (RoPE pairs side by side) → the halves of each head."""
    pairs = rows.reshape(heads, rows.shape[0] // heads // 2, 2, rows.shape[1])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


class GgufModel:
    """An open GGUF file of an architecture that llama.cpp calls llama (Mistral's models too), qwen2 or qwen3."""

    def __init__(self, path: Path) -> None:
        from gguf import GGUFReader

        try:
            self._reader = GGUFReader(path)
        except (OSError, ValueError, IndexError) as error:
            raise ModelUnavailable(f"cannot read {path} as a GGUF file: {error}") from error
        self._path = path
        self._kind = self.field("general.architecture")
        if self._kind not in _CLASSES:
            raise ModelUnavailable(
                f"{path.name}: general.architecture is {self._kind!r}; supported are {', '.join(_CLASSES)}"
            )

    def files(self) -> list[Path]:
        """Every file that the converted folder depends on."""
        return [self._path]

    def field(self, name: str, default: Any = None) -> Any:
        """A metadata value, or `default`."""
        found = self._reader.get_field(name)
        return default if found is None else found.contents()

    def _size(self, name: str, default: Any = None) -> Any:
        """A value of the architecture's own; without a default it must be there."""
        found = self.field(f"{self._kind}.{name}", default)
        if found is None:
            raise ModelUnavailable(f"{self._path.name} has no {self._kind}.{name}")
        return found

    def config(self) -> dict[str, Any]:
        """The model's config.json, in Hugging Face's names."""
        if self._size("attention.sliding_window", 0):
            raise ModelUnavailable(f"{self._kind}.attention.sliding_window is not supported in GGUF files")
        heads, hidden = self._size("attention.head_count"), self._size("embedding_length")
        turned = self._size("rope.dimension_count", hidden // heads)
        ends = {self.field(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot")} - {None}
        return {
            "architectures": [_CLASSES[self._kind]],
            "model_type": self._kind,
            "vocab_size": len(self._tokens()),
            "hidden_size": hidden,
            "intermediate_size": self._size("feed_forward_length"),
            "num_hidden_layers": self._size("block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": self._size("attention.head_count_kv", heads),
            "head_dim": self._size("attention.key_length", turned),
            "max_position_embeddings": self._size("context_length"),
            "rope_theta": self._size("rope.freq_base", 10_000.0),
            "rope_scaling": self._scaling(),
            "rms_norm_eps": self._size("attention.layer_norm_rms_epsilon"),
            "bos_token_id": self.field("tokenizer.ggml.bos_token_id"),
            "eos_token_id": ends.pop() if len(ends) == 1 else sorted(ends),
            "tie_word_embeddings": all(tensor.name != "output.weight" for tensor in self._reader.tensors),
        }

    def _scaling(self) -> dict[str, Any] | None:
        kind = self._size("rope.scaling.type", "none")
        return (
            None if kind == "none" else {"rope_type": kind, "factor": self._size("rope.scaling.factor", 1.0)}
        )

    def _tokens(self) -> list[str]:
        return list(self.field("tokenizer.ggml.tokens", ()))

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor, dequantised to float32, as (Hugging Face name, tensor)."""
        from gguf import dequantize

        heads = self._size("attention.head_count")
        kv_heads = self._size("attention.head_count_kv", heads)
        for tensor in self._reader.tensors:
            values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
            if self._kind == "llama" and tensor.name.endswith("attn_q.weight"):
                values = unpermute(values, heads)
            elif self._kind == "llama" and tensor.name.endswith("attn_k.weight"):
                values = unpermute(values, kv_heads)
            yield hf_name(tensor.name), torch.from_numpy(np.array(values))

    def special_tokens(self) -> dict[str, str]:
        """What the chat template may call bos_token and eos_token."""
        tokens = self._tokens()
        places = {name: self.field(f"tokenizer.ggml.{name}_id") for name in ("bos_token", "eos_token")}
        return {name: tokens[place] for name, place in places.items() if place is not None}

    def chat_template(self) -> str:
        """The Jinja source of the chat template."""
        template = self.field("tokenizer.chat_template")
        if not template:
            raise ModelUnavailable(f"{self._path.name} has no tokenizer.chat_template")
        return str(template)

    def tokenizer_json(self) -> str:
        """The tokenizer in the `tokenizers` library's own form."""
        return tokenizer_json(self.field)
