"""The block pool against a plain model of it, and the hash chain's promises."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stratacache.engine.blocks import BlockKey, BlockPool, OutOfBlocks, encode_extras, extend_keys

SIZE = 2


def keys_of(tokens: tuple[int, ...], extras: bytes = b"") -> list[BlockKey]:
    keys: list[BlockKey] = []
    extend_keys(keys, tokens, extras, SIZE)
    return keys


def fill(pool: BlockPool, tokens: tuple[int, ...], extras: bytes = b"") -> list[int]:
    keys = keys_of(tokens, extras)
    table = pool.allocate(len(keys))
    for block, key in zip(table, keys, strict=True):
        pool.publish(block, key)
    return table


class PoolMachine(RuleBasedStateMachine):
    """Sequences over two letters come, share, compute, leave. The model keeps true contents and ages."""

    total = 6

    @initialize()
    def start(self) -> None:
        self.pool = BlockPool(self.total)
        self.tables: dict[int, list[int]] = {}
        self.tokens: dict[int, tuple[int, ...]] = {}
        self.content: dict[int, tuple[int, ...]] = {}  # what the model says each published block holds
        self.lru: list[int] = []
        self.chains: list[list[int]] = []
        self.count = 0

    def forget(self, taken: list[int]) -> None:
        for block in taken:
            if block in self.lru:
                self.lru.remove(block)
            self.content.pop(block, None)

    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=9).map(tuple))
    def begin(self, tokens: tuple[int, ...]) -> None:
        keys = keys_of(tokens)[: (len(tokens) - 1) // SIZE]
        matched = self.pool.match(keys)
        for index, block in enumerate(matched):
            assert self.content[block] == tokens[: (index + 1) * SIZE], "matched another content"
        if len(matched) < len(keys):
            missing = tokens[: (len(matched) + 1) * SIZE]
            assert missing not in self.content.values(), "a published block was not found"
        needed = -(-len(tokens) // SIZE) - len(matched)
        self.pool.acquire(matched)
        if needed > self.pool.available:
            self.pool.release(matched)
            still = {block for other in (*self.tables.values(), *self.chains) for block in other}
            unheld = [block for block in reversed(matched) if block not in still]
            self.lru = [*(block for block in self.lru if block not in matched), *unheld]
            return
        self.lru = [block for block in self.lru if block not in matched]
        from_cache = max(0, needed - self.pool.free)
        evicted = self.lru[:from_cache]
        taken = self.pool.allocate(needed)
        assert set(evicted) <= set(taken), "not the least recently used were evicted"
        assert set(self.lru[from_cache:]).isdisjoint(taken), "a recently used block was evicted"
        self.forget(taken)
        self.count += 1
        self.tables[self.count], self.tokens[self.count] = matched + taken, tokens

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def compute(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.tables)))
        tokens, table = self.tokens[name], self.tables[name]
        for index, key in enumerate(keys_of(tokens)):
            held = tokens[: (index + 1) * SIZE]
            known = {content: block for block, content in self.content.items()}
            table[index] = self.pool.publish(table[index], key)
            assert table[index] == known.get(held, table[index]), "equal content is held twice"
            self.content[table[index]] = held
            if table[index] in self.lru:
                self.lru.remove(table[index])

    @precondition(lambda self: self.content)
    @rule(data=st.data())
    def keep(self, data: st.DataObject) -> None:
        content = data.draw(st.sampled_from(sorted(self.content.values())))
        chain = self.pool.match(keys_of(content))
        self.pool.keep(chain)
        self.chains.append(chain)
        self.lru = [block for block in self.lru if block not in chain]

    @precondition(lambda self: self.chains)
    @rule(data=st.data())
    def unkeep(self, data: st.DataObject) -> None:
        chain = self.chains.pop(data.draw(st.integers(0, len(self.chains) - 1)))
        self.pool.unkeep(chain)
        wanted = {block for other in (*self.chains, *self.tables.values()) for block in other}
        self.lru = [*reversed([block for block in chain if block not in wanted]), *self.lru]

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.tables)))
        table = self.tables.pop(name)
        self.pool.release(table)
        still = {block for other in (*self.tables.values(), *self.chains) for block in other}
        self.lru += [block for block in reversed(table) if block in self.content and block not in still]

    @rule()
    def reset(self) -> None:
        for chain in self.chains:
            self.pool.unkeep(chain)
        self.chains.clear()
        self.pool.reset()
        self.content.clear()
        self.lru.clear()

    @invariant()
    def books_balance(self) -> None:
        if hasattr(self, "pool"):
            self.pool.check(self.tables.values(), self.chains)
            assert self.pool.free + self.pool.cached + self.pool.active == self.total
            assert self.pool.cached - self.pool.kept == len(self.lru)


PoolMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestPoolAgainstModel = PoolMachine.TestCase


@pytest.fixture
def pool() -> BlockPool:
    return BlockPool(8)


def test_equal_hashes_never_share_unequal_tokens(pool: BlockPool) -> None:
    def weak(_: bytes) -> bytes:
        return b"same"

    first: list[BlockKey] = []
    other: list[BlockKey] = []
    salted: list[BlockKey] = []
    extend_keys(first, (1, 2), b"", SIZE, weak)
    extend_keys(other, (1, 3), b"", SIZE, weak)
    extend_keys(salted, (1, 2), encode_extras({"salt": "a"}), SIZE, weak)
    (block,) = pool.allocate(1)
    pool.publish(block, first[0])
    assert pool.match(first) == [block]
    assert pool.match(other) == []
    assert pool.match(salted) == []


def test_extras_are_tagged_so_that_equal_values_of_two_kinds_differ() -> None:
    kinds = [{"salt": "x"}, {"adapter": "x"}, {"salt": "x", "adapter": ""}, {"sal": "tx"}, {}]
    assert len({keys_of((1, 2), encode_extras(kind))[0].digest for kind in kinds}) == len(kinds)
    assert encode_extras({"a": "1", "b": "2"}) == encode_extras({"b": "2", "a": "1"})


def test_the_hash_depends_on_everything_before_the_block() -> None:
    assert keys_of((1, 2, 3, 4))[1].digest != keys_of((2, 1, 3, 4))[1].digest
    assert keys_of((1, 2, 3, 4))[0] == keys_of((1, 2, 9, 9))[0]


def test_hash_is_the_same_in_every_process() -> None:
    code = (
        "from stratacache.engine.blocks import extend_keys; keys = []; "
        "extend_keys(keys, (1, 2, 3, 4), b'', 2); print(keys[1].digest.hex())"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
        )
        for environment in ({"PYTHONHASHSEED": "1"}, {"PYTHONHASHSEED": "2"})
    ]
    assert {run.stdout.strip() for run in runs} == {keys_of((1, 2, 3, 4))[1].digest.hex()}


def test_only_full_blocks_have_keys() -> None:
    assert len(keys_of((1, 2, 3))) == 1
    assert keys_of((1,)) == []


def test_the_tail_of_a_released_chain_is_evicted_first(pool: BlockPool) -> None:
    tokens = tuple(range(16))
    pool.release(fill(pool, tokens))
    assert (pool.free, pool.cached, pool.active) == (0, 8, 0)
    pool.allocate(3)
    assert len(pool.match(keys_of(tokens))) == 5


def test_empty_blocks_are_taken_before_cached_ones(pool: BlockPool) -> None:
    pool.release(fill(pool, (1, 2, 3, 4)))
    pool.allocate(6)
    assert pool.cached == 2


def test_too_large_an_allocation_takes_nothing(pool: BlockPool) -> None:
    with pytest.raises(OutOfBlocks):
        pool.allocate(9)
    assert pool.free == 8


def test_growth_prefers_the_neighbouring_block(pool: BlockPool) -> None:
    table = pool.allocate(2)
    pool.release(pool.allocate(2))
    assert pool.allocate(1, after=table[-1]) == [table[-1] + 1]


def test_equal_content_that_is_finished_twice_is_kept_once(pool: BlockPool) -> None:
    first = fill(pool, (1, 2, 3, 4))
    second = pool.allocate(2)
    second = [pool.publish(block, key) for block, key in zip(second, keys_of((1, 2, 3, 4)), strict=True)]
    assert second == first
    assert (pool.active, pool.free) == (2, 6)
    pool.check([first, second])


def test_equal_hashes_of_unequal_content_are_not_joined(pool: BlockPool) -> None:
    key, (mine, other) = keys_of((1, 2))[0], pool.allocate(2)
    pool.publish(mine, key)
    assert pool.publish(other, BlockKey(key.digest, key.parent, key.extras, (1, 3))) == other
    assert pool.active == 2


def test_kept_blocks_are_not_evicted_until_they_are_given_up_and_then_first(pool: BlockPool) -> None:
    kept, other = (1, 2, 3, 4), (5, 6, 7, 8)
    pool.release(fill(pool, kept))
    pool.keep(pool.match(keys_of(kept)))
    pool.release(fill(pool, other))
    assert (pool.kept, pool.cached, pool.available) == (2, 4, 6)
    with pytest.raises(OutOfBlocks):
        pool.allocate(7)
    pool.unkeep(pool.match(keys_of(kept)))
    pool.release(pool.allocate(5))
    assert len(pool.match(keys_of(kept))) == 1  # the tail went first
    assert len(pool.match(keys_of(other))) == 2


def test_a_shared_block_stays_until_its_last_holder_leaves(pool: BlockPool) -> None:
    table = fill(pool, (1, 2))
    pool.acquire(table)
    pool.release(table)
    assert pool.active == 1
    pool.release(table)
    assert (pool.active, pool.cached) == (0, 1)


def test_check_finds_a_leaked_and_a_doubly_counted_block(pool: BlockPool) -> None:
    table = pool.allocate(2)
    with pytest.raises(AssertionError, match="reference counts"):
        pool.check([])
    with pytest.raises(AssertionError, match="reference counts"):
        pool.check([table, table])
    pool.check([table])
