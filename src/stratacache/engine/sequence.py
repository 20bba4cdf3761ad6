"""One request inside the engine: its tokens, how many have KV, and the blocks that hold it."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Literal

from stratacache.engine.blocks import BlockKey, extend_keys

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn. Temperature 0 is greedy; `seed` None draws from the engine's stream."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Generation:
    """A request to the core. `max_tokens` None: up to the context limit. `salt` separates prefix caches."""

    id: str
    prompt: tuple[int, ...]
    max_tokens: int | None = None
    sampling: Sampling = Sampling()
    salt: str | None = None
    ignore_eos: bool = False


class Sequence:
    """The engine's mutable state of one Generation.

    `tokens` = prompt + generated. `computed` of them have KV in the blocks of `table`; what is left
    is prefill (after admission or preemption) or the one token sampled last.
    """

    __slots__ = ("cached_tokens", "computed", "extras", "keys", "request", "table", "tokens")

    def __init__(self, request: Generation, extras: bytes) -> None:
        self.request = request
        self.extras = extras
        self.tokens: list[int] = list(request.prompt)
        self.computed = 0
        self.table: list[int] = []
        self.keys: list[BlockKey] = []
        self.cached_tokens: int | None = None  # set once, when first admitted

    @property
    def uncomputed(self) -> int:
        """Tokens without KV."""
        return len(self.tokens) - self.computed

    @property
    def generated(self) -> int:
        """Tokens sampled so far."""
        return len(self.tokens) - len(self.request.prompt)

    def full_keys(self, block_size: int) -> Seq[BlockKey]:
        """Keys of the full blocks of all tokens so far; computed once each."""
        extend_keys(self.keys, self.tokens, self.extras, block_size)
        return self.keys


@dataclass(frozen=True, slots=True)
class Work:
    """Part of a step: compute tokens [start, start + count) of a sequence."""

    sequence: Sequence
    start: int
    count: int

    @property
    def samples(self) -> bool:
        """Whether the last token of this part is the sequence's last, so that the next one is drawn."""
        return self.start + self.count == len(self.sequence.tokens)
