"""A soak of the engine: whatever requests can ask for, in random order, over a pool that is too small.

Several tenants, kept conversations, forks, stop strings, JSON by grammar, seeded sampling, priorities, clients that go
away, deadlines, preemptions and resets; all books are checked after every step. A step takes a second of the soak's
clock, and everything random happens on the engine's thread: a seed repeats a run.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tests.engine.engine_kit import TINY, Answers, expected, tiny_engine, tiny_oracle, tiny_weights, words
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from stratacache.engine.conversations import Context, digest
from stratacache.engine.engine import Engine, Output
from stratacache.engine.errors import DeadlineExceeded
from stratacache.engine.grammar import GrammarCompiler
from stratacache.engine.loop import EngineThread, Job, Progress
from stratacache.engine.sequence import Generation, Grammar, Sampling
from stratacache.engine.tokenizer import Tokenizer

FAMILIES = [words(length, 100 + length) for length in (0, 4, 7, 16, 24)]
TAILS = [words(length, 200 + length) for length in (1, 2, 3, 5, 8, 13)]
TENANTS = (None, None, "a", "b")
LONGEST = 16
SCHEMAS: tuple[dict[str, Any], ...] = (
    {"enum": ["yes", "no", "never"]},
    {"type": "boolean"},
    {"type": "integer", "minimum": -50, "maximum": 1200},
)
OPEN = 24  # requests that are not over
END = 2


def character_tokenizer(folder: Path) -> Tokenizer:
    """A token for each visible ASCII character but the backtick, and the space: with three specials the model's 97."""
    visible = [chr(code) for code in range(0x21, 0x7F) if chr(code) != "`"]
    vocabulary = {token: index for index, token in enumerate(["<pad>", "<s>", "</s>", "Ġ", *visible])}
    backend = Backend(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<pad>", "<s>", "</s>"])
    backend.save(str(folder / "tokenizer.json"))
    return Tokenizer(folder)


@torch.inference_mode()
def oracle_json(prompt: tuple[int, ...], grammar: Grammar) -> list[int]:
    """transformers' greedy answer under the grammar's mask, the whole text computed anew for each token."""
    matcher, answer, done = grammar.begin(), [], False
    while not done and len(answer) < LONGEST:
        logits = tiny_oracle()(torch.tensor([[*prompt, *answer]]), use_cache=False).logits[0, -1]
        matcher.mask(logits)
        answer.append(int(logits.argmax()))
        done = matcher.accept(answer[-1])
    return answer


@cache
def alone(prompt: tuple[int, ...], sampling: Sampling, n: int) -> tuple[list[int], ...]:
    """What an engine that has room and nothing else to do answers to a seeded request."""
    request = Generation("x", prompt, LONGEST, sampling, ignore_eos=True, n=n)
    return tuple(Answers(tiny_engine(num_blocks=128)).run(request).tokens.values())


@cache
def turn(family: int, depth: int) -> tuple[int, ...]:
    """The prompt of a conversation's turn: the turn before, its answer of 4 tokens, 3 new ones."""
    if not depth:
        return words(6, 300 + family)
    before = turn(family, depth - 1)
    return (*before, *expected(before, LONGEST)[:4], *words(3, 310 + 10 * family + depth))


@dataclass(slots=True)
class Case:
    """A request, what each of its answers must be, and what came so far."""

    request: Generation
    tokens: tuple[list[int], ...]
    stops: tuple[str, ...] = ()
    deadline: float | None = None
    got: list[list[int]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    ended: int = 0

    def __post_init__(self) -> None:
        self.got = [[] for _ in self.tokens]
        self.texts = ["" for _ in self.tokens]


class SoakEngine(Engine):
    """An engine that is disturbed before each step, and whose books are checked after it."""

    def __init__(self, clock: Callable[[], float], disturb: Callable[[], None]) -> None:
        config, weights = tiny_weights()
        settings = replace(TINY, num_blocks=16, token_budget=12, max_running=6, conversation_idle=40.0)
        super().__init__(config, weights, settings, seed=0, clock=clock)
        self._disturb = disturb

    def step(self) -> list[Output]:
        self._disturb()
        self.check()
        outputs = super().step()
        self.check()
        return outputs


class Soak:
    """Drives one engine through `total` requests; `run` returns how often each thing happened."""

    def __init__(self, total: int, seed: int, folder: Path) -> None:
        self.total = total
        self.seen: Counter[str] = Counter()
        self._rng = random.Random(seed)
        self._now = 0.0
        self._engine = SoakEngine(lambda: self._now, self._disturb)
        self._tokenizer = character_tokenizer(folder)
        compiler = GrammarCompiler(folder, self._engine.vocab_size, (END,))
        self._grammars = [compiler.compile(schema) for schema in SCHEMAS]
        self._json = cache(lambda prompt, which: oracle_json(prompt, self._grammars[which]))
        self._thread = EngineThread(self._engine, self._tokenizer, clock=lambda: self._now)
        self._open: dict[str, Case] = {}
        self._done = threading.Event()
        self._fault: str | None = None

    def run(self) -> Counter[str]:
        """Runs to the end; raises AssertionError for a wrong answer, a leak or a soak that pressed too little."""
        self._submit()
        self._thread.start()
        self._done.wait()
        self._thread.stop()
        assert self._fault is None, self._fault
        self._engine.check()
        stats = self._engine.stats()
        assert (stats.blocks_active, stats.running, stats.waiting) == (0, 0, 0), "blocks leaked"
        assert stats.preemptions > self.total // 50, "the soak did not press hard enough"
        assert 0 < stats.prefix_hits < stats.prefix_queries
        ends = ("whole", "client gone", "too late")
        assert sum(self.seen[end] for end in ends) == self.seen["requests"] == self.total
        self.seen.update(preemptions=stats.preemptions, forks=stats.forks, steps=stats.steps)
        self.seen.update({f"given up: {why}": count for why, count in stats.given_up.items()})
        return self.seen

    def _disturb(self) -> None:
        """Before a step: a second passes, requests come, clients go."""
        rng = self._rng
        self._now += 1
        for _ in range(rng.choice((0, 0, 1, 1, 2, 4))):
            if len(self._open) < OPEN:
                self._submit()
        if self._open and rng.random() < 0.06:
            name = rng.choice(sorted(self._open))
            del self._open[name]
            self._thread.cancel(name)
            self._end("client gone")
        if rng.random() < 0.01:
            self._engine.reset_prefix_cache()
            self.seen["resets"] += 1

    def _submit(self) -> None:
        number = self.seen["requests"]
        if number == self.total:
            return
        self.seen["requests"] += 1
        name = f"r{number}"
        case = self._open[name] = self._case(name)
        self._thread.submit(Job(case.request, case.stops, lambda part: self._hear(name, part), case.deadline))

    def _case(self, name: str) -> Case:
        rng = self._rng
        makers = (self._plain, self._plain, self._conversation, self._grammar, self._seeded)
        case = rng.choice(makers)(name, rng.choice(TENANTS))
        case.request = replace(case.request, priority=rng.choice((0, 0, 0, -1, 5)))
        if rng.random() < 0.1:
            case.deadline = self._now + rng.randint(1, 30)
        return case

    def _prompt(self) -> tuple[int, ...]:
        return (*self._rng.choice(FAMILIES), *self._rng.choice(TAILS))

    def _plain(self, name: str, tenant: str | None) -> Case:
        """A greedy request, sometimes of several answers, sometimes with a stop string or an end of text."""
        rng, prompt = self._rng, self._prompt()
        count, n = rng.choice((1, 2, 5, 9, 16)), rng.choice((1, 1, 1, 2, 3))
        answer, eos, stops = expected(prompt, LONGEST)[:count], rng.random() < 0.3, ()
        if eos and END in answer:
            answer = answer[: answer.index(END) + 1]
            self.seen["end of text"] += 1
        text = self._tokenizer.decode(answer)
        if len(text) > 3 and rng.random() < 0.3:
            place = rng.randrange(len(text) - 1)
            stops = (text[place : place + 2],)
        salt = rng.choice((tenant, tenant, f"only {name}"))
        sampling = Sampling(temperature=0)
        return Case(Generation(name, prompt, count, sampling, salt, not eos, n), (answer,) * n, stops)

    def _conversation(self, name: str, tenant: str | None) -> Case:
        family, depth = self._rng.randrange(4), self._rng.randrange(5)
        prompt = turn(family, depth)
        system = digest(tenant, "changed" if self._rng.random() < 0.05 else "system")
        context = Context(digest(tenant, f"conversation {family}"), system)
        request = Generation(name, prompt, 4, Sampling(temperature=0), tenant, True, conversation=context)
        self.seen["turns"] += 1
        return Case(request, (expected(prompt, LONGEST)[:4],))

    def _grammar(self, name: str, tenant: str | None) -> Case:
        prompt, which, n = self._prompt(), self._rng.randrange(len(SCHEMAS)), self._rng.choice((1, 1, 2))
        request = Generation(name, prompt, LONGEST, Sampling(temperature=0), tenant, n=n)
        self.seen["JSON"] += 1
        return Case(replace(request, grammar=self._grammars[which]), (self._json(prompt, which),) * n)

    def _seeded(self, name: str, tenant: str | None) -> Case:
        prompt, n = self._prompt(), self._rng.choice((1, 2, 4))
        sampling = Sampling(temperature=1.0, seed=self._rng.randrange(3))
        request = Generation(name, prompt, LONGEST, sampling, tenant, ignore_eos=True, n=n)
        return Case(request, alone(prompt, sampling, n))

    def _hear(self, name: str, part: Progress) -> None:
        """On the engine's thread: a report of a request."""
        case = self._open.get(name)
        if isinstance(part.error, DeadlineExceeded) and case is not None:
            assert case.deadline is not None, f"{name} had no deadline"
            assert case.deadline <= self._now, f"{name} ended before its deadline"
            self._close(name, "too late")
        elif part.error is not None:
            self._fault = str(part.error)
            self._done.set()
        elif case is not None:  # the client is there
            self._take(name, case, part)

    def _take(self, name: str, case: Case, part: Progress) -> None:
        assert part.token is not None, f"{name} reports nothing"
        own = (case.request.salt or "").startswith("only")
        assert part.cached_tokens >= 0, f"{name} has cached {part.cached_tokens}"
        assert not (own and part.cached_tokens), f"{name} found what nobody else may have put there"
        got, wanted = case.got[part.index], case.tokens[part.index]
        got.append(part.token)
        case.texts[part.index] += part.text
        assert got == wanted[: len(got)], f"{name} answers {got}, not {wanted}"
        if part.finish_reason:
            whole = self._tokenizer.decode(wanted)
            cut = min([place for place in map(whole.find, case.stops) if place >= 0], default=len(whole))
            assert case.texts[part.index] == whole[:cut], (
                f"{name} says {case.texts[part.index]!r} of {whole!r}"
            )
            assert cut < len(whole) or len(got) == len(wanted), f"{name} ended early"
            self.seen["stopped"] += cut < len(whole)
            if case.request.grammar is not None and part.finish_reason == "stop":
                json.loads(whole)
            case.ended += 1
            if case.ended == case.request.n:
                self._close(name, "whole")

    def _close(self, name: str, how: str) -> None:
        del self._open[name]
        self._end(how)

    def _end(self, how: str) -> None:
        """Counts an end; an engine with nothing to do would not step, so it always has something."""
        self.seen[how] += 1
        if not self._open:
            self._submit()
        if not self._open:
            self._done.set()
