"""Load in steps, each faster than the one before, until an objective breaks; per tier what was answered, how fast."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec

from stratacache.lab.load_client import OpenLoop, Target, Timed
from stratacache.lab.load_echo import family_in
from stratacache.lab.load_traffic import Ask
from stratacache.lab.simulate import percentile

FASTEST = 100_000.0
"""Requests a second; no step asks faster."""
EXAMPLES = 20
"""Different wrong answers that are told in words, of a step and of the whole."""


class Objective(msgspec.Struct, frozen=True):
    """``latency``: seconds that this ``share`` of a step's requests must keep; ``errors``: the share that may fail."""

    latency: float = 1.0
    share: float = 0.99
    errors: float = 0.01


class Ramp(msgspec.Struct, frozen=True):
    """``rate``: requests a second in the first step; each further one is ``factor`` times as fast."""

    rate: float = 50.0
    factor: float = 1.5
    steps: int = 12
    seconds: float = 10.0


class Times(msgspec.Struct, frozen=True):
    """Seconds from when a request was due until its answer was there."""

    requests: int
    p50: float
    p90: float
    p99: float


class Hits(msgspec.Struct, frozen=True):
    """``answered`` from cache; ``possible``: what a cache that knows which questions are the same could have answered.

    ``wrong`` of the ``judged`` hits gave the answer to another question: 0 of 0 when the model is no echo.
    """

    requests: int
    answered: int
    possible: int
    judged: int
    wrong: int


class Saved(msgspec.Struct, frozen=True):
    """Tokens of the answers that came from cache, as their usage tells them."""

    prompt: int = 0
    completion: int = 0


class Price(msgspec.Struct, frozen=True):
    """Money for a million tokens."""

    prompt: float
    completion: float

    def of(self, saved: Saved) -> float:
        return (saved.prompt * self.prompt + saved.completion * self.completion) / 1e6


class Wrong(msgspec.Struct, frozen=True):
    """A question, and the one whose answer it got."""

    asked: str
    answered: str


class Step(msgspec.Struct, frozen=True):
    """``late``: the 99th percentile of how long after its time a request was sent, most of it for want of a connection.

    ``broke``: why the objective was missed, None when it was kept.
    """

    rate: float
    throughput: float
    errors: int
    times: Times
    late: float
    tiers: dict[str, Times]
    hits: Hits
    saved: Saved
    broke: str | None
    examples: tuple[Wrong, ...] = ()


class Load(msgspec.Struct, frozen=True):
    """``sustained``: the fastest rate that kept the objective, 0 when none did. ``baseline``: without the cache."""

    url: str
    objective: Objective
    sustained: float
    steps: tuple[Step, ...]
    total: Hits
    saved: Saved
    baseline: Times | None = None
    examples: tuple[Wrong, ...] = ()
    saved_money: float | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Message(msgspec.Struct):
    content: Any = None


class _Choice(msgspec.Struct):
    message: _Message = msgspec.field(default_factory=_Message)


class _Answer(msgspec.Struct):
    id: str = ""
    choices: list[_Choice] = []
    usage: _Usage | None = None


class _Seen(msgspec.Struct):
    """One answer as it was read: ``tier`` that gave it, the family told, its usage."""

    tier: str
    family: str | None
    usage: _Usage


class LoadTest:
    """``asked`` are sent one after the other; families and answers are remembered from step to step."""

    def __init__(
        self, target: Target, asked: Iterator[Ask], model: str, objective: Objective, seed: int = 1
    ) -> None:
        self._target, self._asked, self._model, self._objective = target, asked, model, objective
        self._rng = random.Random(seed)  # noqa: S311 - arrivals, not secrets
        self._families: set[str] = set()
        self._ids: set[str] = set()
        self._decoder = msgspec.json.Decoder(_Answer)

    async def ramp(self, ramp: Ramp, progress: Callable[[Step], None]) -> tuple[Step, ...]:
        """Steps until the objective breaks or all are done; the one that broke it is the last."""
        steps: list[Step] = []
        for number in range(ramp.steps):
            step = await self.step(min(FASTEST, ramp.rate * ramp.factor**number), ramp.seconds)
            steps.append(step)
            progress(step)
            if step.broke is not None:
                break
        return tuple(steps)

    async def step(self, rate: float, seconds: float) -> Step:
        """Poisson arrivals at ``rate`` a second."""
        asked, results = await self._send(rate, seconds)
        return self._assess(rate, seconds, asked, results)

    async def replay(self, trace: Sequence[tuple[float, Ask]]) -> Step:
        """Questions at times of their own, in seconds; the step's rate is their mean."""
        asked = [ask for _, ask in trace]
        seconds = max(1.0, trace[-1][0])
        results = await OpenLoop(self._target).run([(due, self._body(ask)) for due, ask in trace])
        return self._assess(len(trace) / seconds, seconds, asked, results)

    async def baseline(self, target: Target, rate: float, seconds: float) -> Times:
        """The same kind of traffic at another address: the model itself."""
        kept, self._target = self._target, target
        try:
            _, results = await self._send(rate, seconds)
        finally:
            self._target = kept
        return times_of(results)

    async def _send(self, rate: float, seconds: float) -> tuple[list[Ask], list[Timed]]:
        dues = list(self._arrivals(rate, seconds))
        asked = list(islice(self._asked, len(dues)))
        bodies = [self._body(ask) for ask in asked]
        return asked, await OpenLoop(self._target).run(list(zip(dues, bodies, strict=True)))

    def _arrivals(self, rate: float, seconds: float) -> Iterator[float]:
        due = self._rng.expovariate(rate)
        while due < seconds:
            yield due
            due += self._rng.expovariate(rate)

    def _body(self, ask: Ask) -> bytes:
        messages = [{"role": "user", "content": ask.text}]
        return msgspec.json.encode(
            {"model": self._model, "messages": messages, "temperature": 0, "max_tokens": 128}
        )

    def _assess(self, rate: float, seconds: float, asked: list[Ask], results: list[Timed]) -> Step:
        tiers: dict[str, list[Timed]] = {}
        answered = possible = judged = prompt = completion = 0
        wrong: list[Wrong] = []
        for ask, result in sorted(zip(asked, results, strict=True), key=lambda pair: pair[1].done):
            if result.status != 200:
                continue
            seen = self._read(result)
            tiers.setdefault(seen.tier, []).append(result)
            if seen.tier != "model":
                answered += 1
                prompt += seen.usage.prompt_tokens
                completion += seen.usage.completion_tokens
                judged += seen.family is not None
                if seen.family is not None and seen.family != ask.family:
                    wrong.append(Wrong(ask.text, seen.family))
        for ask in asked:
            possible += ask.family in self._families
            self._families.add(ask.family)
        errors = sum(result.status != 200 for result in results)
        end = max([seconds, *(result.done for result in results)])
        times = times_of(results)
        return Step(
            rate=rate,
            throughput=(len(results) - errors) / end,
            errors=errors,
            times=times,
            late=percentile([result.late for result in results], 0.99) if results else 0.0,
            tiers={tier: times_of(found) for tier, found in sorted(tiers.items())},
            hits=Hits(len(results), answered, possible, judged, len(wrong)),
            saved=Saved(prompt, completion),
            broke=self._broke(results, errors),
            examples=tuple(dict.fromkeys(wrong))[:EXAMPLES],
        )

    def _read(self, result: Timed) -> _Seen:
        """By the gateway's headers; of another server an answer whose id was seen before comes from a cache."""
        try:
            answer = self._decoder.decode(result.body)
        except msgspec.DecodeError:
            answer = _Answer()
        known = bool(answer.id) and answer.id in self._ids
        self._ids.add(answer.id)
        told = result.headers.get(b"x-strata-cache")
        if told is not None:
            tier = (
                result.headers.get(b"x-strata-tier", b"none").decode("latin-1")
                if told in (b"hit", b"stale")
                else "model"
            )
        else:
            tier = "cache" if known else "model"
        content = answer.choices[0].message.content if answer.choices else None
        family = family_in(content) if isinstance(content, str) else None
        return _Seen(tier, family, answer.usage or _Usage())

    def _broke(self, results: list[Timed], errors: int) -> str | None:
        aim = self._objective
        if not results:
            return None
        if errors > aim.errors * len(results):
            failed = Counter(result.status for result in results if result.status != 200)
            status = failed.most_common(1)[0][0]
            return f"{errors / len(results):.0%} failed, {f'status {status}' if status else 'no answer'}"
        slow = percentile([result.done - result.due for result in results], aim.share)
        if slow > aim.latency:
            return f"p{aim.share * 100:g} {slow * 1e3:,.0f} ms"
        return None


def times_of(results: Sequence[Timed]) -> Times:
    taken = [result.done - result.due for result in results]
    if not taken:
        return Times(0, 0.0, 0.0, 0.0)
    return Times(len(taken), *(percentile(taken, share) for share in (0.5, 0.9, 0.99)))


def summed(
    url: str,
    objective: Objective,
    steps: tuple[Step, ...],
    baseline: Times | None = None,
    price: Price | None = None,
) -> Load:
    """The whole run."""
    counts = [sum(getattr(step.hits, name) for step in steps) for name in Hits.__struct_fields__]
    kept = [step.rate for step in steps if step.broke is None]
    saved = Saved(sum(step.saved.prompt for step in steps), sum(step.saved.completion for step in steps))
    examples = tuple(dict.fromkeys(one for step in steps for one in step.examples))[:EXAMPLES]
    return Load(
        url=url,
        objective=objective,
        sustained=max(kept, default=0.0),
        steps=steps,
        total=Hits(*counts),
        saved=saved,
        baseline=baseline,
        examples=examples,
        saved_money=price.of(saved) if price is not None else None,
    )
