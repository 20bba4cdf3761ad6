"""The engine as a process: ready line, the official SDK over HTTP, SIGTERM, a parent that goes away."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.engine.engine_kit import oracle_greedy

from stratacache.engine.command import add_arguments, parse_bytes
from stratacache.engine.template import ChatTemplate
from stratacache.engine.tokenizer import Tokenizer

CHAT: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]


def command(folder: Path, *more: str) -> list[str]:
    small = ["--port", "0", "--model-dir", str(folder), "--kv-memory", "64MiB"]
    return [sys.executable, "-m", "stratacache.engine", *small, *more]


def start(folder: Path, *more: str) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen(command(folder, *more), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = json.loads(process.stdout.readline())
    assert line.keys() == {"ready", "port", "model"}
    assert (line["ready"], line["model"]) == (True, "smollm2-135m")
    return process, line["port"]


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[openai.OpenAI]:
    process, port = start(folder)
    with openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0) as made:
        yield made
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert process.stdout is not None
    process.stdout.close()


def test_the_sdk_gets_the_oracles_answer(
    client: openai.OpenAI, oracle: Any, folder: Path, tokenizer: Tokenizer
) -> None:
    answer = client.chat.completions.create(model="smollm2-135m", messages=CHAT, temperature=0, max_tokens=12)
    prompt = tuple(tokenizer.encode(ChatTemplate.from_folder(folder).render(CHAT)))
    wanted = oracle_greedy(oracle, prompt, 12)
    wanted = wanted[: wanted.index(2)] if 2 in wanted else wanted
    assert answer.choices[0].message.content == tokenizer.decode(wanted) == "The capital of France is Paris."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(prompt), len(wanted) + 1)


def test_the_sdk_streams(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="smollm2-135m",
        messages=CHAT,
        temperature=0,
        max_tokens=4,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "The capital of France"
    assert chunks[-2].choices[0].finish_reason == "length"
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens is not None


def test_the_sdk_understands_refusals(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="smollm2-135m", messages=CHAT, logit_bias={"5": 1})
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", "logit_bias")
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="gpt-4o", messages=CHAT)
    assert [model.id for model in client.models.list()] == ["smollm2-135m"]


def test_sigterm_cuts_a_long_answer_and_exits_with_0(folder: Path) -> None:
    process, port = start(folder, "--grace", "0.2")
    first, error = threading.Event(), []

    def ask() -> None:
        with openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0) as client:
            stream = client.chat.completions.create(
                model="smollm2-135m",
                messages=CHAT,
                temperature=0,
                max_tokens=1000,
                stream=True,
                extra_body={"ignore_eos": True},
            )
            try:
                for _ in stream:
                    first.set()
            except openai.APIError as caught:
                error.append(caught)

    asking = threading.Thread(target=ask)
    asking.start()
    assert first.wait(60)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    asking.join()
    assert "shutting down" in str(error[0])
    assert process.stdout is not None
    process.stdout.close()


def test_it_ends_when_its_parent_is_gone(folder: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process, _ = start(folder, "--parent-pid", str(parent.pid))
    assert process.poll() is None
    assert parent.stdin is not None
    parent.stdin.close()
    parent.wait()
    assert process.wait(30) == 0
    assert process.stdout is not None
    process.stdout.close()


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        (["--token-budget", "4", "--max-running", "8"], 2, "max_running"),
        (["--kv-memory", "1"], 2, "holds no block"),
        (["--max-context", "1"], 2, "max_context"),
        (["--port", "65536"], 2, "not a port"),
        (["--kv-memory", "lots"], 2, "not a size"),
        (["--model-dir", "/nonexistent"], 1, "not a complete converted model folder"),
        (["--host", "203.0.113.1"], 1, "annot assign"),
    ],
)
def test_settings_that_cannot_be_say_so(folder: Path, more: list[str], code: int, message: str) -> None:
    run = subprocess.run(command(folder, *more), capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout) == (code, "")
    assert message in run.stderr
    assert "Traceback" not in run.stderr


def test_help_names_every_option() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    text = parser.format_help()
    assert all(option in text for option in ("--port", "--kv-memory", "--parent-pid", "--no-prefix-cache"))
    assert parser.parse_args([]).kv_memory == parse_bytes("512MiB") == 512 << 20


def test_sizes() -> None:
    assert [parse_bytes(text) for text in ("5", "2KiB", "3 MB", "1gib")] == [5, 2048, 3_000_000, 1 << 30]
    for text in ("", "MiB", "1TB", "-1", "1.5GB"):
        with pytest.raises(argparse.ArgumentTypeError):
            parse_bytes(text)
