"""The core: step = schedule → run → postprocess. Synchronous; one thread owns it."""

from __future__ import annotations

from dataclasses import dataclass

from stratacache.engine.blocks import BlockPool
from stratacache.engine.config import EngineConfig, ModelConfig
from stratacache.engine.model import LlamaModel
from stratacache.engine.sampling import Sampler
from stratacache.engine.scheduler import Scheduler
from stratacache.engine.sequence import FinishReason, Generation, Sequence
from stratacache.engine.weights import Weights


@dataclass(frozen=True, slots=True)
class Output:
    """A new token of a request, and why the request ended if it did."""

    request_id: str
    token: int
    finish_reason: FinishReason | None
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Stats:
    """Counters and gauges at the end of a step. Prefix queries and hits are in tokens."""

    blocks_total: int
    blocks_free: int
    blocks_cached: int
    blocks_active: int
    prefix_queries: int
    prefix_hits: int
    preemptions: int
    waiting: int
    running: int
    steps: int
    computed_tokens: int
    generated_tokens: int


class Engine:
    """Continuous batching over one model. Not safe for concurrent use."""

    def __init__(
        self, model_config: ModelConfig, weights: Weights, config: EngineConfig, seed: int | None = None
    ) -> None:
        self.config = config
        self.context_limit = config.context_limit(model_config)
        blocks = config.pool_blocks(model_config)
        self.pool = BlockPool(blocks)
        self.scheduler = Scheduler(config, self.pool, self.context_limit)
        self.model = LlamaModel(
            model_config,
            weights,
            dtype=config.dtype,
            num_blocks=blocks,
            block_size=config.block_size,
            context=self.context_limit,
        )
        self._eos = model_config.eos_token_id
        self._sampler = Sampler(seed)
        self._steps = 0
        self._computed = 0
        self._generated = 0

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self.scheduler.running or self.scheduler.waiting)

    def add(self, request: Generation) -> None:
        """Accepts a request, or raises RequestError at once when it can never (or not now) be served."""
        self.scheduler.add(request)

    def abort(self, request_id: str) -> bool:
        """Drops a request at any stage, between steps. False when it is unknown or already done."""
        self._sampler.forget(request_id)
        return self.scheduler.abort(request_id)

    def step(self) -> list[Output]:
        """Runs one batch; one Output per sequence that got a token. Empty when there is no work."""
        work = self.scheduler.schedule()
        if not work:
            assert not self.has_work, "nothing was scheduled although requests wait"
            return []
        logits = self.model.forward(work)
        for part in work:
            self.scheduler.advance(part)
        self._steps += 1
        self._computed += sum(part.count for part in work)
        sampling = [part.sequence for part in work if part.samples]
        if not sampling:
            return []
        tokens = self._sampler.sample(logits, [(one.request.id, one.request.sampling) for one in sampling])
        return [self._accept(sequence, token) for sequence, token in zip(sampling, tokens, strict=True)]

    def _accept(self, sequence: Sequence, token: int) -> Output:
        sequence.tokens.append(token)
        self._generated += 1
        reason = self._finish_reason(sequence)
        if reason:
            self.scheduler.finish(sequence)
            self._sampler.forget(sequence.request.id)
        return Output(sequence.request.id, token, reason, sequence.cached_tokens or 0)

    def _finish_reason(self, sequence: Sequence) -> FinishReason | None:
        request = sequence.request
        if sequence.tokens[-1] == self._eos and not request.ignore_eos:
            return "stop"
        if sequence.generated == request.max_tokens or len(sequence.tokens) >= self.context_limit:
            return "length"
        return None

    def reset_prefix_cache(self) -> None:
        """Forgets all reusable prefixes; requests under way are not disturbed."""
        self.pool.reset()

    def stats(self) -> Stats:
        """A snapshot of gauges and counters."""
        return Stats(
            blocks_total=self.pool.total,
            blocks_free=self.pool.free,
            blocks_cached=self.pool.cached,
            blocks_active=self.pool.active,
            prefix_queries=self.scheduler.prefix_queries,
            prefix_hits=self.scheduler.prefix_hits,
            preemptions=self.scheduler.preemptions,
            waiting=len(self.scheduler.waiting),
            running=len(self.scheduler.running),
            steps=self._steps,
            computed_tokens=self._computed,
            generated_tokens=self._generated,
        )

    def check(self) -> None:
        """Asserts every invariant of the block pool and the scheduler."""
        self.scheduler.check()
