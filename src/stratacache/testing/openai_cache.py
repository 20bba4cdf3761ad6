"""OpenAI's prompt cache as a pure model: machines chosen by prefix and key, and what each of them has cached.

Source of the rules: OpenAI's documentation, "Prompt caching" (December 2026); steps of 128 tokens are from secondary
sources. Before GPT-5.6 the longest common prefix is found, in steps, from 1,024 tokens on, and writing is free. From
5.6 on an entry is found only where a breakpoint was: one implicit at the newest message and up to three explicit ones
(four with ``mode: explicit``), at most the latest 80 of a conversation are looked at, and writes are counted.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from stratacache.testing.prompt_cache import estimated_tokens

MINIMUM, STEP = 1024, 128
ROUTED_BY = 256
"""Tokens at the start of a prompt that, with the key, decide on the machine."""
KEY_RATE = 15
"""Requests a minute of one prefix and key that one machine takes; what is more goes to the next."""
IDLE_SECONDS = 600.0
LATEST_BREAKPOINTS, WRITTEN_BREAKPOINTS = 80, 4
LIVES: Mapping[str, float] = {"30m": 1800.0, "12h": 43_200.0}
_BREAKPOINT = "prompt_cache_breakpoint"
_NEW = re.compile(r"gpt-(?:5\.(?:[6-9]|\d\d)|[6-9])")


def has_breakpoints(model: str) -> bool:
    """Whether the model is of the GPT-5.6 family or later."""
    return _NEW.match(model) is not None


@dataclass(frozen=True)
class OpenAIUsage:
    """How a prompt was counted; ``written`` is None for models that do not charge for it."""

    prompt: int
    read: int = 0
    written: int | None = None

    def details(self) -> dict[str, Any]:
        """``usage.prompt_tokens_details``."""
        counted = {} if self.written is None else {"cache_write_tokens": self.written}
        return {"cached_tokens": self.read, "audio_tokens": 0, **counted}


@dataclass(frozen=True)
class Part:
    """A piece of a prompt: its ``content`` without marks, its tokens, whether a message ends with it, and the life that
    an explicit breakpoint gives it."""

    content: str
    tokens: int
    ends: bool = False
    ttl: str | None = None


@dataclass
class Machine:
    """What one machine holds: the end of each entry's life, by its prefix."""

    entries: dict[bytes, float] = field(default_factory=dict)


class OpenAICache:
    """Entries by machine. Not safe across threads.

    Args:
        now: seconds, from any start.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.machines: dict[tuple[bytes, int], Machine] = {}
        self._arrivals: dict[bytes, list[float]] = {}

    def serve(self, owner: str, body: Mapping[str, Any]) -> OpenAIUsage:
        """Count the prompt of ``body`` on the machine that it is routed to, and keep its prefixes there."""
        parts = list(parts_of(body))
        model = str(body["model"])
        machine = self._routed(owner, model, body.get("prompt_cache_key"), parts)
        if has_breakpoints(model):
            return self._by_breakpoints(machine, body, parts)
        return self._by_steps(machine, parts)

    def _routed(self, owner: str, model: str, key: Any, parts: list[Part]) -> Machine:
        start = "".join(part.content for part in parts)[: ROUTED_BY * 4]
        route = hashlib.sha256(json.dumps([owner, model, key, start]).encode()).digest()
        now = self.now()
        recent = [then for then in self._arrivals.get(route, []) if now - then < 60.0]
        self._arrivals[route] = [*recent, now]
        return self.machines.setdefault((route, len(recent) // KEY_RATE), Machine())

    def _by_steps(self, machine: Machine, parts: list[Part]) -> OpenAIUsage:
        text = "".join(part.content for part in parts)
        total = sum(part.tokens for part in parts)
        now, read = self.now(), 0
        for tokens in range(MINIMUM, total + 1, STEP):
            prefix = hashlib.sha256(text.encode("utf-8", "surrogatepass")[: tokens * 4]).digest()
            if machine.entries.get(prefix, 0.0) > now:
                read = tokens
            machine.entries[prefix] = now + IDLE_SECONDS
        return OpenAIUsage(total, read)

    def _by_breakpoints(self, machine: Machine, body: Mapping[str, Any], parts: list[Part]) -> OpenAIUsage:
        options = body.get("prompt_cache_options") or {}
        implicit = options.get("mode") != "explicit"
        places, total = [], 0
        chain = hashlib.sha256()
        for part in parts:
            chain.update(part.content.encode("utf-8", "surrogatepass"))
            total += part.tokens
            if total >= MINIMUM and (part.ttl is not None or (implicit and part.ends)):
                places.append((total, chain.copy().digest(), part.ttl))
        now = self.now()
        latest = places[-LATEST_BREAKPOINTS:]
        read = max(
            (tokens for tokens, prefix, _ in latest if machine.entries.get(prefix, 0.0) > now), default=0
        )
        writes = [place for place in places if place[2] is not None][-(WRITTEN_BREAKPOINTS - implicit) :]
        writes += places[-1:] if implicit else []
        written = 0
        for tokens, prefix, ttl in writes:
            written = max(written, tokens - read)
            machine.entries[prefix] = now + LIVES[ttl or options.get("ttl") or "30m"]
        return OpenAIUsage(total, read, written)


def parts_of(body: Mapping[str, Any]) -> Iterator[Part]:
    """The prompt in order: tools, then messages, each content part by itself."""
    for tool in body.get("tools") or ():
        yield _part(json.dumps(tool, ensure_ascii=False))
    for message in body["messages"]:
        content = message.get("content")
        inner: list[Any] = (
            [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())
        )
        rest = {name: value for name, value in message.items() if name != "content"}
        yield _part(json.dumps(rest, ensure_ascii=False), ends=not inner)
        for i, one in enumerate(inner):
            mark = one.get(_BREAKPOINT)
            bare = {name: value for name, value in one.items() if name != _BREAKPOINT}
            ttl = (mark.get("ttl") or "30m") if mark is not None else None
            yield _part(json.dumps(bare, ensure_ascii=False), ends=i == len(inner) - 1, ttl=ttl)


def _part(content: str, *, ends: bool = False, ttl: str | None = None) -> Part:
    return Part(content, estimated_tokens(content), ends, ttl)
