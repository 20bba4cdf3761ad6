"""The gateway with the real engine behind it: both caches, refusals with their reason, a crash, a clean stop."""

from __future__ import annotations

import http.client
import json
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.gateway_process import Serving, serving

MODEL = "smollm2-135m"
FILLER = "The harbour of the old town is open to small boats from May to October every year. " * 4
MODELS = Path(__file__).parents[2] / ".stratacache"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("embedded")
    MODELS.mkdir(exist_ok=True)
    (folder / ".stratacache").symlink_to(MODELS)  # the converted model is made once per checkout
    engine = {
        "name": "local",
        "kind": "embedded",
        "models": [MODEL],
        "kv_memory": "64MiB",
        "max_context": 512,
    }
    with serving(folder, {"store": "memory://", "upstreams": [engine]}) as running:
        yield running
        pids = engines_of(running)
        assert running.terminate() == 0
        assert pids
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def ask(
    gateway: Serving, messages: list[dict[str, str]], headers: Mapping[str, str] | None = None, **more: Any
) -> tuple[int, Mapping[str, str], Any]:
    body = {"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": 8, **more}
    return request(gateway, "POST", "/v1/chat/completions", json.dumps(body), headers)


def request(
    gateway: Serving,
    method: str,
    path: str,
    body: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, Mapping[str, str], Any]:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=120)
    connection.request(method, path, body, {"content-type": "application/json", **(headers or {})})
    response = connection.getresponse()
    raw = response.read().decode()
    connection.close()
    is_json = response.headers["content-type"].startswith("application/json")
    return response.status, response.headers, json.loads(raw) if is_json else raw


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def engines_of(gateway: Serving) -> list[int]:
    """The engine processes that this gateway has started."""
    pids = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if entry.name.isdigit() and b"stratacache.engine" in command:
            parent = command[command.index(b"--parent-pid") + 1] if b"--parent-pid" in command else b""
            if parent == str(gateway.process.pid).encode():
                pids.append(int(entry.name))
    return pids


def test_a_repeated_question_is_answered_by_the_exact_tier(gateway: Serving) -> None:
    question = [user("What is the capital of France? Answer in one word.")]
    status, headers, first = ask(gateway, question, max_tokens=30)
    assert (status, headers["x-strata-cache"]) == (200, "miss")
    assert first["choices"][0]["finish_reason"] == "stop"
    assert "Paris" in first["choices"][0]["message"]["content"]
    status, headers, second = ask(gateway, question, max_tokens=30)
    assert (status, headers["x-strata-cache"], headers["x-strata-tier"]) == (200, "hit", "exact")
    assert second == first


def test_a_second_turn_reuses_the_keys_and_values_of_the_first(gateway: Serving) -> None:
    turns = [user(FILLER + "When is the harbour open?")]
    _, headers, answer = ask(gateway, turns)
    assert int(headers["x-strata-prompt-tokens-cached"]) <= 32  # the template's system prompt at most
    turns += [answer["choices"][0]["message"], user("And for large ships?")]
    status, headers, answer = ask(gateway, turns)
    assert (status, headers["x-strata-cache"]) == (200, "miss")
    cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached >= 64
    assert headers["x-strata-prompt-tokens-cached"] == str(cached)


def test_a_prompt_that_cannot_fit_is_the_engines_400_with_its_reason(gateway: Serving) -> None:
    status, headers, told = ask(gateway, [user(FILLER * 10)])
    assert status == 400
    assert headers["x-strata-reason"] == "upstream_error"
    assert told["error"]["code"] == "context_length_exceeded"
    assert "512" in told["error"]["message"]


def test_the_blocks_are_in_the_metrics_and_statistics(gateway: Serving) -> None:
    ask(gateway, [user("Hello.")])
    _, _, text = request(gateway, "GET", "/metrics")
    metrics = {family.name: family.samples for family in text_string_to_metric_families(text)}
    blocks = {sample.labels["state"]: sample.value for sample in metrics["stratacache_kv_blocks"]}
    assert set(blocks) == {"free", "cached", "active"}
    assert blocks["cached"] > 0
    assert blocks["active"] == 0
    _, _, stats = request(gateway, "GET", "/admin/stats")
    figures = stats["engines"]["local"]["blocks"]
    assert figures["total"] == sum(blocks.values())
    assert stats["prompt_tokens"]["read"] > 0


def test_after_a_crash_requests_are_answered_again(gateway: Serving) -> None:
    kept = [user("What is the capital of France? Answer in one word.")]
    ask(gateway, kept, max_tokens=30)
    (engine,) = engines_of(gateway)
    os.kill(engine, signal.SIGKILL)
    status, headers, told = ask(gateway, [user("Are you there?")], {"cache-control": "no-store"})
    # Sent to the dying engine: a clear refusal. Sent after its death was noticed: the wait for the next one.
    assert status in (200, 502, 503)
    if status != 200:
        assert told["error"]["type"] == "api_error"
        assert headers["x-strata-reason"].startswith("upstream_")
    while status != 200:
        status, _, _ = ask(gateway, [user("Are you there?")], {"cache-control": "no-store"})
        assert status in (200, 502, 503)
    assert engines_of(gateway) != [engine]
    assert request(gateway, "GET", "/readyz")[0] == 200
    # What was answered before the crash is still in the exact tier.
    assert ask(gateway, kept, max_tokens=30)[1]["x-strata-cache"] == "hit"
