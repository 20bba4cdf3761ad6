"""Reads a GGUF model file: sizes, tensors under Hugging Face's names, tokenizer, chat template."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stratacache.engine.errors import ModelUnavailable

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
}
_GLOBAL_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
_CONTROL_TOKEN = 3  # GGUF's token_type of special tokens


def hf_name(name: str) -> str:
    """`blk.3.attn_q.weight` → `model.layers.3.self_attn.q_proj.weight`; refuses unknown tensors."""
    stem, _, suffix = name.rpartition(".")
    if suffix == "weight" and stem in _GLOBAL_NAMES:
        return f"{_GLOBAL_NAMES[stem]}.weight"
    block, _, part = stem.removeprefix("blk.").partition(".")
    if suffix != "weight" or not block.isdecimal() or part not in _LAYER_NAMES:
        raise ModelUnavailable(f"unexpected tensor {name!r} in the model file")
    return f"model.layers.{block}.{_LAYER_NAMES[part]}.weight"


def unpermute(rows: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Undoes llama.cpp's order of Q and K rows (RoPE pairs side by side) → the halves of each head."""
    pairs = rows.reshape(heads, rows.shape[0] // heads // 2, 2, rows.shape[1])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


class GgufModel:
    """An open GGUF file of the Llama architecture with a byte-level BPE tokenizer."""

    def __init__(self, path: Path) -> None:
        from gguf import GGUFReader

        try:
            self._reader = GGUFReader(path)
        except (OSError, ValueError, IndexError) as error:
            raise ModelUnavailable(f"cannot read {path} as a GGUF file: {error}") from error
        if self.field("general.architecture") != "llama":
            raise ModelUnavailable(
                f"{path.name}: architecture {self.field('general.architecture')!r} is not llama"
            )

    def field(self, name: str, default: Any = None) -> Any:
        """A metadata value, or `default`."""
        found = self._reader.get_field(name)
        return default if found is None else found.contents()

    def config(self) -> dict[str, Any]:
        """The model's config.json, in Hugging Face's names."""
        heads = self.field("llama.attention.head_count")
        hidden = self.field("llama.embedding_length")
        scaling = self.field("llama.rope.scaling.type", "none")
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": len(self.field("tokenizer.ggml.tokens")),
            "hidden_size": hidden,
            "intermediate_size": self.field("llama.feed_forward_length"),
            "num_hidden_layers": self.field("llama.block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": self.field("llama.attention.head_count_kv", heads),
            "head_dim": self.field("llama.rope.dimension_count", hidden // heads),
            "max_position_embeddings": self.field("llama.context_length"),
            "rope_theta": self.field("llama.rope.freq_base", 10_000.0),
            "rope_scaling": None if scaling == "none" else scaling,
            "rms_norm_eps": self.field("llama.attention.layer_norm_rms_epsilon"),
            "bos_token_id": self.field("tokenizer.ggml.bos_token_id"),
            "eos_token_id": self.field("tokenizer.ggml.eos_token_id"),
            "tie_word_embeddings": all(tensor.name != "output.weight" for tensor in self._reader.tensors),
        }

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor, dequantised to float32, as (Hugging Face name, tensor)."""
        from gguf import dequantize

        heads = self.field("llama.attention.head_count")
        kv_heads = self.field("llama.attention.head_count_kv", heads)
        for tensor in self._reader.tensors:
            values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
            if tensor.name.endswith("attn_q.weight"):
                values = unpermute(values, heads)
            elif tensor.name.endswith("attn_k.weight"):
                values = unpermute(values, kv_heads)
            yield hf_name(tensor.name), torch.from_numpy(np.array(values))

    def chat_template(self) -> str:
        """The Jinja source of the chat template."""
        template = self.field("tokenizer.chat_template")
        if not template:
            raise ModelUnavailable("the model file has no chat template")
        return str(template)

    def tokenizer_json(self) -> str:
        """The tokenizer in the `tokenizers` library's own form.

        The GGUF says `tokenizer.ggml.pre: smollm`. llama.cpp implements it as two splits, one at every
        single digit and then GPT-2's; the model's authors published the same pair (Digits, ByteLevel).
        transformers' GGUF reader drops the first, so for "a  5" it gives [a][ ][ 5] where the model was
        trained on [a][  ][5]: here the file's word counts, not that reader's.
        """
        from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

        if (self.field("tokenizer.ggml.model"), self.field("tokenizer.ggml.pre")) != ("gpt2", "smollm"):
            raise ModelUnavailable(
                f"tokenizer {self.field('tokenizer.ggml.pre')!r} is not supported, only 'smollm'"
            )
        tokens: list[str] = self.field("tokenizer.ggml.tokens")
        merges = [tuple(merge.split(" ")) for merge in self.field("tokenizer.ggml.merges")]
        bpe = models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=merges)
        tokenizer = Tokenizer(bpe)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        tokenizer.decoder = decoders.ByteLevel()
        kinds = self.field("tokenizer.ggml.token_type")
        special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL_TOKEN]
        tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
        return str(tokenizer.to_str())
