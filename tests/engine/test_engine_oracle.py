"""The real model answers exactly as transformers does: cold, from cached prefixes, mixed, preempted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.engine.engine_kit import GREEDY, Answers, oracle_greedy

from stratacache.engine.config import EngineConfig
from stratacache.engine.engine import Engine
from stratacache.engine.gguf_import import GgufModel
from stratacache.engine.sequence import Generation
from stratacache.engine.template import ChatTemplate
from stratacache.engine.tokenizer import Tokenizer
from stratacache.engine.weights import load

TOKENS = 10
CHATS = [
    [{"role": "user", "content": "What is the capital of France?"}],
    [{"role": "user", "content": "What is the capital of Japan?"}],
    [
        {"role": "system", "content": "Answer in one word."},
        {"role": "user", "content": "Is 7 a prime number?"},
    ],
    [{"role": "user", "content": "Write a Python function that adds 12 and 345.\n\n  def add():"}],
    [{"role": "user", "content": "请用中文介绍一下北京。"}],
]


@pytest.fixture(scope="module")
def prompts(folder: Path, tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    template = ChatTemplate.from_folder(folder)
    return [tuple(tokenizer.encode(template.render(chat))) for chat in CHATS]


@pytest.fixture(scope="module")
def reference(oracle: Any, prompts: list[tuple[int, ...]]) -> list[list[int]]:
    return [oracle_greedy(oracle, prompt, TOKENS) for prompt in prompts]


def make(folder: Path, **settings: Any) -> Engine:
    return Engine(*load(folder, "float32"), EngineConfig(**{"num_blocks": 64} | settings))


def ask(index: int, prompts: list[tuple[int, ...]], tokens: int = TOKENS) -> Generation:
    return Generation(str(index), prompts[index], tokens, GREEDY, ignore_eos=True)


def test_every_weight_equals_transformers_reading_of_the_file(
    gguf: GgufModel, oracle_tensors: dict[str, torch.Tensor]
) -> None:
    ours = dict(gguf.tensors())
    assert ours.keys() == oracle_tensors.keys()
    assert all(torch.equal(tensor, oracle_tensors[name]) for name, tensor in ours.items())


def test_cold_then_prefix_hit(
    folder: Path, prompts: list[tuple[int, ...]], reference: list[list[int]]
) -> None:
    engine = make(folder)
    cold = Answers(engine).run(ask(0, prompts))
    assert cold.tokens["0"] == reference[0]
    assert cold.cached["0"] == 0
    warm = Answers(engine).run(ask(0, prompts), ask(1, prompts))
    assert [warm.tokens["0"], warm.tokens["1"]] == reference[:2]
    assert warm.cached["0"] == (len(prompts[0]) - 1) // 16 * 16
    assert warm.cached["1"] == 16  # the default system prompt, which both share


def test_mixed_batch_with_chunked_prefill(
    folder: Path, prompts: list[tuple[int, ...]], reference: list[list[int]]
) -> None:
    engine = make(folder, token_budget=20, max_running=5, share_inflight=False)
    answers = Answers(engine).run(*(ask(index, prompts) for index in range(len(prompts))))
    assert [answers.tokens[str(index)] for index in range(len(prompts))] == reference


def test_after_preemption(folder: Path, prompts: list[tuple[int, ...]], reference: list[list[int]]) -> None:
    engine = make(folder, num_blocks=21, block_size=4, prefix_cache=False)
    answers = Answers(engine).run(ask(0, prompts), ask(1, prompts))
    assert engine.stats().preemptions > 0
    assert [answers.tokens["0"], answers.tokens["1"]] == reference[:2]


def test_logits_are_close_on_a_long_prompt_in_uneven_chunks(folder: Path, oracle: Any) -> None:
    generator = torch.Generator().manual_seed(3)
    prompt = torch.randint(1000, 30000, (300,), generator=generator).tolist()
    engine = make(folder, token_budget=77)
    seen: list[torch.Tensor] = []
    forward = engine.model.forward
    engine.model.forward = lambda work: seen.append(forward(work)) or seen[-1]  # type: ignore[method-assign]
    Answers(engine).run(Generation("long", tuple(prompt), 1, GREEDY))
    with torch.inference_mode():
        wanted = oracle(torch.tensor([prompt]), logits_to_keep=1).logits[0]
    torch.testing.assert_close(seen[-1], wanted, atol=2e-3, rtol=0)


def test_bfloat16_is_near_float32(folder: Path, prompts: list[tuple[int, ...]], oracle: Any) -> None:
    """Its words may differ, by processor and by number of threads; what it thinks of them hardly."""
    engine = Engine(*load(folder, "bfloat16"), EngineConfig(num_blocks=16, dtype="bfloat16"))
    seen: list[torch.Tensor] = []
    forward = engine.model.forward
    engine.model.forward = lambda work: seen.append(forward(work)) or seen[-1]  # type: ignore[method-assign]
    Answers(engine).run(Generation("short", prompts[0], 1, GREEDY))
    with torch.inference_mode():
        wanted = oracle(torch.tensor([prompts[0]]), logits_to_keep=1).logits[0, -1]
    assert torch.cosine_similarity(seen[-1].float().reshape(-1), wanted, dim=0) > 0.99
