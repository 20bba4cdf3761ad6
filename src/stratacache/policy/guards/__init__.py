"""Guards: what plainly tells two questions apart, or leaves it to the verifier, explained for people.

Embeddings place "30 days" beside "60 days" and "enable" beside "disable". A guard knows one such difference and says
*veto* (the same answer cannot serve both), *unsure* (something differs; let the verifier rule) or *pass* (it looked,
and what it knows agrees). A veto is final, so whatever a true paraphrase may do is no veto: a doubt costs one
verification, a false veto costs a hit for good. ``docs/guide/guards.md`` lists the rules with examples.
"""

from __future__ import annotations

from stratacache.policy.guards import (
    additions,
    antonyms,
    characters,
    circumstances,
    comparison,
    conditions,
    connectives,
    direction,
    entities,
    identifiers,
    instructions,
    language,
    negation,
    numbers,
    persons,
    quantifiers,
    question,
    roles,
)
from stratacache.policy.guards.finding import Examination, Finding, Verdict
from stratacache.policy.guards.pair import Pair
from stratacache.policy.guards.reading import MAX_CHARS, read, visible

_GUARDS = (
    language.check,
    characters.check,
    instructions.check,
    additions.check,
    numbers.check,
    identifiers.check,
    entities.check,
    negation.check,
    antonyms.check,
    comparison.check,
    conditions.check,
    direction.check,
    roles.check,
    persons.check,
    quantifiers.check,
    circumstances.check,
    connectives.check,
    question.check,
)


def examine(asked: str, stored: str) -> Examination:
    """What all guards say of one pair.

    Pure, never raises, linear in the texts' lengths: at most ``MAX_CHARS`` characters of each are looked at, and what
    is longer is unsure at best. Symmetric but for ``additions`` and ``instructions``: exchanging the
    arguments changes no other finding, only the sides in ``detail``.
    """
    if asked == stored:
        return Examination("pass", ())
    pair = Pair(read(asked), read(stored))
    findings = [finding for guard in _GUARDS for finding in guard(pair)]
    if pair.asked.cut or pair.stored.cut:
        findings.append(Finding("length", "unsure", f"only {MAX_CHARS} characters were compared"))
    return Examination(_verdict(findings), tuple(findings))


def _verdict(findings: list[Finding]) -> Verdict:
    said = {finding.verdict for finding in findings}
    if "veto" in said:
        return "veto"
    return "unsure" if "unsure" in said else "pass"


__all__ = ["MAX_CHARS", "Examination", "Finding", "Verdict", "examine", "visible"]
