"""The embedded engine beside real vLLM on a CPU: same weights, dtype and thread, over HTTP, round by round in turn.

    make vllm && python -m benchmarks.engine_vs_vllm [--rounds 3] [--dtype float32] [--core 1]

Each round asks one after the other: a prompt that is new (prefill), eight requests at once (decode), and a long
conversation's next turn, cold and with its history kept. Seconds are those of a client: each server's HTTP is in them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.peers.vllm_kit import MODEL, Server

from benchmarks.report import median, write

USAGE = "python -m benchmarks.engine_vs_vllm"  # no COMMAND: `make bench` does not install vLLM
PREFILL_WORDS, HISTORY_WORDS, DECODE, BATCH = 400, 900, 24, 8


def ask(base_url: str, messages: list[dict[str, str]], tokens: int) -> tuple[float, dict[str, Any]]:
    """Seconds to the whole answer, and its usage."""
    body = {"model": MODEL, "messages": messages, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    request = urllib.request.Request(f"{base_url}/chat/completions", json.dumps(body).encode())
    request.add_header("content-type", "application/json")
    began = time.perf_counter()
    with urllib.request.urlopen(request, timeout=600) as response:
        answer = json.load(response)
    return time.perf_counter() - began, answer["usage"]


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def measure(base_url: str, mark: str) -> dict[str, float]:
    """One round on one server; ``mark`` makes its prompts new."""
    seconds, usage = ask(base_url, user(f"{mark} p " + "trains leave early today " * (PREFILL_WORDS // 4)), 1)
    figures = {"prefill_tokens_per_second": usage["prompt_tokens"] / seconds}
    with ThreadPoolExecutor(BATCH) as pool:
        began = time.perf_counter()
        prompts = [user(f"{mark} {n}: tell me a story.") for n in range(BATCH)]
        done = list(pool.map(lambda prompt: ask(base_url, prompt, DECODE), prompts))
        spent = time.perf_counter() - began
    figures["decode_tokens_per_second"] = sum(usage["completion_tokens"] for _, usage in done) / spent
    history = user(f"{mark} h " + "the next one goes to the coast " * (HISTORY_WORDS // 7))
    figures["cold_first_token"], _ = ask(base_url, history, 1)
    later = [
        *history,
        {"role": "assistant", "content": "Yes."},
        *user("And what does it cost to take a bicycle?"),
    ]
    figures["fifth_turn_first_token"], usage = ask(base_url, later, 1)
    figures["fifth_turn_cached"] = float((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)
    figures["fifth_turn_prompt"] = float(usage["prompt_tokens"])
    return figures


@contextmanager
def ours(dtype: str, core: int | None) -> Iterator[str]:
    """Our engine; gives its base URL."""
    command = [
        sys.executable,
        "-m",
        "stratacache.engine",
        "--port",
        "0",
        "--dtype",
        dtype,
        "--kv-memory",
        "1GiB",
    ]
    if core is not None:
        command = ["taskset", "-c", str(core), *command]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        try:
            yield f"http://127.0.0.1:{ready['port']}/v1"
        finally:
            process.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--core", type=int)
    args = parser.parse_args()
    rows: dict[str, list[dict[str, float]]] = {"stratacache": [], "vllm": []}
    with tempfile.TemporaryDirectory() as folder, ours(args.dtype, args.core) as url:
        server = Server(Path(folder) / "vllm.log", core=args.core, dtype=args.dtype)
        try:
            server.wait()
            for number in range(-1, args.rounds):  # the first round warms up and is left out
                for name, base_url in (("stratacache", url), ("vllm", server.base_url)):
                    row = measure(base_url, f"r{number}")
                    if number >= 0:
                        rows[name].append(row)
                    print(name, number, {key: round(value, 3) for key, value in row.items()}, flush=True)
        finally:
            server.kill()
    medians = {
        name: {key: median([row[key] for row in each]) for key in each[0]} for name, each in rows.items()
    }
    ratios = {
        key: medians["stratacache"][key] / medians["vllm"][key]
        for key in medians["vllm"]
        if medians["vllm"][key]
    }
    print(json.dumps({"medians": medians, "stratacache_over_vllm": ratios}, indent=1))
    options = {"dtype": args.dtype, "rounds": args.rounds, "core": args.core}
    write(
        "engine_vs_vllm",
        USAGE,
        {**options, "medians": medians, "stratacache_over_vllm": ratios, "rows": rows},
    )


if __name__ == "__main__":
    main()
