"""What the semantic tier is asked: the question of a request, where to look for others like it, and who asks. Pure."""

from __future__ import annotations

import hashlib

import msgspec

from stratacache.policy.partition import Scoped, Unfit, has_history, question_of, scope_of
from stratacache.ports import Vector
from stratacache.tiers.semantic_parts import Cacheable, Decisions
from stratacache.types import Key, Request

_NEEDS_CONTEXT = frozenset({"context_dependent", "ambiguous"})
"""Kinds of questions that say nothing alone, but all there is to say where the whole conversation is equal."""


class Asked(msgspec.Struct, frozen=True, gc=False):
    """A question that may be answered with another's answer.

    ``whole`` is all but the words of the question; ``alone`` the same without the turns before, None unless there are
    some and the question does not need them. An answer is filed under ``whole``.
    """

    question: str
    language: str
    said: Cacheable
    whole: Scoped
    alone: Scoped | None
    principal: str

    @property
    def risk(self) -> str:
        """What a wrong answer would touch, such as health; "" for nothing in particular."""
        return self.said.risk

    @property
    def scopes(self) -> tuple[tuple[bytes, Scoped], ...]:
        """Where to look: partitions, each with the scope that an entry found there must have."""
        scopes = (self.whole,) if self.alone is None else (self.whole, self.alone)
        return tuple([(scope.partition(self.language), scope) for scope in scopes])


def read_question(request: Request, key: Key, decisions: Decisions) -> Asked | Unfit:
    """The question of ``request`` by its words, or why the tier must leave it alone."""
    question = question_of(request)
    if isinstance(question, Unfit):
        return question
    said = decisions.classify(question)
    later = has_history(request)
    if not _may_go_on(said, later=later):
        return Unfit(said.reason, said.kind)
    whole = scope_of(key.form)
    if whole is None:
        return Unfit("no_question")
    return Asked(
        question=question,
        language=decisions.language(question),
        said=said,
        whole=whole,
        alone=scope_of(key.form, alone=True) if later and _stands_alone(said) else None,
        principal=principal_of(request),
    )


def confirmed(
    asked: Asked, request: Request, decisions: Decisions, vector: Vector, embedder: str
) -> Asked | Unfit:
    """The same once the question's vector is known, by the embedder of that fingerprint."""
    said = decisions.confirm(asked.said, vector, embedder)
    if not _may_go_on(said, later=has_history(request)):
        return Unfit(said.reason, said.kind)
    return msgspec.structs.replace(asked, said=said, alone=asked.alone if _stands_alone(said) else None)


def _may_go_on(said: Cacheable, *, later: bool) -> bool:
    return said.cacheable or (later and said.kind in _NEEDS_CONTEXT)


def _stands_alone(said: Cacheable) -> bool:
    return said.cacheable and said.stands_alone


def principal_of(request: Request) -> str:
    """Who asks, as 16 hex digits: the API key or forwarded credential, and the end user that an application names."""
    scope = request.scope
    user = request.body.get("safety_identifier") or request.body.get("user") or ""
    who = msgspec.json.encode([scope.tenant, scope.principal or scope.credential, user], order="sorted")
    return hashlib.sha256(b"stratacache principal\0" + who).hexdigest()[:16]
