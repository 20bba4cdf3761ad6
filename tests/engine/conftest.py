"""Fixtures of the engine's tests: the real model, converted once per checkout, and transformers beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tests.engine.engine_kit  # noqa: F401 - sets one thread before anything is computed
import torch

from stratacache.engine.convert import find_gguf, model_folder
from stratacache.engine.gguf_import import GgufModel
from stratacache.engine.tokenizer import Tokenizer

CACHE = Path(__file__).parents[2] / ".stratacache" / "models"


@pytest.fixture(scope="session")
def folder() -> Path:
    """The converted model folder."""
    return model_folder(cache=CACHE)


@pytest.fixture(scope="session")
def tokenizer(folder: Path) -> Tokenizer:
    """The model's tokenizer."""
    return Tokenizer(folder)


@pytest.fixture(scope="session")
def gguf() -> GgufModel:
    """The packaged model file, open."""
    return GgufModel(find_gguf())


@pytest.fixture(scope="session")
def oracle_tensors(oracle_shell: Any) -> dict[str, torch.Tensor]:
    """The weights as transformers' own GGUF reader gives them."""
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    found = load_gguf_checkpoint(str(find_gguf()), return_tensors=True, model_to_load=oracle_shell)
    return {name: torch.as_tensor(value) for name, value in found["tensors"].items()}


@pytest.fixture(scope="session")
def oracle_shell(gguf: GgufModel) -> Any:
    """transformers' model without weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.device("meta"):
        return LlamaForCausalLM(LlamaConfig(**gguf.config()))


@pytest.fixture(scope="session")
def oracle(oracle_shell: Any, oracle_tensors: dict[str, torch.Tensor]) -> Any:
    """transformers' SmolLM2 in float32, fed by transformers' own reader: nothing of ours is in it."""
    oracle_shell.to_empty(device="cpu")
    oracle_shell.load_state_dict(oracle_tensors, strict=False, assign=True)
    oracle_shell.tie_weights()
    rotary = oracle_shell.model.rotary_emb
    rotary.inv_freq = rotary.compute_default_rope_parameters(oracle_shell.config)[0]
    return oracle_shell.eval()
