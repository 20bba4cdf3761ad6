"""The embedded engine beside transformers' DynamicCache: one process, one thread, interleaved medians.

    python -m benchmarks.engine_speed [--rounds 7] [--dtype float32] [--out benchmarks/results/engine_speed.json]

Both run the same weights (transformers' from the packaged GGUF by its own reader). Ours is timed through
`Engine.step`, scheduling and sampling included; transformers' through bare forward calls with a
DynamicCache, `logits_to_keep=1` and argmax, without `generate`'s overhead, and at batch 8 with equal
lengths, so that it needs no padding. Greedy answers are compared as well as timed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from stratacache.engine.config import EngineConfig
from stratacache.engine.convert import find_gguf, model_folder
from stratacache.engine.engine import Engine
from stratacache.engine.gguf_import import GgufModel
from stratacache.engine.sequence import Generation, Sampling
from stratacache.engine.weights import DTYPES, load

COMMAND = "python -m benchmarks.engine_speed"
PREFILL, CONTEXT, DECODE, BATCH = 512, 128, 24, 8
HISTORY, NEW = 1504, 35
GREEDY = Sampling(temperature=0)


class Ours:
    """The engine, driven step by step."""

    name = "stratacache"

    def __init__(self, folder: Path, dtype: str) -> None:
        config, weights = load(folder, dtype)
        self.engine = Engine(config, weights, EngineConfig(dtype=dtype, token_budget=BATCH * CONTEXT))

    def _add(self, prompts: list[list[int]], tokens: int) -> None:
        for index, prompt in enumerate(prompts):
            self.engine.add(Generation(str(index), tuple(prompt), tokens, GREEDY, ignore_eos=True))

    def _run(self) -> dict[str, list[int]]:
        answers: dict[str, list[int]] = {}
        while self.engine.has_work:
            for output in self.engine.step():
                answers.setdefault(output.request_id, []).append(output.token)
        return answers

    def prefill(self, prompt: list[int], keep: bool = False) -> float:
        """Seconds to the first token."""
        if not keep:
            self.engine.reset_prefix_cache()
        self._add([prompt], 1)
        start = time.perf_counter()
        self._run()
        return time.perf_counter() - start

    def decode(self, prompts: list[list[int]], tokens: int) -> tuple[float, list[list[int]]]:
        """Seconds for all tokens after the first of each prompt, and the answers."""
        self.engine.reset_prefix_cache()
        self._add(prompts, tokens)
        first = {output.request_id: output.token for output in self.engine.step()}
        assert len(first) == len(prompts), (
            "the token budget holds all prompts, so that decodes are timed alone"
        )
        start = time.perf_counter()
        rest = self._run()
        spent = time.perf_counter() - start
        return spent, [[first[key], *rest[key]] for key in map(str, range(len(prompts)))]


class Theirs:
    """transformers' Llama with a DynamicCache."""

    name = "transformers"

    def __init__(self, folder: Path, dtype: str) -> None:
        from transformers import LlamaConfig, LlamaForCausalLM

        values = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        with torch.device("meta"):
            self.model = LlamaForCausalLM(LlamaConfig(**values))
        tensors = {name: value.to(DTYPES[dtype]) for name, value in GgufModel(find_gguf()).tensors()}
        self.model.to_empty(device="cpu").to(DTYPES[dtype]).load_state_dict(
            tensors, strict=False, assign=True
        )
        self.model.tie_weights()
        rotary = self.model.model.rotary_emb
        rotary.inv_freq = rotary.compute_default_rope_parameters(self.model.config)[0]
        self.model.eval()

    @torch.inference_mode()
    def _forward(self, ids: torch.Tensor, cache: Any) -> torch.Tensor:
        logits = self.model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
        return logits[:, -1].argmax(-1, keepdim=True)

    def prefill(self, prompt: list[int]) -> float:
        """Seconds to the first token."""
        from transformers import DynamicCache

        ids = torch.tensor([prompt])
        start = time.perf_counter()
        self._forward(ids, DynamicCache())
        return time.perf_counter() - start

    def decode(self, prompts: list[list[int]], tokens: int) -> tuple[float, list[list[int]]]:
        """Seconds for all tokens after the first of each prompt, and the answers."""
        from transformers import DynamicCache

        cache = DynamicCache()
        answers = [self._forward(torch.tensor(prompts), cache)]
        start = time.perf_counter()
        for _ in range(tokens - 1):
            answers.append(self._forward(answers[-1], cache))
        spent = time.perf_counter() - start
        return spent, torch.cat(answers, 1).tolist()


def prompt_of(length: int, salt: int) -> list[int]:
    """Made-up token ids, different for each salt; ordinary words, no specials."""
    generator = torch.Generator().manual_seed(salt)
    return torch.randint(1000, 30000, (length,), generator=generator).tolist()


def interleave(rounds: int, cases: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Times each case once per round, in turn, so that a slow minute of the machine hits all alike."""
    for case in cases.values():
        case()
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            times[name].append(case())
    return times


def measure(rounds: int, dtype: str, folder: Path) -> dict[str, Any]:
    """Raw seconds per case, and whether both answer alike."""
    ours, theirs = Ours(folder, dtype), Theirs(folder, dtype)
    prefill, single = prompt_of(PREFILL, 1), [prompt_of(CONTEXT, 2)]
    batch = [prompt_of(CONTEXT, 10 + row) for row in range(BATCH)]
    equal = {
        "decode_1": ours.decode(single, DECODE)[1] == theirs.decode(single, DECODE)[1],
        "decode_8": ours.decode(batch, DECODE)[1] == theirs.decode(batch, DECODE)[1],
    }
    times = interleave(
        rounds,
        {
            "prefill/stratacache": lambda: ours.prefill(prefill),
            "prefill/transformers": lambda: theirs.prefill(prefill),
            "decode_1/stratacache": lambda: ours.decode(single, DECODE)[0],
            "decode_1/transformers": lambda: theirs.decode(single, DECODE)[0],
            "decode_8/stratacache": lambda: ours.decode(batch, DECODE)[0],
            "decode_8/transformers": lambda: theirs.decode(batch, DECODE)[0],
        },
    )
    return {"answers_equal": equal, "seconds": times | turn_five(ours, max(3, rounds // 2))}


def turn_five(ours: Ours, rounds: int) -> dict[str, list[float]]:
    """First token of a fifth turn: NEW tokens after HISTORY, with the history cached and without."""
    history = prompt_of(HISTORY, 3)

    def warm(turn: list[int]) -> float:
        ours.prefill(history)
        return ours.prefill(history + turn, keep=True)

    turns = iter([prompt_of(NEW, 100 + count) for count in range(2 * rounds + 2)])
    return interleave(
        rounds,
        {
            "turn5/reused": lambda: warm(next(turns)),
            "turn5/recomputed": lambda: ours.prefill(history + next(turns)),
        },
    )


def summarise(raw: dict[str, Any]) -> dict[str, Any]:
    """Medians, rates and ratios; a ratio over 1 means that we are faster."""
    median = {name: statistics.median(values) for name, values in raw["seconds"].items()}
    tokens = {"prefill": PREFILL, "decode_1": DECODE - 1, "decode_8": BATCH * (DECODE - 1)}
    summary: dict[str, Any] = {
        case: {
            "stratacache_tok_s": round(count / median[f"{case}/stratacache"], 1),
            "transformers_tok_s": round(count / median[f"{case}/transformers"], 1),
            "ratio": round(median[f"{case}/transformers"] / median[f"{case}/stratacache"], 3),
        }
        for case, count in tokens.items()
    }
    reused, recomputed = median["turn5/reused"], median["turn5/recomputed"]
    summary["turn5"] = {
        "reused_ms": round(reused * 1e3, 1),
        "recomputed_ms": round(recomputed * 1e3, 1),
        "saved": round(1 - reused / recomputed, 4),
    }
    return summary


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    git = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    lines = (
        Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if Path("/proc/cpuinfo").exists()
        else []
    )
    cpu = next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine()
    )
    return {
        "cpu": cpu,
        "cpus": os.cpu_count(),
        "load": os.getloadavg(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "commit": commit,
    }


def main() -> None:
    """Runs the benchmark, prints the summary and writes the raw times."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/engine_speed.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    raw = measure(options.rounds, options.dtype, model_folder())
    result = {
        "command": f"{COMMAND} --rounds {options.rounds} --dtype {options.dtype}",
        "machine": machine(),
        "sizes": {"prefill": PREFILL, "context": CONTEXT, "decode": DECODE, "history": HISTORY, "new": NEW},
        "summary": summarise(raw),
        **raw,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({"answers_equal": raw["answers_equal"], **result["summary"]}, indent=1))


if __name__ == "__main__":
    main()
