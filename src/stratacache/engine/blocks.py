"""The pool of KV blocks: who holds each block, which full blocks can be reused, what is evicted next.

A block is in exactly one of four states: *free* (empty, nobody's), *cached* (nobody's, but its
content is known and may be matched again), *kept* (cached, and of an idle conversation, so that it is
not evicted before that is given up) and *active* (in at least one sequence's table). Only full blocks
whose KV has been computed are ever published, so a match never exposes another request's tail.

Not safe for concurrent use: the engine's one thread owns it.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from struct import pack

Hasher = Callable[[bytes], bytes]


def sha256(data: bytes) -> bytes:
    """The default hasher: unlike Python's own hash it is the same in every process."""
    return hashlib.sha256(data).digest()


class OutOfBlocks(Exception):
    """Fewer blocks are reusable than were asked for; nothing was taken."""


@dataclass(frozen=True, slots=True)
class BlockKey:
    """What a full block holds: its tokens, after everything before them.

    Equality is by content. `digest` only finds candidates: `match` compares the rest, so two keys
    whose hashes collide are still two keys.
    """

    digest: bytes
    parent: bytes
    extras: bytes
    tokens: tuple[int, ...]


def encode_extras(extras: Mapping[str, str]) -> bytes:
    """Tags each value with its name and length, so that `salt=X` and `adapter=X` never collide."""
    parts = []
    for name, value in sorted(extras.items()):
        name_bytes, value_bytes = name.encode(), value.encode("utf-8", "surrogatepass")
        parts.append(pack("<II", len(name_bytes), len(value_bytes)) + name_bytes + value_bytes)
    return b"".join(parts)


def extend_keys(
    keys: list[BlockKey], tokens: Sequence[int], extras: bytes, block_size: int, hasher: Hasher = sha256
) -> None:
    """Appends to `keys` (mutated) the keys of the full blocks of `tokens` that it lacks."""
    for start in range(len(keys) * block_size, len(tokens) - block_size + 1, block_size):
        parent = keys[-1].digest if keys else hasher(b"stratacache.kv.1" + extras)
        content = tuple(tokens[start : start + block_size])
        digest = hasher(parent + pack(f"<{block_size}I", *content))
        keys.append(BlockKey(digest, parent, extras, content))


class BlockPool:
    """Equal blocks of `block_size` tokens with reference counts and an index of reusable content."""

    def __init__(self, num_blocks: int, block_size: int = 16) -> None:
        self.reshape(num_blocks, block_size)

    def reshape(self, num_blocks: int, block_size: int) -> None:
        """Begins anew with blocks of another size. Nobody may hold any."""
        self.total = num_blocks
        self.block_size = block_size
        self._refs = [0] * num_blocks
        self._keepers = [0] * num_blocks
        self._keys: list[BlockKey | None] = [None] * num_blocks
        self._index: dict[bytes, int] = {}
        # OrderedDict, not dict: taking the first of a plain dict scans the holes left by earlier takes.
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))
        self._cached: OrderedDict[int, None] = OrderedDict()  # least recently used first
        self._kept: dict[int, None] = {}

    @property
    def free(self) -> int:
        """Blocks that hold nothing."""
        return len(self._free)

    @property
    def cached(self) -> int:
        """Blocks that no sequence holds and that may be matched again, the kept ones among them."""
        return len(self._cached) + len(self._kept)

    @property
    def kept(self) -> int:
        """Cached blocks that `allocate` does not take, because a conversation keeps them."""
        return len(self._kept)

    @property
    def active(self) -> int:
        """Blocks in some sequence's table."""
        return self.total - len(self._free) - self.cached

    @property
    def available(self) -> int:
        """Blocks that `allocate` could hand out now."""
        return len(self._free) + len(self._cached)

    def match(self, keys: Sequence[BlockKey]) -> list[int]:
        """The longest run of published blocks that hold `keys` from the start. Changes nothing.

        The ids are valid until the next `allocate`; `acquire` them to keep them.
        """
        found: list[int] = []
        for key in keys:
            block = self._index.get(key.digest)
            if block is None or self._keys[block] != key:
                break
            found.append(block)
        return found

    def unheld(self, blocks: Iterable[int]) -> int:
        """How many of `blocks` no sequence holds: acquiring them takes that much from `free` + `cached`."""
        return sum(self._refs[block] == 0 for block in blocks)

    def shared(self, block: int) -> bool:
        """Whether two or more sequences hold the block: whoever writes to it copies it first."""
        return self._refs[block] > 1

    def acquire(self, blocks: Iterable[int]) -> None:
        """Adds one holder to each block, matched or of a sequence that forks."""
        for block in blocks:
            if self._refs[block] == 0:
                del (self._kept if self._keepers[block] else self._cached)[block]
            self._refs[block] += 1

    def keep(self, blocks: Iterable[int]) -> None:
        """Protects published blocks from eviction until `unkeep`. Several may keep the same block."""
        for block in blocks:
            assert self._keys[block] is not None, f"block {block} is kept without content"
            self._keepers[block] += 1
            if block in self._cached:
                del self._cached[block]
                self._kept[block] = None

    def unkeep(self, chain: Sequence[int]) -> None:
        """Undoes one `keep`. What nobody else keeps or holds is evicted next, its end first."""
        for block in chain:
            self._keepers[block] -= 1
            if block in self._kept and not self._keepers[block]:
                del self._kept[block]
                self._cached[block] = None
                self._cached.move_to_end(block, last=False)

    def allocate(self, count: int, after: int | None = None) -> list[int]:
        """Takes `count` blocks for one holder: empty ones first, then the least recently used.

        `after` is the last block of the table that grows: its neighbour is preferred while empty,
        and a batch comes in ascending order, since neighbours in order are read without a copy.
        Raises OutOfBlocks and takes nothing when there are too few.
        """
        if count > self.available:
            raise OutOfBlocks(f"{count} blocks wanted, {self.available} available")
        taken = [self._take(after if position == 0 else None) for position in range(count)]
        return sorted(taken)

    def _take(self, after: int | None) -> int:
        if after is not None and after + 1 in self._free:
            block = after + 1
            del self._free[block]
        elif self._free:
            block, _ = self._free.popitem(last=False)
        else:
            block, _ = self._cached.popitem(last=False)
            self._forget(block)
        self._refs[block] = 1
        return block

    def _forget(self, block: int) -> None:
        key = self._keys[block]
        assert key is not None, f"block {block} was cached without a key"
        self._keys[block] = None
        del self._index[key.digest]

    def publish(self, block: int, key: BlockKey) -> int:
        """Makes a held, full, computed block findable, and returns the block that the holder has from now on.

        That is another one when equal content was published before: it takes over the holder, and the
        second copy is free.
        """
        assert self._refs[block] > 0, f"block {block} is published by nobody"
        known = self._index.get(key.digest)
        if known is None:
            self._keys[block] = key
            self._index[key.digest] = block
        elif known != block and self._keys[known] == key:
            self.acquire([known])
            self.release([block])
            return known
        return block

    def release(self, table: Sequence[int]) -> None:
        """Removes one holder from each block of a sequence's table.

        Tail first: a chain is only useful from its root, so the root must be evicted last.
        """
        for block in reversed(table):
            assert self._refs[block] > 0, f"block {block} is released by nobody"
            self._refs[block] -= 1
            if self._refs[block]:
                continue
            if self._keys[block] is None:
                self._free[block] = None
                self._free.move_to_end(block, last=False)
            else:
                (self._kept if self._keepers[block] else self._cached)[block] = None

    def reset(self) -> None:
        """Forgets all reusable content, of which none may be kept. Blocks in use are free when released."""
        assert not any(self._keepers), "content that is kept cannot be forgotten"
        self._index.clear()
        self._keys = [None] * self.total
        self._free.update(self._cached)
        self._cached.clear()

    def check(self, tables: Iterable[Sequence[int]], chains: Iterable[Sequence[int]] = ()) -> None:
        """Asserts free + cached + in use = total, and that counts equal what `tables` hold and `chains` keep."""
        held = Counter(block for table in tables for block in table)
        keep = Counter(block for chain in chains for block in chain)
        assert self._refs == [held[block] for block in range(self.total)], "reference counts differ"
        assert self._keepers == [keep[block] for block in range(self.total)], "counts of keepers differ"
        assert set(self._kept) == set(keep) - set(held), "what is kept differs"
        free, cached, active = set(self._free), {*self._cached, *self._kept}, set(held)
        assert len(free) + len(cached) + len(active) == self.total, "free + cached + in use is not the total"
        assert free | cached | active == set(range(self.total)), "a block is in two states or in none"
        keyed = {block: key for block, key in enumerate(self._keys) if key is not None}
        assert {key.digest: block for block, key in keyed.items()} == self._index, "index and keys differ"
        assert cached == set(keyed) - active, "a cached block has no key, or a free one has"
