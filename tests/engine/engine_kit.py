"""What the engine's tests share: a tiny random model with transformers as its oracle, and a checked driver.

The tiny model runs in float64, so that two orders of summation never flip a greedy choice: any
difference from the oracle is a fault, not rounding.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from stratacache.engine.config import EngineConfig, ModelConfig
from stratacache.engine.engine import Engine, Output
from stratacache.engine.sequence import Generation, Sampling
from stratacache.engine.weights import Weights, assemble, fuse

torch.set_num_threads(1)

GREEDY = Sampling(temperature=0)
TINY = EngineConfig(block_size=4, num_blocks=32, token_budget=16, max_running=8, dtype="float64")
TINY_MODEL: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "rope_theta": 10_000.0,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": True,
}


@cache
def tiny_oracle(vocab: int = 97) -> Any:
    """transformers' Llama with random weights, large enough for answers that do not repeat one token."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(7)
    config = LlamaConfig(**TINY_MODEL | {"vocab_size": vocab, "initializer_range": 0.25})
    return LlamaForCausalLM(config).double().eval()


@cache
def tiny_weights(vocab: int = 97) -> tuple[ModelConfig, Weights]:
    """The same weights in the engine's layout."""
    config = ModelConfig.from_mapping(TINY_MODEL | {"vocab_size": vocab})
    named = {name: tensor.detach() for name, tensor in tiny_oracle(vocab).state_dict().items()}
    return config, assemble(fuse(named, config), config, "float64")


def tiny_engine(vocab: int = 97, clock: Callable[[], float] = time.monotonic, **changes: Any) -> Engine:
    """An engine over the tiny model."""
    config, weights = tiny_weights(vocab)
    return Engine(config, weights, replace(TINY, **changes), seed=0, clock=clock)


@cache
def expected(prompt: tuple[int, ...], tokens: int) -> list[int]:
    """The oracle's greedy answer, computed without any cache of ours; end-of-text is not special."""
    return oracle_greedy(tiny_oracle(), prompt, tokens)


@torch.inference_mode()
def oracle_greedy(model: Any, prompt: tuple[int, ...], tokens: int) -> list[int]:
    """Greedy continuation by transformers with its own DynamicCache."""
    from transformers import DynamicCache

    past, ids, answer = DynamicCache(), torch.tensor([prompt]), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # the argument's new name is unknown to older releases
        for _ in range(tokens):
            logits = model(ids, past_key_values=past, use_cache=True, logits_to_keep=1).logits
            answer.append(int(logits[0, -1].argmax()))
            ids = torch.tensor([answer[-1:]])
    return answer


def greedy(
    name: str, prompt: tuple[int, ...], tokens: int, salt: str | None = None, **more: Any
) -> Generation:
    """A greedy request of exactly `tokens` tokens."""
    return Generation(name, tuple(prompt), tokens, GREEDY, salt, ignore_eos=True, **more)


def step(engine: Engine) -> list[Output]:
    """One step, with every invariant checked after it."""
    outputs = engine.step()
    engine.check()
    stats = engine.stats()
    assert stats.blocks_free + stats.blocks_cached + stats.blocks_active == stats.blocks_total
    return outputs


class Answers:
    """Runs an engine to the end and keeps what each request got."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.tokens: dict[str, list[int]] = {}  # of a request's further answers under "name/1", "name/2" ...
        self.reasons: dict[str, str] = {}
        self.cached: dict[str, int] = {}

    def step(self) -> None:
        """One checked step."""
        for output in step(self.engine):
            name = f"{output.request_id}/{output.index}" if output.index else output.request_id
            self.tokens.setdefault(name, []).append(output.token)
            self.cached[name] = output.cached_tokens
            if output.finish_reason:
                self.reasons[name] = output.finish_reason

    def run(self, *requests: Generation) -> Answers:
        """Adds requests and steps until the engine is idle."""
        for request in requests:
            self.engine.add(request)
        while self.engine.has_work:
            self.step()
        assert self.engine.stats().blocks_active == 0, "blocks leaked"
        return self


def words(length: int, salt: int = 0) -> tuple[int, ...]:
    """A made-up prompt of the tiny vocabulary."""
    generator = torch.Generator().manual_seed(1000 + salt)
    return tuple(torch.randint(3, 97, (length,), generator=generator).tolist())
