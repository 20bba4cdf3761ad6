"""Real vLLM servers for tests and benchmarks: the packaged model under its Hugging Face names, and processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stratacache.engine.convert import find_gguf, sha256_of
from stratacache.engine.gguf_import import GgufModel

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-vllm" / "bin" / "python"
MODEL = "smollm2-135m"
START_TIMEOUT = 600.0  # seconds; 30 to 50 on an idle core
BLOCK_TOKENS = 32


def hugging_face_folder(cache: Path = ROOT / ".stratacache" / "models") -> Path:
    """The packaged model as transformers and vLLM read it, written once.

    The engine's own folder holds the same weights, with the matrices fused that it multiplies by together.
    """
    from safetensors.torch import save_file

    source = find_gguf()
    folder = cache / f"{MODEL}-{sha256_of(source)[:16]}-hf"
    if (folder / "whole").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    model = GgufModel(source)
    save_file(dict(model.tensors()), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(model.config(), indent=2), encoding="utf-8")
    (folder / "tokenizer.json").write_text(model.tokenizer_json(), encoding="utf-8")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": model.chat_template()}
    settings |= {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2), encoding="utf-8")
    (folder / "whole").touch()
    return folder


class Server:
    """One vLLM process on a free port of loopback.

    Args:
        core: the CPU that it is pinned to, None for any.
        log: file that its output goes to.
    """

    def __init__(self, log: Path, *, core: int | None, dtype: str = "float32", port: int = 0) -> None:
        self.port = port or _free_port()
        self.log = log
        command = [str(PYTHON), "-m", "vllm.entrypoints.openai.api_server"]
        command += ["--host", "127.0.0.1", "--port", str(self.port), "--model", str(hugging_face_folder())]
        command += ["--served-model-name", MODEL, "--dtype", dtype, "--max-model-len", "4096"]
        command += ["--max-num-seqs", "8", "--block-size", str(BLOCK_TOKENS), "--enforce-eager"]
        command += ["--enable-prefix-caching", "--enable-prompt-tokens-details"]
        environ = {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "1"}
        environ |= {
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_SERVER_DEV_MODE": "1",
        }  # the latter for /reset_prefix_cache
        if core is not None:
            command = ["taskset", "-c", str(core), *command]
            environ["VLLM_CPU_OMP_THREADS_BIND"] = str(core)
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, env=environ, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        return f"{self.root}/v1"

    def wait(self) -> float:
        """Wait until it answers; returns the seconds that this took. Raises AssertionError when it does not."""
        began = time.monotonic()
        while time.monotonic() - began < START_TIMEOUT:
            assert self._process.poll() is None, (
                f"vLLM ended:\n{self.log.read_text(errors='replace')[-4000:]}"
            )
            try:
                with urllib.request.urlopen(f"{self.root}/health", timeout=2) as response:
                    if response.status == 200:
                        return time.monotonic() - began
            except OSError:
                time.sleep(1)
        raise AssertionError(f"vLLM did not start:\n{self.log.read_text(errors='replace')[-4000:]}")

    def kill(self) -> None:
        """SIGKILL to the server and the processes of its engine, and wait until they are gone. Idempotent."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@contextmanager
def servers(count: int, folder: Path, *, core: int | None) -> Iterator[list[Server]]:
    """``count`` vLLM servers that answer; killed at the end. They start one after the other, as they share a core."""
    started: list[Server] = []
    try:
        for number in range(count):
            started.append(Server(folder / f"vllm-{number}.log", core=core))
            started[-1].wait()
        yield started
    finally:
        for server in started:
            server.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
