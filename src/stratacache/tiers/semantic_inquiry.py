"""One look-up of the semantic tier: what it is to find, and the record of how it goes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec

from stratacache.policy.partition import Scoped
from stratacache.ports import Clock
from stratacache.tiers.semantic_parts import Examined, Ruled
from stratacache.tiers.semantic_question import Asked
from stratacache.types import Candidate, Hit

Stages = tuple[tuple[str, float], ...]


class Terms(msgspec.Struct, frozen=True, gc=False):
    """What a request asks of an entry: the tags that it must carry, without the bucket of the asker's own key; its age
    and remaining life in seconds; the confidence in it."""

    scene: str
    tags: tuple[str, ...]
    max_age: float
    min_fresh: float
    min_confidence: float = 0.0


class Rival(msgspec.Struct, frozen=True, gc=False):
    """A candidate whose answer may be the right one: a fresh answer beside it shows whether it is.

    ``scope``: what its entry must have in common with the request. ``principal``: who asked.
    """

    candidate: Candidate
    scope: Scoped
    probability: float
    principal: str


class Look(msgspec.Struct):
    """One candidate and what was found out about it, as far as it came; ``verdict`` is ``hit`` or why not."""

    question: str
    entry: str
    similarity: float
    guards: str
    findings: tuple[str, ...] = ()
    probability: float | None = None
    choice: str | None = None
    threshold: float | None = None
    verdict: str = ""


class Trace(msgspec.Struct, frozen=True):
    """How a look-up went, for ``explain``: ``why`` is the classifier's word, ``looks`` are the candidates."""

    question: str = ""
    kind: str = ""
    why: str = ""
    language: str = ""
    partitions: tuple[str, ...] = ()
    looks: tuple[Look, ...] = ()


class Near(msgspec.Struct, frozen=True):
    """What a look-up found: a ``hit``, or the ``reason`` why there is none. ``rival``: who came nearest, if anybody."""

    hit: Hit | None
    reason: str
    stages: Stages = ()
    rival: Rival | None = None
    trace: Trace = Trace()


class Contender(msgspec.Struct, frozen=True, gc=False):
    """A candidate that no guard vetoed. ``same``: it is the same question; ``sure``: no guard has doubts."""

    candidate: Candidate
    scope: Scoped
    look: Look
    same: bool
    sure: bool


class Inquiry:
    """Takes down a look-up as it goes."""

    def __init__(self, clock: Clock) -> None:
        self.asked: Asked | None = None
        self.looks: list[Look] = []
        self.rival: Rival | None = None
        self._clock = clock
        self._stages: dict[str, float] = {}

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Around what takes time; of several stages of one name the times add up."""
        started = self._clock.monotonic()
        try:
            yield
        finally:
            self._stages[name] = self._stages.get(name, 0.0) + self._clock.monotonic() - started

    def examined(
        self, candidate: Candidate, scope: Scoped, said: Examined, *, same: bool
    ) -> Contender | None:
        """Note what the guards say; None when they veto. They are not heard on a question that is the same."""
        verdict = "same" if same else said.verdict
        findings = tuple([f"{one.guard} {one.verdict}: {one.detail}" for one in said.findings])
        look = Look(
            candidate.question.text, candidate.question.digest.hex(), candidate.similarity, verdict, findings
        )
        self.looks.append(look)
        if verdict == "veto":
            look.verdict = "vetoed"
            return None
        return Contender(candidate, scope, look, same, verdict != "unsure")

    def ruled(self, asked: Asked, one: Contender, probability: float, ruling: Ruled) -> None:
        """Note what the bound says. The first that it does not reject is the rival of a fresh answer."""
        one.look.probability = probability
        one.look.choice = ruling.choice
        one.look.threshold = ruling.threshold
        if self.rival is None and ruling.choice != "reject":
            self.rival = Rival(one.candidate, one.scope, probability, asked.principal)

    def end(self, hit: Hit | None, reason: str) -> Near:
        """The result."""
        asked = self.asked
        trace = (
            Trace()
            if asked is None
            else Trace(
                question=asked.question,
                kind=asked.kind,
                why=asked.why,
                language=asked.language,
                partitions=tuple([partition.hex() for partition, _ in asked.scopes]),
                looks=tuple(self.looks),
            )
        )
        return Near(hit, reason, tuple(self._stages.items()), self.rival, trace)
