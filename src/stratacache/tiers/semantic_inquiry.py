"""One look-up of the semantic tier: what it is to find, and the record of how it goes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import msgspec

from stratacache.policy.partition import Scoped, Unfit
from stratacache.ports import Clock
from stratacache.tiers.semantic_parts import Examined
from stratacache.tiers.semantic_question import Asked
from stratacache.types import Candidate, Entry, Hit

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

    ``scope``: what its entry must have in common with the request that ``asked``. ``same``: by its wording it is the
    question asked, which leaves nothing to estimate.
    """

    candidate: Candidate
    scope: Scoped
    probability: float
    asked: Asked
    same: bool = False


class Look(msgspec.Struct):
    """One candidate and what was found out about it, as far as it came; ``verdict`` is ``best`` or why not.

    ``verified``: the verifier's probability without the similarity; ``probability`` is what counts.
    """

    question: str
    entry: str
    similarity: float
    guards: str
    findings: tuple[str, ...] = ()
    verified: float | None = None
    probability: float | None = None
    verdict: str = ""


class Trace(msgspec.Struct, frozen=True):
    """How a look-up went, for ``explain``: ``why`` is the classifier's word, ``looks`` are the candidates."""

    question: str = ""
    kind: str = ""
    why: str = ""
    risk: str = ""
    language: str = ""
    partitions: tuple[str, ...] = ()
    looks: tuple[Look, ...] = ()


class Best(msgspec.Struct, frozen=True):
    """The candidate that serves most probably of those that may answer at all, with its entry.

    ``sure``: no guard has doubts about it.
    """

    rival: Rival
    entry: Entry
    sure: bool = True


class Finding(msgspec.Struct, frozen=True):
    """What was found for all equal requests: the ``best`` candidate, or the ``reason`` why there is none.

    ``asked`` is None when the question is none for the tier. ``witness``: one that only lacks corroboration, which a
    fresh answer beside it may give.
    """

    asked: Asked | None
    best: Best | None
    reason: str
    stages: Stages
    trace: Trace
    witness: Rival | None = None


class Near(msgspec.Struct, frozen=True):
    """What a look-up comes to for one request: a ``hit``, or the ``reason`` why there is none.

    ``rival``: whose answer is worth comparing with a fresh one, whatever it was that answered; ``checked``: the weight
    of that comparison for a hit that was drawn for it, else 0. ``bound``: the numbers behind the ruling.
    """

    hit: Hit | None
    reason: str
    stages: Stages = ()
    rival: Rival | None = None
    checked: float = 0.0
    trace: Trace = Trace()
    bound: Mapping[str, float] = {}


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
        self.embedder = ""  # the fingerprint of the one that the similarities are by
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

    def unfit(self, found: Unfit) -> Finding:
        """The result when the question is none for the tier."""
        trace = Trace(kind=found.kind, why=found.reason) if found.kind else Trace()
        return Finding(None, None, found.reason, tuple(self._stages.items()), trace)

    def end(self, best: Best | None, reason: str, witness: Rival | None = None) -> Finding:
        """The result."""
        asked = self.asked
        if asked is None:
            return Finding(None, None, reason, (), Trace())
        trace = Trace(
            question=asked.question,
            kind=asked.said.kind,
            why=asked.said.reason,
            risk=asked.risk,
            language=asked.language,
            partitions=tuple([partition.hex() for partition, _ in asked.scopes]),
            looks=tuple(self.looks),
        )
        return Finding(asked, best, reason, tuple(self._stages.items()), trace, witness)
