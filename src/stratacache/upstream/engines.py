"""What each kind of engine documents: salts, cache metrics, where to empty its cache, and what a request had cached.

vLLM was run (``make test-vllm``). SGLang and llama.cpp follow their documentation, against fakes of it (tests/fakes).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from stratacache.policy.salt import scope_salt
from stratacache.types import JSON, Scope

EngineName = Literal["vllm", "sglang", "llamacpp"]

TAIL = 4096
"""Bytes of an answer's end that hold its usage."""
_CACHED = re.compile(rb'"cached_tokens"\s*:\s*(\d{1,9})')
_PROMPT = re.compile(rb'"prompt_tokens"\s*:\s*(\d{1,9})')
_SLOT_CACHED = re.compile(rb'"cache_n"\s*:\s*(\d{1,9})')
_SLOT_COMPUTED = re.compile(rb'"prompt_n"\s*:\s*(\d{1,9})')
_CONFIG = re.compile(r'(num_gpu_blocks|block_size)="(\d{1,12})"')
_SAMPLE = re.compile(r"^([a-z_]+:[a-z0-9_]+)(?:\{(.*)\})? (\S+)", re.MULTILINE)


class Engine(msgspec.Struct, frozen=True):
    """One kind of engine.

    ``salted``: it takes ``cache_salt``. ``gauges``: its metrics by ours (names of :data:`FIGURES`). ``reset``: a POST
    to this path, outside ``/v1``, empties its prefix cache; None when there is none.
    """

    name: EngineName
    salted: bool
    gauges: Mapping[str, str]
    reset: str | None


FIGURES = (
    "kv_usage",
    "queried_tokens",
    "hit_tokens",
    "hit_rate",
    "preemptions",
    "running",
    "waiting",
    "capacity",
)
"""What can be known of an engine: the share of its KV memory that is in use; prompt tokens that were looked up in the
prefix cache and found there since it started, or the share found of late; sequences put back; requests that run and
that wait; the tokens that its KV memory holds."""

ENGINES: Mapping[str, Engine] = {
    "vllm": Engine(
        "vllm",
        True,
        {
            "vllm:kv_cache_usage_perc": "kv_usage",
            "vllm:prefix_cache_queries_total": "queried_tokens",
            "vllm:prefix_cache_hits_total": "hit_tokens",
            "vllm:num_preemptions_total": "preemptions",
            "vllm:num_requests_running": "running",
            "vllm:num_requests_waiting": "waiting",
        },
        "/reset_prefix_cache",  # needs VLLM_SERVER_DEV_MODE=1
    ),
    "sglang": Engine(
        "sglang",
        True,
        {
            "sglang:token_usage": "kv_usage",
            "sglang:cache_hit_rate": "hit_rate",
            "sglang:num_running_reqs": "running",
            "sglang:num_queue_reqs": "waiting",
            "sglang:max_total_num_tokens": "capacity",
        },
        "/flush_cache",
    ),
    "llamacpp": Engine(
        "llamacpp",
        False,
        {"llamacpp:requests_processing": "running", "llamacpp:requests_deferred": "waiting"},
        None,
    ),
}


def salted(
    engine: Engine | None, body: Mapping[str, JSON], scope: Scope, secret: bytes
) -> Mapping[str, JSON]:
    """``body`` with the tenant's salt; a salt that the caller sent, whatever it is, only divides the tenant's cache."""
    if engine is None:
        return body
    if not engine.salted:
        # It has no salt: a prompt that it keeps could be probed by all, so with tenants it keeps none.
        return {**body, "cache_prompt": False} if scope.tenant != "default" else body
    given = body.get("cache_salt")
    callers = given if isinstance(given, str) or given is None else msgspec.json.encode(given).decode()
    return {**body, "cache_salt": scope_salt(secret, scope, callers)}


class PromptUse(msgspec.Struct, frozen=True):
    """Tokens of a prompt, and how many of them the engine had already."""

    prompt: int
    cached: int


def prompt_use(tail: bytes) -> PromptUse | None:
    """What the end of an answer says of its prompt, JSON or stream; None when it does not say.

    OpenAI's ``usage.prompt_tokens_details.cached_tokens``, and llama.cpp's ``timings`` (``prompt_n`` were computed). In
    a text of the answer these words have escaped quotes, so they are not found there.
    """
    cached, prompt = _CACHED.findall(tail), _PROMPT.findall(tail)
    if cached and prompt:
        return PromptUse(int(prompt[-1]), min(int(cached[-1]), int(prompt[-1])))
    kept, computed = _SLOT_CACHED.findall(tail), _SLOT_COMPUTED.findall(tail)
    if kept and computed:
        return PromptUse(int(kept[-1]) + int(computed[-1]), int(kept[-1]))
    return None


def figures(engine: Engine, exposition: str) -> dict[str, float]:
    """The :data:`FIGURES` that an engine's ``/metrics`` gives; several engines behind one address are added up."""
    found: dict[str, list[float]] = {}
    for match in _SAMPLE.finditer(exposition):
        name, labels, text = match.groups()
        if name == "vllm:cache_config_info":
            config = dict(_CONFIG.findall(labels or ""))
            if len(config) == 2:
                tokens = int(config["num_gpu_blocks"]) * int(config["block_size"])
                found.setdefault("capacity", []).append(float(tokens))
            continue
        ours = engine.gauges.get(name)
        if ours is None:
            continue
        try:
            value = float(text)
        except ValueError:
            continue
        if math.isfinite(value):
            found.setdefault(ours, []).append(value)
    shares = ("kv_usage", "hit_rate")
    return {name: sum(all_) / (len(all_) if name in shares else 1) for name, all_ in found.items()}
