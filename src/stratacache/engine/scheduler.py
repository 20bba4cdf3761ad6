"""Decides what each step computes: continuous batching under a token budget. No tensors here.

Decodes come first, then the rest of prefills under way, then new requests in the order of the waiting
line. A request is admitted only when blocks for *all* its known tokens are there, and it gets them at
once: so a prefill in chunks can never run dry half-way, and nothing is held for `max_tokens`. When a
decode needs a block and none is left, idle conversations are given up, then the sequence admitted last
gives its blocks back and is recomputed later; the one admitted first is never the victim, so the batch
always advances.
"""

from __future__ import annotations

from stratacache.engine.blocks import BlockPool
from stratacache.engine.config import EngineConfig
from stratacache.engine.conversations import Conversations
from stratacache.engine.errors import ContextLengthExceeded, InvalidRequest, Overloaded
from stratacache.engine.line import WaitingLine
from stratacache.engine.sequence import Generation, Sequence, Work


class Scheduler:
    """The waiting line, the running batch, and the counters of prefix reuse."""

    def __init__(
        self, config: EngineConfig, pool: BlockPool, conversations: Conversations, context_limit: int
    ) -> None:
        self.config = config
        self.pool = pool
        self.conversations = conversations
        self.context_limit = context_limit
        self.waiting = WaitingLine()
        self.running: list[Sequence] = []  # in order of admission
        self.copies: list[tuple[int, int]] = []  # blocks to copy, from and to, before the step computes
        self.prefix_queries = 0
        self.prefix_hits = 0
        self.preemptions = 0
        self.forks = 0

    def add(self, request: Generation) -> None:
        """Puts a request in line. Raises RequestError when it can never or not now be served; keeps nothing."""
        size = len(request.prompt)
        if size >= self.context_limit:
            raise ContextLengthExceeded(self.context_limit, size)
        if request.n > self.config.max_running:
            raise InvalidRequest(f"'n' can be {self.config.max_running} at most here", "n")
        if len(self.waiting) >= self.config.max_waiting:
            raise Overloaded(f"{len(self.waiting)} requests are waiting already; try again later")
        if request.conversation is not None:
            self.conversations.begin(request.conversation)
        self.waiting.append(Sequence(request))

    def abort(self, request_id: str) -> bool:
        """Drops a request in whatever state its sequences are. False when it is not here (any more)."""
        running = [one for one in self.running if one.request.id == request_id]
        waiting = [one for one in self.waiting if one.request.id == request_id]
        for sequence in running:
            self._leave(sequence)
        for sequence in waiting:
            self.waiting.remove(sequence)
        return bool(running or waiting)

    def abort_one(self, request_id: str, index: int) -> None:
        """Drops one answer of a request, whose text has ended at a stop string."""
        for sequence in self.running:
            if (sequence.request.id, sequence.index) == (request_id, index):
                self.finish(sequence)
                return

    def finish(self, sequence: Sequence) -> None:
        """Takes a running sequence out of the batch; its full blocks stay reusable, or are kept."""
        self._leave(sequence)
        if sequence.request.conversation is not None and self.config.prefix_cache and not sequence.index:
            chain = self.pool.match(sequence.full_keys(self.pool.block_size))
            self.conversations.settle(sequence.request.conversation, chain)

    def _leave(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self._give_back(sequence)

    def fork(self, sequence: Sequence) -> list[Sequence]:
        """All answers of a sequence whose prompt is computed, itself first. New ones share all its blocks."""
        twins = [sequence.fork(index) for index in range(1, sequence.width)]
        for twin in twins:
            self.pool.acquire(twin.table)
            self.running.append(twin)
        self.forks += len(twins)
        return [sequence, *twins]

    def schedule(self) -> list[Work]:
        """The next step's work; allocates its blocks. Empty only when there is nothing to do."""
        self.copies = []
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
        while not self._can_write(sequence):
            if self.conversations.make_room(1):
                self._extend(sequence)
                continue
            victim = self.running.pop()
            self._preempt(victim)
            if victim is sequence:
                return False
        return True

    def _can_write(self, sequence: Sequence) -> bool:
        """Whether the place of the last token is in a block that only this sequence holds."""
        index = sequence.computed // self.pool.block_size
        return index < len(sequence.table) and not self.pool.shared(sequence.table[index])

    def _extend(self, sequence: Sequence) -> None:
        """Appends a block, or copies the last one that is shared with another answer of the request."""
        table = sequence.table
        index = sequence.computed // self.pool.block_size
        block = self.pool.allocate(1, after=table[-1])[0]
        if index == len(table):
            table.append(block)
            return
        self.copies.append((table[index], block))
        self.pool.release([table[index]])
        table[index] = block

    def _preempt(self, victim: Sequence) -> None:
        self._give_back(victim)
        self.waiting.push_front(victim)
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
        room = self.config.max_running - sum(sequence.width for sequence in self.running)
        if not (self.waiting and budget and room > 0):
            return work
        for sequence in self.waiting.order(self._hit):
            if not budget or sequence.width > room:
                break
            matched = self._match(sequence)
            if self._is_being_computed(sequence, len(matched)):
                continue
            if not self._admit(sequence, matched):
                break
            self.waiting.admit(sequence)
            room -= sequence.width
            work.append(self._chunk(sequence, budget))
            budget -= work[-1].count
        return work

    def _match(self, sequence: Sequence) -> list[int]:
        """Reusable blocks of the sequence's prefix: never its last token, whose logits are needed."""
        if not self.config.prefix_cache:
            return []
        size = self.pool.block_size
        return self.pool.match(sequence.full_keys(size)[: (len(sequence.tokens) - 1) // size])

    def _hit(self, sequence: Sequence) -> float:
        return len(self._match(sequence)) * self.pool.block_size / len(sequence.tokens)

    def _is_being_computed(self, sequence: Sequence, matched: int) -> bool:
        """Whether a running prefill will publish the very next block that the sequence lacks.

        Waiting a step or two for it costs less than computing it again, and shares the memory.
        """
        size = self.pool.block_size
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
        size = self.pool.block_size
        needed = -(-len(sequence.tokens) // size) - len(matched)
        # Holding the match takes its unheld blocks out of what could be allocated: count that first.
        left = self.pool.free + self.pool.cached - self.pool.unheld(matched) - needed
        if left < self._watermark():
            return False
        self.pool.acquire(matched)
        self.conversations.make_room(needed)
        sequence.table = matched + self.pool.allocate(needed, after=matched[-1] if matched else None)
        sequence.computed = len(matched) * size
        self._count_reuse(sequence)
        self.running.append(sequence)
        return True

    def _watermark(self) -> int:
        """Blocks that an admission leaves over: with others running, the next decode would preempt at once."""
        if not self.running:
            return 0
        return max(len(self.running), int(self.pool.total * self.config.watermark))

    def _count_reuse(self, sequence: Sequence) -> None:
        """Counts a hit once per request: what is recomputed after a preemption is no hit."""
        if sequence.cached_tokens is None:
            sequence.cached_tokens = sequence.computed
            self.prefix_queries += len(sequence.tokens)
            self.prefix_hits += sequence.computed

    def advance(self, work: Work) -> None:
        """Records that a part was computed, and publishes the blocks that it filled."""
        sequence, size = work.sequence, self.pool.block_size
        first, last = sequence.computed // size, (work.start + work.count) // size
        sequence.computed = work.start + work.count
        if self.config.prefix_cache:
            keys = sequence.full_keys(size)
            for index in range(first, last):
                sequence.table[index] = self.pool.publish(sequence.table[index], keys[index])

    def check(self) -> None:
        """Asserts the pool's books against the tables, and that each sequence fits its table."""
        self.pool.check([sequence.table for sequence in self.running], self.conversations.check())
        for sequence in self.running:
            assert 0 <= sequence.computed <= len(sequence.tokens)
            assert sequence.computed <= len(sequence.table) * self.pool.block_size
        assert all(not sequence.table and not sequence.computed for sequence in self.waiting)
