"""Anthropic's prompt cache as a pure model: which tokens of a request are read, written or fresh.

Source of the rules: Anthropic's documentation, "Prompt caching" (minimum lengths as of December 2026). A request is a
row of blocks, tools first, then system, then messages; an entry stands for all blocks up to a marked one.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

MAX_BREAKPOINTS = 4
LOOK_BACK = 20
"""Positions that are looked at for one breakpoint, its own included."""

SECONDS: Mapping[str, float] = {"5m": 300.0, "1h": 3600.0}
IMAGE_TOKENS = 1500

MINIMUM_TOKENS: tuple[tuple[str, int], ...] = (
    ("claude-opus-5*", 512),
    ("claude-fable-5*", 512),
    ("claude-mythos-5*", 512),
    ("claude-opus-4-7*", 2048),
    ("claude-opus-4-[56]*", 4096),
    ("claude-haiku-4-5*", 4096),
    ("*", 1024),
)
"""(model pattern, tokens): what a shorter prefix holds is never written. The first match counts."""

Ttl = Literal["5m", "1h"]
Segment = Literal["tools", "system", "messages"]


def minimum_of(model: str) -> int:
    """The fewest tokens that a prefix of ``model`` must have to be cached."""
    return next(tokens for pattern, tokens in MINIMUM_TOKENS if fnmatch.fnmatchcase(model, pattern))


def estimated_tokens(text: str) -> int:
    """The fake's tokenizer: a token for every four bytes of UTF-8, rounded up."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // 4)


@dataclass(frozen=True)
class Block:
    """One position: its canonical ``content`` without marks, its tokens, and the mark that it carries, if any."""

    segment: Segment
    path: str
    content: str
    tokens: int
    ttl: Ttl | None = None


@dataclass(frozen=True)
class CacheUsage:
    """How the prompt's tokens are billed; ``read + written + fresh`` are all of them."""

    fresh: int = 0
    read: int = 0
    written_5m: int = 0
    written_1h: int = 0

    @property
    def written(self) -> int:
        return self.written_5m + self.written_1h

    @property
    def total(self) -> int:
        return self.fresh + self.read + self.written

    def as_usage(self) -> dict[str, Any]:
        """The input side of a response's ``usage``."""
        return {
            "input_tokens": self.fresh,
            "cache_creation_input_tokens": self.written,
            "cache_read_input_tokens": self.read,
            "cache_creation": {
                "ephemeral_5m_input_tokens": self.written_5m,
                "ephemeral_1h_input_tokens": self.written_1h,
            },
        }


@dataclass
class _Entry:
    expires_at: float
    ttl: Ttl


@dataclass(frozen=True)
class Begun:
    """A request that was looked up: its ``usage``, and what :meth:`PromptCache.begin_answer` will write."""

    usage: CacheUsage
    writes: tuple[tuple[bytes, Ttl], ...] = ()
    reads: tuple[bytes, ...] = ()


@dataclass
class PromptCache:
    """Entries by workspace, model and prefix. Not safe across threads.

    Args:
        now: seconds, from any start; entries expire by it.
    """

    now: Callable[[], float]
    _entries: dict[bytes, _Entry] = field(default_factory=dict)

    def look_up(self, workspace: str, model: str, body: Mapping[str, Any]) -> Begun:
        """What ``body`` reads and will write. Mutates nothing: that is for :meth:`begin_answer`."""
        blocks = blocks_of(body)
        chain = list(chained(workspace, model, body, blocks))
        sums = [0]
        for block in blocks:
            sums.append(sums[-1] + block.tokens)
        minimum = minimum_of(model)
        marked = [i for i, block in enumerate(blocks) if block.ttl is not None and sums[i + 1] >= minimum]
        hit = max((i for m in marked if (i := self._found(chain, m)) is not None), default=None)
        read_to = 0 if hit is None else hit + 1
        written = {"5m": 0, "1h": 0}
        done = read_to
        writes = []
        for i in marked:
            ttl = blocks[i].ttl
            if ttl is None or i + 1 <= done:
                continue
            written[ttl] += sums[i + 1] - sums[done]
            writes.append((chain[i], ttl))
            done = i + 1
        usage = CacheUsage(sums[-1] - sums[done], sums[read_to], written["5m"], written["1h"])
        return Begun(usage, tuple(writes), () if hit is None else (chain[hit],))

    def begin_answer(self, begun: Begun) -> None:
        """The first answer's first byte is sent: what was read lives anew, what is written can be read."""
        now = self.now()
        for place in begun.reads:
            if (entry := self._entries.get(place)) is not None:
                entry.expires_at = now + SECONDS[entry.ttl]
        for place, ttl in begun.writes:
            self._entries[place] = _Entry(now + SECONDS[ttl], ttl)

    def __len__(self) -> int:
        """Entries that have not expired."""
        now = self.now()
        return sum(entry.expires_at > now for entry in self._entries.values())

    def _found(self, chain: Sequence[bytes], marked: int) -> int | None:
        """The last position with an entry among the ``LOOK_BACK`` that end at ``marked``."""
        now = self.now()
        for i in range(marked, max(-1, marked - LOOK_BACK), -1):
            entry = self._entries.get(chain[i])
            if entry is not None and entry.expires_at > now:
                return i
        return None


def blocks_of(body: Mapping[str, Any]) -> list[Block]:
    """The request's positions in order. A top-level ``cache_control`` marks the last one that can be."""
    blocks = [_block("tools", f"tools.{i}", tool) for i, tool in enumerate(body.get("tools") or ())]
    blocks += [
        _block("system", f"system.{i}" if isinstance(body.get("system"), list) else "system", part)
        for i, part in enumerate(_parts(body.get("system")))
    ]
    for i, message in enumerate(body["messages"]):
        for j, part in enumerate(_parts(message.get("content"))):
            blocks.append(_block("messages", f"messages.{i}.content.{j}", part, message.get("role")))
    automatic = body.get("cache_control")
    if automatic and blocks:
        last = max(
            (i for i, block in enumerate(blocks) if '"type": "thinking"' not in block.content), default=-1
        )
        if last >= 0 and blocks[last].ttl is None:
            kept = blocks[last]
            blocks[last] = Block(
                kept.segment, kept.path, kept.content, kept.tokens, automatic.get("ttl", "5m")
            )
    return blocks


def _parts(content: Any) -> list[Any]:
    if content is None:
        return []
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _block(segment: Segment, path: str, value: Mapping[str, Any], role: str | None = None) -> Block:
    marks = list(_marks(value))
    bare = _unmarked(value)
    # The order of a block's own members is not part of the prompt; that of what is inside them (schemas, arguments) is.
    content = json.dumps([role, dict(sorted(bare.items()))], ensure_ascii=False)
    ttl: Ttl | None = marks[-1].get("ttl", "5m") if marks else None
    return Block(segment, path, content, _tokens(bare), ttl)


def _marks(value: Any) -> Iterator[Mapping[str, Any]]:
    """The marks on a block, those on what a tool result holds first."""
    if isinstance(value, Mapping):
        if value.get("type") == "tool_result" and isinstance(value.get("content"), list):
            for part in value["content"]:
                yield from _marks(part)
        if value.get("cache_control"):
            yield value["cache_control"]


def _unmarked(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _unmarked(v) for k, v in value.items() if k != "cache_control"}
    return [_unmarked(v) for v in value] if isinstance(value, list) else value


def _tokens(value: Any) -> int:
    if isinstance(value, Mapping):
        if value.get("type") in ("image", "document"):
            return IMAGE_TOKENS
        if value.get("type") == "text":
            return max(1, estimated_tokens(str(value.get("text"))))
    return max(1, estimated_tokens(json.dumps(value, ensure_ascii=False)))


def chained(workspace: str, model: str, body: Mapping[str, Any], blocks: Sequence[Block]) -> Iterator[bytes]:
    """A digest per position that stands for all up to it, and for the settings that its segment depends on."""
    chain = hashlib.sha256(json.dumps([workspace, model]).encode()).digest()
    segment: Segment = "tools"
    for block in blocks:
        if block.segment == "messages" and segment != "messages":
            chain = hashlib.sha256(chain + _settings_of_messages(body).encode()).digest()
        segment = block.segment
        chain = hashlib.sha256(chain + block.content.encode("utf-8", "surrogatepass")).digest()
        yield chain


def _settings_of_messages(body: Mapping[str, Any]) -> str:
    """What voids the messages' part of every entry when it changes."""
    images = any(
        isinstance(part, Mapping) and part.get("type") == "image"
        for message in body["messages"]
        for part in _parts(message.get("content"))
    )
    return json.dumps([body.get("tool_choice"), body.get("thinking"), images], sort_keys=True)
