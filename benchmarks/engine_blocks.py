"""What the embedded engine's KV blocks hold: eight users behind one system prompt, and waste on a mix of lengths.

    python -m benchmarks.engine_blocks

Blocks are counted in the engine's own pool after each step. What a block holds does not depend on what the model
computes, so a model with two tiny random layers runs, and the counts are the same on every machine.

Waste: of the KV slots that running requests hold, those without a token. They are counted twice: at the ends of last
blocks only (``unfilled``), and with the slots of prompts that are still being computed (``waste``).
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from itertools import islice
from typing import Any

import torch

from benchmarks import report
from stratacache.engine.config import EngineConfig, ModelConfig
from stratacache.engine.engine import Engine
from stratacache.engine.sequence import Generation, Sampling
from stratacache.engine.weights import LayerWeights, Weights

COMMAND = "python -m benchmarks.engine_blocks"
USERS, SYSTEM, QUESTION, ANSWER = 8, 1_400, (12, 60), 64
SIZES = (16, 32)
REQUESTS = 120
MIXES = {
    # Mean tokens of prompts and answers: of ShareGPT, as vLLM's paper has them; of the Azure traces of 2023.
    "chat": (161, 338),
    "assistant": (1_155, 211),
}
SPREAD = 0.8  # of the logarithm of a length: the longest of 120 is about eight times the median
GREEDY = Sampling(temperature=0)
VOCABULARY = 512


def engine(**settings: Any) -> Engine:
    """An engine over random weights; its KV takes 512 bytes a token."""
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 16_384}
    config = ModelConfig.from_mapping({"model_type": "llama", "rms_norm_eps": 1e-5} | sizes | heads)
    torch.manual_seed(1)
    shapes = {"qkv": (32, 96), "out": (32, 32), "gate_up": (32, 64), "down": (32, 32)}
    layers = [LayerWeights(**{name: torch.randn(shape) / 8 for name, shape in shapes.items()}) for _ in "12"]
    weights = Weights(tuple(layers), torch.randn(32, VOCABULARY), torch.ones(32), torch.randn(VOCABULARY, 32))
    return Engine(config, weights, EngineConfig(num_blocks=8_192, **settings), seed=0)


def text(rng: random.Random, length: int) -> tuple[int, ...]:
    return tuple(rng.randrange(VOCABULARY) for _ in range(length))


def behind_one_prompt(shared: bool, block_size: int) -> int:
    """The most blocks in use while eight users' answers are under way, in one cache or each in one of its own."""
    rng, core = random.Random(2), engine(block_size=block_size)
    system = text(rng, SYSTEM)
    for user in range(USERS):
        prompt = (*system, *text(rng, rng.randint(*QUESTION)))
        salt = "all" if shared else str(user)
        core.add(Generation(str(user), prompt, ANSWER, GREEDY, salt, ignore_eos=True))
    most = 0
    while core.has_work:
        core.step()
        most = max(most, core.stats().blocks_active)
    return most


def length(rng: random.Random, mean: int) -> int:
    """Log-normal with that mean."""
    return max(1, round(mean * rng.lognormvariate(-SPREAD * SPREAD / 2, SPREAD)))


def waste(means: tuple[int, int], block_size: int) -> dict[str, Any]:
    """Shares of the slots of held blocks, summed over the steps of many requests, sixteen at a time."""
    rng, core = random.Random(3), engine(block_size=block_size)
    coming = (
        Generation(
            str(number), text(rng, length(rng, means[0])), length(rng, means[1]), GREEDY, ignore_eos=True
        )
        for number in range(REQUESTS)
    )
    held = known = computed = 0
    while True:
        room = core.config.max_running - core.stats().running - core.stats().waiting
        for request in islice(coming, room):
            core.add(request)
        if not core.has_work:
            break
        core.step()
        held += core.stats().blocks_active * block_size
        known += sum(len(one.tokens) for one in core.scheduler.running)
        computed += sum(one.computed for one in core.scheduler.running)
    return {
        "mean_prompt_and_answer": means,
        "block_size": block_size,
        "requests": REQUESTS,
        "unfilled": round(1 - known / held, 4),
        "waste": round(1 - computed / held, 4),
    }


def main(argv: Sequence[str] = ()) -> int:
    torch.set_num_threads(1)
    prompts = []
    for size in SIZES:
        shared, apart = behind_one_prompt(True, size), behind_one_prompt(False, size)
        prompts.append(
            {"block_size": size, "shared": shared, "apart": apart, "ratio": round(shared / apart, 3)}
        )
    figures = {
        "eight_users_behind_one_prompt": {"system_prompt_tokens": SYSTEM, "most_blocks_in_use": prompts},
        "waste": {name: [waste(means, size) for size in SIZES] for name, means in MIXES.items()},
    }
    print(figures)
    print(report.write("engine_blocks", COMMAND, figures))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
