"""Doubles of the semantic tier's parts: models by a table, decisions by a rule that fits in a line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

import msgspec
import numpy as np

from stratacache.errors import ModelError, VectorIndexError
from stratacache.policy.key import exact_key
from stratacache.policy.normalise import normalise
from stratacache.policy.partition import Unfit
from stratacache.ports import Similarity, Vector, Verdict
from stratacache.tiers.semantic_parts import Decisions, Source
from stratacache.tiers.semantic_question import Asked, read_question
from stratacache.types import CacheControl, Candidate, Entry, IndexStats, Key, Question, Request, Scope
from stratacache.wiring import SemanticModels
from stratacache.wiring.embedders import Choice as EmbedderChoice
from stratacache.wiring.embedders import Opened

Choice = Literal["serve", "explore", "reject"]


class Class(msgspec.Struct, frozen=True):
    cacheable: bool
    kind: str
    reason: str
    stands_alone: bool
    risk: str = ""


class Finding(msgspec.Struct, frozen=True):
    guard: str
    verdict: str
    detail: str


class Examination(msgspec.Struct, frozen=True):
    verdict: Literal["veto", "pass", "unsure"]
    findings: tuple[Finding, ...] = ()


class Ruling(msgspec.Struct, frozen=True):
    choice: Choice
    threshold: float = 0.9
    checked: float = 0.0


def classify(question: str) -> Class:
    """``today`` is time-bound, ``it`` needs context, ``@`` is personal data; all else is a fact, about ``pills`` a
    medical one."""
    words = question.lower().strip("?").split()
    if "today" in words:
        return Class(False, "time_bound", "time_bound", True)
    if "it" in words:
        return Class(False, "context_dependent", "context_dependent", False)
    if "@" in question:
        return Class(False, "personal", "personal_data", True)
    return Class(True, "fact", "fact", True, "medical" if "pills" in words else "")


def examine(asked: str, stored: str) -> Examination:
    """``not`` in one of them is a veto, ``maybe`` a doubt."""
    if ("not" in asked.split()) != ("not" in stored.split()):
        return Examination("veto", (Finding("negation", "veto", "not / "),))
    return Examination("unsure" if "maybe" in asked.split() else "pass")


def confirm(said: Class, vector: Vector, embedder: str) -> Class:
    """A vector that points down is that of a personal question, whatever the words."""
    return Class(False, "personal", "personal", True) if vector[1] < -0.9 else said


DECISIONS = Decisions(classify, confirm, lambda text: "en" if text.isascii() else "zh", examine)


class Embedder:
    """Two numbers a text: the angle of a hash, or what ``table`` says."""

    dimension = 2

    def __init__(self) -> None:
        self.fingerprint = "table/1"
        self.angles: dict[str, float] = {}
        self.asked: list[str] = []
        self.fault: BaseException | None = None
        self.before: Callable[[], Awaitable[Any]] | None = None

    async def embed(self, text: str) -> Vector:
        self.asked.append(text)
        if self.before is not None:
            await self.before()
        if self.fault is not None:
            raise self.fault
        angle = self.angles.get(text, 0.0)
        return np.array([np.cos(angle), np.sin(angle)], dtype=np.float32)

    async def close(self) -> None:
        pass


class Verifier:
    """``table`` of pairs to probabilities; what is not in it has ``otherwise``."""

    fingerprint = "table/1"

    def __init__(self) -> None:
        self.table: dict[tuple[str, str], float] = {}
        self.otherwise = 0.0
        self.asked: list[tuple[str, str]] = []
        self.similarities: list[Similarity] = []
        self.fault: BaseException | None = None

    async def verify(self, asked: str, stored: str, similarity: Similarity) -> Verdict:
        self.asked.append((asked, stored))
        self.similarities.append(similarity)
        if self.fault is not None:
            raise self.fault
        probability = self.table.get((asked, stored), self.otherwise)
        return Verdict(probability, probability / 2)

    async def close(self) -> None:
        pass


def opens(choice: EmbedderChoice) -> Opened:
    """An embedder of another fingerprint for each name."""
    embedder = Embedder()
    embedder.fingerprint = f"{choice.embedder}/1"
    return Opened(embedder)


def models(
    embedder: Embedder | None = None, verifier: Verifier | None = None, bound: FixedBound | None = None
) -> SemanticModels:
    """For a gateway."""
    return SemanticModels(
        embedder or Embedder(), verifier or Verifier(), bound or FixedBound(), DECISIONS, open=opens
    )


class MissingVerifier(Verifier):
    async def verify(self, asked: str, stored: str, similarity: Similarity) -> Verdict:
        raise ModelError("no weights", code="verifier_missing")


class Index:
    """Compares with all."""

    def __init__(self) -> None:
        self.held: dict[bytes, tuple[Question, Vector]] = {}
        self.fault: BaseException | None = None

    async def search(self, partition: bytes, vector: Vector, count: int) -> Sequence[Candidate]:
        if self.fault is not None:
            raise self.fault
        found = [Candidate(q, float(v @ vector)) for q, v in self.held.values() if q.partition == partition]
        return sorted(found, key=lambda one: -one.similarity)[:count]

    async def add(self, question: Question, vector: Vector) -> None:
        if self.fault is not None:
            raise self.fault
        self.held[question.digest] = (question, vector)

    async def remove(self, digests: Sequence[bytes]) -> None:
        for digest in digests:
            self.held.pop(digest, None)

    async def stats(self) -> IndexStats:
        return IndexStats(len(self.held), len({q.partition for q, _ in self.held.values()}), 0)

    async def check(self) -> None:
        for digest, (question, _) in self.held.items():
            if digest != question.digest:
                raise VectorIndexError("filed under another digest")

    async def close(self) -> None:
        pass


class FixedBound:
    """Serves from ``serves`` on, explores from ``explores`` on, and checks every hit at weight ``checks``, if any."""

    def __init__(self, serves: float = 0.9, explores: float = 0.5, checks: float = 0.0) -> None:
        self.serves = serves
        self.explores = explores
        self.checks = checks
        self.looks = 0
        self.decided: list[tuple[str, bytes, float, str, str]] = []
        self.observed: list[tuple[str, bytes, float, bool, str, float]] = []
        self.forgotten: list[bytes] = []

    def looked(self, scene: str, risk: str = "") -> None:
        self.looks += 1

    def decide(
        self, scene: str, entry: bytes, probability: float, draw: float, *, risk: str = "", language: str = ""
    ) -> Ruling:
        self.decided.append((scene, entry, probability, risk, language))
        if probability >= self.serves:
            return Ruling("serve", self.serves, self.checks)
        return Ruling("explore" if probability >= self.explores else "reject", self.serves)

    def observe(
        self,
        scene: str,
        entry: bytes,
        probability: float,
        right: bool,
        *,
        source: Source = "explored",
        weight: float = 1.0,
        risk: str = "",
        language: str = "",
    ) -> None:
        self.observed.append((scene, entry, probability, right, source, weight))

    def forget(self, entry: bytes) -> None:
        self.forgotten.append(entry)

    def explain(
        self, scene: str, entry: bytes, probability: float, *, risk: str = "", language: str = ""
    ) -> dict[str, float]:
        return {"adjusted": probability, "threshold": self.serves}


def chat(
    *messages: Any, scope: Scope | None = None, control: CacheControl | None = None, **fields: Any
) -> Request:
    """A chat request; a text is what a user says."""
    said = [{"role": "user", "content": m} if isinstance(m, str) else m for m in messages]
    return Request(
        endpoint="chat.completions",
        model="m",
        resolved_model="m",
        upstream="u",
        body={"model": "m", "messages": said, **fields},
        scope=scope or Scope(),
        control=control or CacheControl(),
    )


def keyed(request: Request) -> Key:
    return exact_key(request)


def entry_of(
    request: Request, now: float, *, text: str = "An answer.", life: float = 100.0, **fields: Any
) -> Entry:
    """A stored answer to ``request``."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    body = msgspec.json.encode({"id": "c", "object": "chat.completion", "choices": [choice]})
    return Entry(keyed(request).form, body, created_at=now, expires_at=now + life, **fields)


def stored_question(request: Request, now: float, *, life: float = 100.0, **fields: Any) -> Question:
    """What the index is told of it."""
    key = keyed(request)
    asked = read_question(request, key, DECISIONS)
    assert not isinstance(asked, Unfit)
    assert isinstance(asked, Asked)
    assert normalise(asked.question)
    values = {
        "digest": key.digest,
        "partition": asked.whole.partition(asked.language),
        "text": asked.question,
        "created_at": now,
        "expires_at": now + life,
        "principal": asked.principal,
        **fields,
    }
    return Question(**values)
