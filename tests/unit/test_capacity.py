"""KV memory from config.json: the table of known models, windows by every way to write them, clear complaints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stratacache.errors import StrataError
from stratacache.lab.capacity import GIB, block_size, read_shape, reusable_tokens, shape_of, weight_bytes

KIB, MIB = 1 << 10, 1 << 20


def config(layers: int, heads: int, kv_heads: int, head_dim: int = 128, **more: Any) -> dict[str, Any]:
    return {
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "hidden_size": heads * head_dim,
        "torch_dtype": "bfloat16",
        **more,
    }


LLAMA_7B = config(32, 32, 32, torch_dtype="float16", max_position_embeddings=4096)
LLAMA_8B = config(32, 32, 8)
QWEN25_7B = config(
    28, 28, 4, sliding_window=131072, use_sliding_window=False, max_window_layers=28, model_type="qwen2"
)
QWEN3_8B = config(36, 32, 8, hidden_size=4096, head_dim=128, sliding_window=None)
DEEPSEEK_V3 = {
    "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128, "hidden_size": 7168,
    "kv_lora_rank": 512, "qk_rope_head_dim": 64, "torch_dtype": "bfloat16",
}  # fmt: skip
GEMMA3_27B = {
    "model_type": "gemma3",
    "torch_dtype": "bfloat16",
    "text_config": {
        "num_hidden_layers": 62, "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128,
        "hidden_size": 5376, "sliding_window": 1024, "sliding_window_pattern": 6,
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("model", "per_token", "block", "at_8k", "at_32k"),
    [
        pytest.param(LLAMA_7B, 512, 8, 4.0, 16, id="Llama-7B"),
        pytest.param(LLAMA_8B, 128, 2, 1.0, 4.0, id="Llama-3.1-8B"),
        pytest.param(QWEN25_7B, 56, 0.875, 0.4375, 1.75, id="Qwen2.5-7B"),
        pytest.param(QWEN3_8B, 144, 2.25, 1.125, 4.5, id="Qwen3-8B"),
        pytest.param(DEEPSEEK_V3, 68.625, 1.0722, 0.5361, 2.1445, id="DeepSeek-V3"),
    ],
)
def test_known_models(
    model: dict[str, Any], per_token: float, block: float, at_8k: float, at_32k: float
) -> None:
    shape = shape_of(model)
    assert shape.bytes_per_token == per_token * KIB
    assert shape.block_bytes(16) / MIB == pytest.approx(block, rel=1e-3)
    assert shape.sequence_bytes(8192) / GIB == pytest.approx(at_8k, rel=1e-3)
    assert shape.sequence_bytes(32768) / GIB == pytest.approx(at_32k, rel=1e-3)


def test_windows_stop_growing() -> None:
    shape = shape_of(GEMMA3_27B)
    assert [(one.layers, one.window) for one in shape.attention] == [(10, None), (52, 1024)]
    assert shape.bytes_per_token == 80 * KIB
    past = shape.sequence_bytes(8192) - 8192 * shape.bytes_per_token
    assert past / GIB == pytest.approx(0.41, abs=0.005)
    assert shape.sequence_bytes(8192) / GIB == pytest.approx(1.03, abs=0.005)
    assert shape.sequence_bytes(32768) / GIB == pytest.approx(2.91, abs=0.01)
    assert shape.sequence_bytes(100) == 62 * 2 * 16 * 128 * 2 * 100


@pytest.mark.parametrize(
    ("more", "full", "sliding"),
    [
        pytest.param({"sliding_window": 64}, 0, 4, id="Mistral"),
        pytest.param({"sliding_window": None}, 4, 0, id="none"),
        pytest.param({"sliding_window": 64, "use_sliding_window": False}, 4, 0, id="off"),
        pytest.param({"sliding_window": 64, "model_type": "gemma2"}, 2, 2, id="Gemma 2"),
        pytest.param(
            {"sliding_window": 64, "use_sliding_window": True, "max_window_layers": 3, "model_type": "qwen2"},
            3, 1, id="Qwen",
        ),
        pytest.param(
            {"sliding_window": 64, "layer_types": ["full_attention", "sliding_attention"] * 2}, 2, 2, id="named"
        ),
        pytest.param({"layer_types": ["linear_attention"] * 3 + ["full_attention"]}, 1, 0, id="linear"),
        pytest.param({"num_kv_shared_layers": 1}, 3, 0, id="shared"),
    ],
)  # fmt: skip
def test_which_layers_have_a_window(more: dict[str, Any], full: int, sliding: int) -> None:
    shape = shape_of(config(4, 8, 2, **more))
    counted = {one.window: one.layers for one in shape.attention}
    assert counted.get(None, 0) == full
    assert counted.get(64, 0) == sliding


@pytest.mark.parametrize(("dtype", "share"), [("fp8", 0.5), ("float32", 2), ("auto", 1), ("bfloat16", 1)])
def test_number_formats(dtype: str, share: float) -> None:
    assert shape_of(LLAMA_8B, dtype).bytes_per_token == 128 * KIB * share


@pytest.mark.parametrize(
    ("model", "gpus", "each"),
    [(LLAMA_8B, 1, 128), (LLAMA_8B, 4, 32), (LLAMA_8B, 16, 16), (QWEN25_7B, 3, 28), (DEEPSEEK_V3, 8, 68.625)],
)
def test_several_gpus_share_the_heads(model: dict[str, Any], gpus: int, each: float) -> None:
    assert shape_of(model).on_each(gpus).bytes_per_token == each * KIB


def test_whole_blocks() -> None:
    shape = shape_of(LLAMA_8B)
    assert shape.sequence_blocks_bytes(17, 16) == 2 * shape.block_bytes(16)
    windowed = shape_of(config(1, 1, 1, sliding_window=64))
    assert windowed.sequence_blocks_bytes(10_000, 16) == 5 * windowed.block_bytes(16)
    assert [reusable_tokens(n, 16) for n in (0, 1, 16, 17, 32, 33)] == [0, 0, 0, 16, 16, 32]
    assert [block_size(n) for n in (100, 512, 1024, 1025)] == [16, 16, 16, 32]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_hidden_layers": None}, "no num_hidden_layers or n_layer"),
        ({"torch_dtype": "int3"}, "unknown number format 'int3'"),
        ({"layer_types": ["full_attention"]}, "names 1 layers of 32"),
        ({"head_dim": "128"}, "head_dim is '128', not a whole number"),
        ({"layer_types": ["odd"] * 32}, "'odd'"),
        ({"layer_types": ["mamba"] * 32}, "no layer of it"),
        ({"layer_types": ["sliding_attention"] * 32}, "no sliding_window"),
    ],
)
def test_what_is_missing_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(StrataError, match=words):
        shape_of({**LLAMA_8B, **change})


def test_a_folder_with_its_weights(tmp_path: Path) -> None:
    assert weight_bytes(tmp_path) is None
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))
    (tmp_path / "model-00001.safetensors").write_bytes(b"\0" * 1000)
    assert read_shape(tmp_path).bytes_per_token == 128 * KIB
    assert weight_bytes(tmp_path) == weight_bytes(tmp_path / "config.json") == 1000


@pytest.mark.parametrize(
    ("text", "words"), [("{", "config.json: "), ("[]", "not a JSON object"), ("{}", "num_hidden")]
)
def test_broken_files(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(StrataError, match=words):
        read_shape(tmp_path)
    with pytest.raises(StrataError, match="cannot read"):
        read_shape(tmp_path / "other.json")
