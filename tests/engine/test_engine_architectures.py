"""Every supported architecture with random weights answers as transformers does, token for token."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.engine.engine_kit import TINY, Answers, greedy, oracle_greedy, words

from stratacache.engine.config import EngineConfig, ModelConfig
from stratacache.engine.engine import Engine
from stratacache.engine.errors import ModelUnavailable
from stratacache.engine.weights import assemble, fuse

SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.25,
    "eos_token_id": 2,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {"tie_word_embeddings": True}),
    "llama-untied": ("Llama", {"tie_word_embeddings": False}),
    "llama-multi-head": ("Llama", {"num_key_value_heads": 4}),
    "llama-one-kv-head": ("Llama", {"num_key_value_heads": 1}),
    "llama-scaled-rope": ("Llama", {"rope_parameters": LLAMA3}),
    "llama-linear-rope": (
        "Llama",
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0}},
    ),
    "mistral-window": ("Mistral", {"sliding_window": 9}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen2-some-windows": (
        "Qwen2",
        {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 2},
    ),
    "qwen3": ("Qwen3", {"head_dim": 32}),
    "qwen3-windows": (
        "Qwen3",
        {"head_dim": 16, "use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1},
    ),
}


@cache
def oracle(case: str) -> Any:
    """transformers' model, in float64 as `engine_kit` explains; biases and norms are random as well."""
    import transformers

    family, changes = CASES[case]
    torch.manual_seed(11)
    config = getattr(transformers, f"{family}Config")(**SIZES | changes, attn_implementation="eager")
    model = getattr(transformers, f"{family}ForCausalLM")(config).double().eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "norm" in name or name.endswith("bias"):
                value.copy_(torch.randn_like(value) * 0.3 + ("norm" in name))
    return model


def engine_of(case: str, **changes: Any) -> Engine:
    model = oracle(case)
    config = ModelConfig.from_mapping(json.loads(json.dumps(model.config.to_dict())))
    named = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    weights = assemble(fuse(named, config), config, "float64")
    return Engine(config, weights, replace(TINY, num_blocks=64, **changes), seed=0)


@pytest.mark.parametrize("case", CASES)
def test_cold_chunked_mixed_and_from_the_prefix_cache(case: str) -> None:
    engine = engine_of(case)
    prompts = [words(length, length) for length in (3, 25, 41)]
    wanted = [oracle_greedy(oracle(case), prompt, 12) for prompt in prompts]
    assert len({token for answer in wanted for token in answer}) > 5, "the oracle repeats itself"
    for _ in range(2):  # cold and in chunks of 16 beside each other's decodes, then from cached blocks
        answers = Answers(engine).run(
            *(greedy(str(index), prompt, 12) for index, prompt in enumerate(prompts))
        )
        assert [answers.tokens[str(index)] for index in range(3)] == wanted
    assert answers.cached["2"] == 40


@pytest.mark.parametrize("case", ["llama-scaled-rope", "mistral-window", "qwen3-windows"])
def test_a_context_that_grows_past_a_threshold_on_a_reused_prefix(case: str) -> None:
    """Past the context that RoPE was trained in (32), and past the window: what was cached stays right."""
    engine, prompt = engine_of(case), words(20)
    answers = Answers(engine).run(greedy("one", prompt, 8))
    turn = (*prompt, *answers.tokens["one"], *words(30, 1))
    answers.run(greedy("two", turn, 12))
    assert answers.cached["two"] == 24
    assert answers.tokens["two"] == oracle_greedy(oracle(case), turn, 12)


@pytest.mark.parametrize("case", ["qwen2", "qwen3-windows"])
def test_after_preemption(case: str) -> None:
    engine = engine_of(case)
    small = Engine(engine.model.config, engine.model.weights, replace(TINY, num_blocks=9), seed=0)
    prompts = [words(7, index) for index in range(3)]
    answers = Answers(small).run(*(greedy(str(index), prompt, 12) for index, prompt in enumerate(prompts)))
    assert small.stats().preemptions > 0
    for index, prompt in enumerate(prompts):
        assert answers.tokens[str(index)] == oracle_greedy(oracle(case), prompt, 12)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"model_type": "gemma"}, "architecture 'gemma'"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "'dynamic'.*worthless for reuse"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "'longrope'"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "'yarn'"),
        ({"attention_bias": True}, "biases"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"layer_types": ["linear_attention"] * 4}, "linear_attention"),
    ],
)
def test_what_would_be_computed_wrongly_is_refused(values: dict[str, Any], why: str) -> None:
    with pytest.raises(ModelUnavailable, match=why):
        ModelConfig.from_mapping({"model_type": "llama", "rms_norm_eps": 1e-5} | SIZES | values)


def test_older_configs_say_the_same(tmp_path: Path) -> None:
    base = {"rms_norm_eps": 1e-6, "sliding_window": 8, "rope_theta": 5e5} | SIZES
    old = ModelConfig.from_mapping(
        {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 3} | base
    )
    assert old.windows == (None, None, None, 8)
    assert old.rope.theta == 5e5
    assert ModelConfig.from_mapping({"model_type": "qwen2"} | base).windows == (None,) * 4
    assert ModelConfig.from_mapping({"model_type": "mistral"} | base).windows == (8,) * 4
    assert ModelConfig.from_mapping({"model_type": "llama"} | base).windows == (None,) * 4
    several = ModelConfig.from_mapping({"model_type": "llama"} | base | {"eos_token_id": [5, 6]})
    assert several.eos_token_ids == (5, 6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU; this machine has none")
@pytest.mark.parametrize("case", CASES)
def test_on_a_gpu(case: str) -> None:
    model = oracle(case)
    config = ModelConfig.from_mapping(json.loads(json.dumps(model.config.to_dict())))
    named = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    weights = assemble(fuse(named, config), config, "float64", "cuda")
    settings: EngineConfig = replace(TINY, num_blocks=64, device="cuda")
    answers = Answers(Engine(config, weights, settings, seed=0)).run(greedy("x", words(41), 12, n=2))
    assert answers.tokens["x"] == answers.tokens["x/1"] == oracle_greedy(model, words(41), 12)
