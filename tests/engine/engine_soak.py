"""A soak of the engine: random arrivals, shared prefixes, aborts, preemptions, resets; checked every step."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.engine.engine_kit import expected, greedy, step, tiny_engine, words

from stratacache.engine.engine import Engine

FAMILIES = [words(length, 100 + length) for length in (0, 4, 7, 16, 24)]
TAILS = [words(length, 200 + length) for length in (1, 2, 3, 5, 8, 13)]


@dataclass
class Soak:
    """Drives one engine through `total` requests; every greedy answer must equal the oracle's."""

    total: int
    seed: int
    answers: dict[str, list[int]] = field(default_factory=dict)
    wanted: dict[str, list[int]] = field(default_factory=dict)
    aborted: int = 0
    finished: int = 0

    def run(self) -> None:
        """Runs to the end and asserts that no block is held."""
        rng = random.Random(self.seed)
        engine = tiny_engine(num_blocks=14, token_budget=12, max_running=5)
        started = 0
        while started < self.total or engine.has_work:
            room = started < self.total and engine.stats().waiting < 20
            for _ in range(rng.choice((0, 0, 1, 1, 2, 4)) if room else 0):
                self._start(engine, rng, f"r{started}")
                started += 1
            self._disturb(engine, rng)
            self._step(engine)
        stats = engine.stats()
        assert stats.blocks_active == 0
        assert stats.preemptions > self.total // 50, "the soak did not press hard enough"
        assert 0 < stats.prefix_hits < stats.prefix_queries
        assert self.finished + self.aborted == started
        assert not self.wanted

    def _start(self, engine: Engine, rng: random.Random, name: str) -> None:
        prompt = (*rng.choice(FAMILIES), *rng.choice(TAILS))
        tokens = rng.choice((1, 2, 5, 9, 16))
        salt = rng.choice((None, None, None, "a"))
        engine.add(greedy(name, prompt, tokens, salt))
        self.wanted[name] = expected(prompt, 16)[:tokens]
        self.answers[name] = []

    def _disturb(self, engine: Engine, rng: random.Random) -> None:
        if self.wanted and rng.random() < 0.06:
            name = rng.choice(sorted(self.wanted))
            assert engine.abort(name)
            del self.wanted[name]
            self.aborted += 1
            engine.check()
        if rng.random() < 0.01:
            engine.reset_prefix_cache()
            engine.check()

    def _step(self, engine: Engine) -> None:
        for output in step(engine):
            name = output.request_id
            self.answers[name].append(output.token)
            assert output.cached_tokens >= 0
            if output.finish_reason:
                assert self.answers.pop(name) == self.wanted.pop(name), f"{name} answered wrongly"
                self.finished += 1
