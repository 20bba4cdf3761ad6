"""One request inside the engine: its tokens, how many have KV, and the blocks that hold it."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Literal, Protocol

from torch import Tensor

from stratacache.engine.blocks import BlockKey, encode_extras, extend_keys
from stratacache.engine.conversations import Context

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn. Temperature 0 is greedy; `seed` None draws from the engine's stream.

    `top_logprobs` None asks for no logprobs, else for the drawn token's and that many likeliest ones'.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    top_logprobs: int | None = None


class Matcher(Protocol):
    """Where one answer stands in a grammar."""

    def mask(self, logits: Tensor) -> None:
        """Sets the logits [vocab] of tokens that cannot come next to minus infinity, in place."""
        ...

    def accept(self, token: int) -> bool:
        """Moves on by a token that was allowed; True when nothing but the end can follow."""
        ...


class Grammar(Protocol):
    """What an answer must look like."""

    def begin(self) -> Matcher:
        """A matcher at the beginning of an answer."""
        ...


@dataclass(frozen=True, slots=True)
class Generation:
    """A request to the core for `n` answers to one prompt.

    `max_tokens` None: up to the context limit. `salt`, `topic`, `adapter` and `image` (a digest) separate
    prefix caches: two requests share blocks only when they agree in each. `priority` is vLLM's: lower goes
    first. `conversation` keeps the KV when the answer is done.
    """

    id: str
    prompt: tuple[int, ...]
    max_tokens: int | None = None
    sampling: Sampling = Sampling()
    salt: str | None = None
    ignore_eos: bool = False
    n: int = 1
    grammar: Grammar | None = None
    priority: int = 0
    conversation: Context | None = None
    topic: str | None = None
    adapter: str | None = None
    image: str | None = None

    def extras(self) -> bytes:
        """What enters the hash of the first block beside tokens, each under its own tag."""
        names = ("salt", "topic", "adapter", "image")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        return encode_extras(given)


class Sequence:
    """The engine's mutable state of one answer of a Generation.

    `tokens` = prompt + generated. `computed` of them have KV in the blocks of `table`; what is left
    is prefill (after admission or preemption) or the one token sampled last.
    """

    __slots__ = (
        "cached_tokens",
        "computed",
        "extras",
        "index",
        "keys",
        "matcher",
        "passed",
        "request",
        "table",
        "tokens",
    )

    def __init__(self, request: Generation, index: int = 0) -> None:
        self.request = request
        self.index = index
        self.extras = request.extras()
        self.tokens: list[int] = list(request.prompt)
        self.computed = 0
        self.table: list[int] = []
        self.keys: list[BlockKey] = []
        self.matcher = request.grammar.begin() if request.grammar else None
        self.passed = 0  # requests behind this one that were admitted before it
        self.cached_tokens: int | None = None  # set once, when first admitted

    def fork(self, index: int) -> Sequence:
        """Another answer that continues from here, with the same blocks: the caller counts its hold on them."""
        twin = Sequence(self.request, index)
        twin.tokens = list(self.tokens)
        twin.computed = self.computed
        twin.table = list(self.table)
        twin.keys = list(self.keys)
        twin.cached_tokens = self.cached_tokens
        return twin

    @property
    def uncomputed(self) -> int:
        """Tokens without KV."""
        return len(self.tokens) - self.computed

    @property
    def generated(self) -> int:
        """Tokens sampled so far."""
        return len(self.tokens) - len(self.request.prompt)

    @property
    def width(self) -> int:
        """Sequences that this one is or will become, once its prompt has been computed."""
        return 1 if self.index or self.generated else self.request.n

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
