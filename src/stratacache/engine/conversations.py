"""KV of earlier turns, kept for a while: which conversation keeps which blocks, and when they are given up.

A conversation that was named by its caller keeps the full blocks of its last turn, so that other traffic
does not evict them before the next one. It gives them up when its context changes (another system prompt,
topic, model, template or salt), when it has been idle too long, when all conversations together keep more
than their bound, or when a request needs the room: the least recently used goes first.

Given up means evicted next, not wrong: what may be matched is decided by the chain of hashes alone.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import pack

from stratacache.engine.blocks import BlockPool


@dataclass(frozen=True, slots=True)
class Context:
    """A conversation's name, unique over all callers, and the digest of what its history depends on."""

    name: bytes
    fingerprint: bytes


def digest(*parts: str | None) -> bytes:
    """SHA-256 of texts that keeps them apart: each is preceded by its length, and None is not ""."""
    encoded = [None if part is None else part.encode("utf-8", "surrogatepass") for part in parts]
    framed = (b"\xff" * 8 if one is None else pack("<Q", len(one)) + one for one in encoded)
    return hashlib.sha256(b"".join(framed)).digest()


@dataclass(slots=True)
class _Kept:
    fingerprint: bytes
    chain: list[int]
    used: float


class Conversations:
    """The blocks that conversations keep. Not safe for concurrent use: the engine's one thread owns it."""

    def __init__(
        self, pool: BlockPool, *, most_bytes: int, block_bytes: int, idle: float, clock: Callable[[], float]
    ) -> None:
        """`most_bytes` bounds what is kept together, `idle` is in seconds of `clock`."""
        self._pool = pool
        self._most_bytes = most_bytes
        self.block_bytes = block_bytes
        self._idle = idle
        self._clock = clock
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()  # least recently used first
        self._blocks: Counter[int] = Counter()
        self.given_up: Counter[str] = Counter()  # by reason: changed, idle, bound, room

    def __len__(self) -> int:
        return len(self._kept)

    def begin(self, context: Context) -> None:
        """A turn begins: the history is still wanted, or no longer if its fingerprint has changed."""
        kept = self._kept.get(context.name)
        if kept is None:
            return
        if kept.fingerprint == context.fingerprint:
            kept.used = self._clock()
            self._kept.move_to_end(context.name)
        else:
            self._give_up(context.name, "changed")

    def settle(self, context: Context, chain: Sequence[int]) -> None:
        """A turn has ended: keeps its published blocks instead of those of the turn before."""
        if context.name in self._kept:
            self._release(context.name)
        if not chain or len(chain) * self.block_bytes > self._most_bytes:
            return
        self._pool.keep(chain)
        self._blocks.update(chain)
        self._kept[context.name] = _Kept(context.fingerprint, list(chain), self._clock())
        while len(self._blocks) * self.block_bytes > self._most_bytes:
            self._give_up(next(iter(self._kept)), "bound")

    def make_room(self, count: int) -> bool:
        """Gives up conversations until `count` blocks can be allocated; False when that is not enough."""
        while self._pool.available < count and self._kept:
            self._give_up(next(iter(self._kept)), "room")
        return self._pool.available >= count

    def expire(self) -> float | None:
        """Gives up what has been idle too long; returns the seconds until the next is, None for never."""
        now = self._clock()
        for name, kept in list(self._kept.items()):
            if now - kept.used < self._idle:
                return self._idle - (now - kept.used)
            self._give_up(name, "idle")
        return None

    def clear(self) -> None:
        """Gives up everything."""
        for name in list(self._kept):
            self._release(name)

    def _give_up(self, name: bytes, reason: str) -> None:
        self._release(name)
        self.given_up[reason] += 1

    def _release(self, name: bytes) -> None:
        chain = self._kept.pop(name).chain
        self._pool.unkeep(chain)
        self._blocks.subtract(chain)
        for block in chain:
            if not self._blocks[block]:
                del self._blocks[block]

    def check(self) -> list[list[int]]:
        """Asserts that the bound holds and the sum is right; returns what is kept, for the pool's check."""
        chains = [kept.chain for kept in self._kept.values()]
        assert self._blocks == Counter(block for chain in chains for block in chain), "kept blocks differ"
        assert len(self._blocks) * self.block_bytes <= self._most_bytes, "more is kept than the bound"
        return chains
