"""Decides what each step computes: continuous batching under a token budget. No tensors here.

Decodes come first, then the rest of prefills under way, then new requests, first come first served.
A request is admitted only when blocks for *all* its known tokens are there, and it gets them at once:
so a prefill in chunks can never run dry half-way, and nothing is held for `max_tokens`. When a decode
needs a block and none is left, the sequence admitted last gives its blocks back and is recomputed
later; the one admitted first is never the victim, so the batch always advances.
"""

from __future__ import annotations

from collections import deque

from stratacache.engine.blocks import BlockPool, encode_extras
from stratacache.engine.config import EngineConfig
from stratacache.engine.errors import ContextLengthExceeded, Overloaded
from stratacache.engine.sequence import Generation, Sequence, Work


class Scheduler:
    """The waiting line, the running batch, and the counters of prefix reuse."""

    def __init__(self, config: EngineConfig, pool: BlockPool, context_limit: int) -> None:
        self.config = config
        self.pool = pool
        self.context_limit = context_limit
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []  # in order of admission
        self.prefix_queries = 0
        self.prefix_hits = 0
        self.preemptions = 0

    def add(self, request: Generation) -> None:
        """Puts a request in line. Raises ContextLengthExceeded or Overloaded; then nothing is kept."""
        size = len(request.prompt)
        if size >= self.context_limit:
            raise ContextLengthExceeded(self.context_limit, size)
        if len(self.waiting) >= self.config.max_waiting:
            raise Overloaded(f"{len(self.waiting)} requests are waiting already; try again later")
        extras = {} if request.salt is None else {"salt": request.salt}
        self.waiting.append(Sequence(request, encode_extras(extras)))

    def abort(self, request_id: str) -> bool:
        """Drops a request in whatever state it is. False when it is not here (any more)."""
        for sequence in self.running:
            if sequence.request.id == request_id:
                self.finish(sequence)
                return True
        for sequence in self.waiting:
            if sequence.request.id == request_id:
                self.waiting.remove(sequence)
                return True
        return False

    def finish(self, sequence: Sequence) -> None:
        """Takes a running sequence out of the batch; its full blocks stay reusable."""
        self.running.remove(sequence)
        self._give_back(sequence)

    def schedule(self) -> list[Work]:
        """The next step's work; allocates its blocks. Empty only when there is nothing to do."""
        work = self._decodes()
        budget = self.config.token_budget - len(work)
        for sequence in self.running:
            if budget and sequence.uncomputed > 1:
                work.append(self._chunk(sequence, budget))
                budget -= work[-1].count
        return work + self._admissions(budget)

    def _decodes(self) -> list[Work]:
        work: list[Work] = []
        position = 0
        while position < len(self.running):  # preemption shortens the list from its end
            sequence = self.running[position]
            position += 1
            if sequence.uncomputed == 1 and self._grow(sequence):
                work.append(Work(sequence, sequence.computed, 1))
        return work

    def _grow(self, sequence: Sequence) -> bool:
        """Makes room for the sequence's last token; False when the sequence itself was preempted."""
        if len(sequence.tokens) <= len(sequence.table) * self.config.block_size:
            return True
        while not self.pool.available:
            victim = self.running.pop()
            self._preempt(victim)
            if victim is sequence:
                return False
        sequence.table += self.pool.allocate(1, after=sequence.table[-1])
        return True

    def _preempt(self, victim: Sequence) -> None:
        self._give_back(victim)
        self.waiting.appendleft(victim)
        self.preemptions += 1

    def _give_back(self, sequence: Sequence) -> None:
        self.pool.release(sequence.table)
        sequence.table = []
        sequence.computed = 0

    @staticmethod
    def _chunk(sequence: Sequence, budget: int) -> Work:
        return Work(sequence, sequence.computed, min(budget, sequence.uncomputed))

    def _admissions(self, budget: int) -> list[Work]:
        work: list[Work] = []
        deferred: list[Sequence] = []
        while self.waiting and budget and len(self.running) < self.config.max_running:
            sequence = self.waiting.popleft()
            matched = self._match(sequence)
            if self._is_being_computed(sequence, len(matched)):
                deferred.append(sequence)
            elif self._admit(sequence, matched):
                work.append(self._chunk(sequence, budget))
                budget -= work[-1].count
            else:
                deferred.append(sequence)
                break
        self.waiting.extendleft(reversed(deferred))
        return work

    def _match(self, sequence: Sequence) -> list[int]:
        """Reusable blocks of the sequence's prefix: never its last token, whose logits are needed."""
        if not self.config.prefix_cache:
            return []
        most = (len(sequence.tokens) - 1) // self.config.block_size
        return self.pool.match(sequence.full_keys(self.config.block_size)[:most])

    def _is_being_computed(self, sequence: Sequence, matched: int) -> bool:
        """Whether a running prefill will publish the very next block that the sequence lacks.

        Waiting a step or two for it costs less than computing it again, and shares the memory.
        """
        size = self.config.block_size
        if not (self.config.prefix_cache and self.config.share_inflight):
            return False
        if matched >= (len(sequence.tokens) - 1) // size:
            return False
        wanted, end = sequence.keys[matched], (matched + 1) * size
        return any(
            other.uncomputed > 1 and other.computed < end and other.keys[matched : matched + 1] == [wanted]
            for other in self.running
        )

    def _admit(self, sequence: Sequence, matched: list[int]) -> bool:
        size = self.config.block_size
        needed = -(-len(sequence.tokens) // size) - len(matched)
        # Holding the match takes its unheld blocks out of what is available: count that first.
        left = self.pool.available - self.pool.unheld(matched) - needed
        # With others running, a little is left over, or the next decode would preempt at once.
        if left < len(self.running):
            return False
        self.pool.acquire(matched)
        sequence.table = matched + self.pool.allocate(needed, after=matched[-1] if matched else None)
        sequence.computed = len(matched) * size
        self._count_reuse(sequence)
        self.running.append(sequence)
        return True

    def _count_reuse(self, sequence: Sequence) -> None:
        """Counts a hit once per request: what is recomputed after a preemption is no hit."""
        if sequence.cached_tokens is None:
            sequence.cached_tokens = sequence.computed
            self.prefix_queries += len(sequence.tokens)
            self.prefix_hits += sequence.computed

    def advance(self, work: Work) -> None:
        """Records that a part was computed, and publishes the blocks that it filled."""
        sequence, size = work.sequence, self.config.block_size
        first, last = sequence.computed // size, (work.start + work.count) // size
        sequence.computed = work.start + work.count
        if self.config.prefix_cache:
            keys = sequence.full_keys(size)
            for index in range(first, last):
                self.pool.publish(sequence.table[index], keys[index])

    def check(self) -> None:
        """Asserts the pool's books against the tables, and that each sequence fits its table."""
        self.pool.check(sequence.table for sequence in self.running)
        for sequence in self.running:
            assert 0 <= sequence.computed <= len(sequence.tokens)
            assert sequence.computed <= len(sequence.table) * self.config.block_size
        assert all(not sequence.table and not sequence.computed for sequence in self.waiting)
