"""What the semantic tier is asked: the question of a request, where to look for others like it, and who asks. Pure."""

from __future__ import annotations

import hashlib

import msgspec

from stratacache.policy.partition import Scoped, Unfit, has_history, question_of, scope_of
from stratacache.tiers.semantic_parts import Decisions
from stratacache.types import Key, Request

_NEEDS_CONTEXT = frozenset({"context_dependent", "ambiguous"})
"""Kinds of questions that say nothing alone, but all there is to say where the whole conversation is equal."""


class Asked(msgspec.Struct, frozen=True, gc=False):
    """A question that may be answered with another's answer.

    ``whole`` is all but the words of the question; ``alone`` the same without the turns before, None unless there are
    some and the question does not need them. An answer is filed under ``whole``. ``risk`` is what a wrong answer would
    touch, such as health, "" for nothing in particular.
    """

    question: str
    language: str
    kind: str
    why: str
    risk: str
    whole: Scoped
    alone: Scoped | None
    principal: str

    @property
    def scopes(self) -> tuple[tuple[bytes, Scoped], ...]:
        """Where to look: partitions, each with the scope that an entry found there must have."""
        scopes = (self.whole,) if self.alone is None else (self.whole, self.alone)
        return tuple([(scope.partition(self.language), scope) for scope in scopes])


def read_question(request: Request, key: Key, decisions: Decisions) -> Asked | Unfit:
    """The question of ``request``, or why the tier must leave it alone."""
    question = question_of(request)
    if isinstance(question, Unfit):
        return question
    cacheable = decisions.classify(question)
    later = has_history(request)
    if not cacheable.cacheable and not (later and cacheable.kind in _NEEDS_CONTEXT):
        return Unfit(cacheable.reason, cacheable.kind)
    whole = scope_of(key.form)
    if whole is None:
        return Unfit("no_question")
    stands_alone = cacheable.cacheable and cacheable.stands_alone
    return Asked(
        question=question,
        language=decisions.language(question),
        kind=cacheable.kind,
        why=cacheable.reason,
        risk=cacheable.risk,
        whole=whole,
        alone=scope_of(key.form, alone=True) if later and stands_alone else None,
        principal=principal_of(request),
    )


def principal_of(request: Request) -> str:
    """Who asks, as 16 hex digits: the API key or forwarded credential, and the end user that an application names."""
    scope = request.scope
    user = request.body.get("safety_identifier") or request.body.get("user") or ""
    who = msgspec.json.encode([scope.tenant, scope.principal or scope.credential, user], order="sorted")
    return hashlib.sha256(b"stratacache principal\0" + who).hexdigest()[:16]
