"""The core: step = schedule → run → postprocess. Synchronous; one thread owns it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from stratacache.engine.blocks import BlockPool
from stratacache.engine.config import EngineConfig, LengthMeter, ModelConfig
from stratacache.engine.conversations import Conversations
from stratacache.engine.model import PagedModel
from stratacache.engine.sampling import Sampler, TokenLogprobs
from stratacache.engine.scheduler import Scheduler
from stratacache.engine.sequence import FinishReason, Generation, Sequence, Work
from stratacache.engine.weights import Weights


@dataclass(frozen=True, slots=True)
class Output:
    """A new token of a request's answer `index`, and why that answer ended if it did."""

    request_id: str
    index: int
    token: int
    finish_reason: FinishReason | None
    cached_tokens: int
    logprobs: TokenLogprobs | None = None


@dataclass(frozen=True, slots=True)
class Stats:
    """Counters and gauges at the end of a step. Prefix queries and hits are in tokens; kept is part of cached."""

    blocks_total: int
    blocks_free: int
    blocks_cached: int
    blocks_active: int
    blocks_kept: int
    block_size: int
    prefix_queries: int
    prefix_hits: int
    preemptions: int
    forks: int
    waiting: int
    running: int
    conversations: int
    given_up: dict[str, int]
    steps: int
    computed_tokens: int
    generated_tokens: int


class Engine:
    """Continuous batching over one model. Not safe for concurrent use."""

    def __init__(
        self,
        model_config: ModelConfig,
        weights: Weights,
        config: EngineConfig,
        seed: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self.context_limit = config.context_limit(model_config)
        blocks, size = config.pool_blocks(model_config), config.first_block_size
        self.pool = BlockPool(blocks, size)
        self._token_bytes = model_config.kv_bytes_per_token(config.dtype)
        self.conversations = Conversations(
            self.pool,
            most_bytes=int(blocks * size * self._token_bytes * config.conversation_share),
            block_bytes=size * self._token_bytes,
            idle=config.conversation_idle,
            clock=clock,
        )
        self.scheduler = Scheduler(config, self.pool, self.conversations, self.context_limit)
        self.model = PagedModel(
            model_config,
            weights,
            dtype=config.dtype,
            num_blocks=blocks,
            block_size=size,
            context=self.context_limit,
            device=config.device,
        )
        self.vocab_size = model_config.vocab_size
        self.ends = model_config.eos_token_ids
        self._sampler = Sampler(seed)
        self._lengths = LengthMeter()
        self._steps = 0
        self._computed = 0
        self._generated = 0

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self.scheduler.running or self.scheduler.waiting)

    def add(self, request: Generation) -> None:
        """Accepts a request, or raises RequestError at once when it can never (or not now) be served."""
        if not self.has_work:
            self._choose_block_size()
        self.scheduler.add(request)

    def abort(self, request_id: str) -> bool:
        """Drops a request at any stage, between steps. False when it is unknown or already done."""
        self._sampler.forget(request_id)
        return self.scheduler.abort(request_id)

    def abort_one(self, request_id: str, index: int) -> None:
        """Ends one answer of a request between steps; unlike an aborted one it counts as finished."""
        self._sampler.forget(request_id, index)
        self.scheduler.abort_one(request_id, index)

    def step(self) -> list[Output]:
        """Runs one batch; one Output per sequence that got a token. Empty when there is no work."""
        work = self.scheduler.schedule()
        if not work:
            assert not self.has_work, "nothing was scheduled although requests wait"
            return []
        self.model.copy_blocks(self.scheduler.copies)
        logits = self.model.forward(work)
        for part in work:
            self.scheduler.advance(part)
        self._steps += 1
        self._computed += sum(part.count for part in work)
        return self._draw(work, logits)

    def _draw(self, work: list[Work], logits: Tensor) -> list[Output]:
        """The next token of each sequence that has logits; of each of its answers where it forks now."""
        rows: list[int] = []
        sequences: list[Sequence] = []
        for row, sequence in enumerate(part.sequence for part in work if part.samples):
            answers = self.scheduler.fork(sequence)
            sequences += answers
            rows += [row] * len(answers)
        if not rows:
            return []
        if len(rows) > len(logits):
            logits = logits[rows]
        drawn = self._sampler.sample(logits, sequences)
        return [self._accept(*each) for each in zip(sequences, *drawn, strict=True)]

    def _accept(self, sequence: Sequence, token: int, logprobs: TokenLogprobs | None) -> Output:
        sequence.tokens.append(token)
        self._generated += 1
        reason = self._finish_reason(sequence)
        if reason:
            self.scheduler.finish(sequence)
            self._sampler.forget(sequence.request.id, sequence.index)
            self._lengths.note(len(sequence.tokens))
        request = sequence.request
        return Output(request.id, sequence.index, token, reason, sequence.cached_tokens or 0, logprobs)

    def _finish_reason(self, sequence: Sequence) -> FinishReason | None:
        request, token = sequence.request, sequence.tokens[-1]
        if token in self.ends and not request.ignore_eos:
            return "stop"
        if sequence.matcher is not None and sequence.matcher.accept(token):
            return "stop"
        if sequence.generated == request.max_tokens or len(sequence.tokens) >= self.context_limit:
            return "length"
        return None

    def expire(self) -> float | None:
        """Gives up idle conversations; seconds until the next one is due, None for never."""
        return self.conversations.expire()

    def reset_prefix_cache(self) -> None:
        """Forgets all reusable prefixes; requests under way are not disturbed."""
        self.conversations.clear()
        self.pool.reset()

    def _choose_block_size(self) -> None:
        """Takes other blocks when the lengths say so. What was cached is lost, so rarely, and never under way."""
        old = self.pool.block_size
        size = old if self.config.block_size is not None else self._lengths.block_size(old)
        if size != old:
            self.reset_prefix_cache()
            self.pool.reshape(self.pool.total * old // size, size)
            self.conversations.block_bytes = size * self._token_bytes
            self.model.block_size = size

    def stats(self) -> Stats:
        """A snapshot of gauges and counters."""
        return Stats(
            blocks_total=self.pool.total,
            blocks_free=self.pool.free,
            blocks_cached=self.pool.cached,
            blocks_active=self.pool.active,
            blocks_kept=self.pool.kept,
            block_size=self.pool.block_size,
            prefix_queries=self.scheduler.prefix_queries,
            prefix_hits=self.scheduler.prefix_hits,
            preemptions=self.scheduler.preemptions,
            forks=self.scheduler.forks,
            waiting=len(self.scheduler.waiting),
            running=len(self.scheduler.running),
            conversations=len(self.conversations),
            given_up=dict(self.conversations.given_up),
            steps=self._steps,
            computed_tokens=self._computed,
            generated_tokens=self._generated,
        )

    def check(self) -> None:
        """Asserts every invariant of the block pool, the conversations and the scheduler."""
        self.scheduler.check()
