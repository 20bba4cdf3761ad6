"""Fakes of SGLang and llama.cpp that hold to their documented fields; no model, the prefix cache is real.

They stand for the engines' documentation (SGLang's OpenAI protocol and metrics, llama.cpp's server README), not for the
engines: what an engine does beside its documentation is not seen here. ``vllm`` is there too, for tests that need no
model; the real one runs in tests/peers.

A prompt is the messages' text, a token 4 characters; whole blocks of 16 tokens are cached by salt. The salt is
``cache_salt`` of vLLM and SGLang (a text that is not empty, or the request is refused with 400); llama.cpp has none and
keeps nothing of a request with ``cache_prompt: false``. ``cached_tokens`` is in usage for vLLM and SGLang,
``timings.cache_n`` and ``prompt_n`` for llama.cpp. ``GET /health`` is 200, ``GET /metrics`` has each engine's names,
and vLLM's ``/reset_prefix_cache`` and SGLang's ``/flush_cache`` are POSTs that empty the cache.
"""

from __future__ import annotations

from typing import Any

from tests.fakes.upstream import Call, FakeUpstream, Reply

BLOCK = 16
CHARS = 4


class FakeEngine:
    """Give ``fake`` the manners of ``kind``: ``vllm``, ``sglang`` or ``llamacpp``."""

    def __init__(self, fake: FakeUpstream, kind: str, *, capacity: int = 4096) -> None:
        self.kind = kind
        self.fake = fake
        self.salts: list[Any] = []
        self.resets = 0
        self.queried = self.hit = 0
        self._capacity = capacity
        self._blocks: set[tuple[Any, str]] = set()
        fake.responder = self._answer
        fake.dispatch = self._own_path

    def _answer(self, call: Call) -> Reply:
        salt = call.json.get("cache_salt")
        self.salts.append(salt)
        if self.kind != "llamacpp" and salt is not None and (not isinstance(salt, str) or not salt):
            return Reply(status=400, text="cache_salt must be a non-empty string")
        prompt = "".join(f"{m['role']}:{m['content']}\n" for m in call.json["messages"])
        tokens = len(prompt) // CHARS
        ends = range(BLOCK * CHARS, (tokens - 1) * CHARS + 1, BLOCK * CHARS)
        keys = [(salt, prompt[:end]) for end in ends]
        found = next((i for i, key in enumerate(keys) if key not in self._blocks), len(keys)) * BLOCK
        if self.kind == "llamacpp" and call.json.get("cache_prompt") is False:
            found = 0
        else:
            self._blocks |= set(keys)
        self.queried += tokens
        self.hit += found
        if self.kind == "llamacpp":
            return Reply(
                text="Hello.", usage=None, extra={"timings": {"cache_n": found, "prompt_n": tokens - found}}
            )
        return Reply(text="Hello.", usage=(tokens, 2, found))

    def _own_path(self, call: Call) -> Reply | None:
        where = (call.method, call.path)
        if where == ("GET", "/health"):
            return Reply(body={"status": "ok"})
        if where == ("GET", "/metrics"):
            return Reply(raw=[self._metrics().encode()], content_type="text/plain")
        if where in (("POST", "/reset_prefix_cache"), ("POST", "/flush_cache")):
            known = {"vllm": "/reset_prefix_cache", "sglang": "/flush_cache"}.get(self.kind)
            if call.path != known:
                return Reply(status=404, text="Not Found")
            self._blocks.clear()
            self.resets += 1
            return Reply(body={})
        return None

    def _metrics(self) -> str:
        if self.kind == "vllm":
            tag = '{engine="0",model_name="fake-model"}'
            return (
                f"# HELP vllm:kv_cache_usage_perc KV-cache usage.\nvllm:kv_cache_usage_perc{tag} 0.25\n"
                f"vllm:prefix_cache_queries_total{tag} {self.queried}.0\n"
                f"vllm:prefix_cache_hits_total{tag} {self.hit}.0\nvllm:num_preemptions_total{tag} 3.0\n"
                f"vllm:num_requests_running{tag} 1.0\nvllm:num_requests_waiting{tag} 2.0\n"
                f'vllm:cache_config_info{{block_size="{BLOCK}",num_gpu_blocks="{self._capacity // BLOCK}"}} 1.0\n'
            )
        if self.kind == "sglang":
            tag = '{model_name="fake-model"}'
            return (
                f"sglang:token_usage{tag} 0.28\nsglang:cache_hit_rate{tag} 0.5\nsglang:num_running_reqs{tag} 1.0\n"
                f"sglang:num_queue_reqs{tag} 2.0\nsglang:max_total_num_tokens{tag} {self._capacity}.0\n"
            )
        return "llamacpp:requests_processing 1\nllamacpp:requests_deferred 2\n"
