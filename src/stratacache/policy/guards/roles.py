"""Guard: roles. Who does what to whom: two names exchanged around a verb, passive and 把/被 taken into account."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from stratacache.policy.guards import comparison, direction, lexicon
from stratacache.policy.guards.finding import Finding, Verdict
from stratacache.policy.guards.pair import Pair
from stratacache.policy.guards.reading import STOP_STEMS, Reading, Token
from stratacache.policy.guards.relations import MOST
from stratacache.policy.guards.stem import stem

_LISTS = lexicon.sections("roles.txt")
_SYMMETRIC = frozenset(stem(word) for word in lexicon.words(_LISTS["symmetric en"]))
_SYMMETRIC_ZH = re.compile("|".join(sorted(lexicon.words(_LISTS["symmetric zh"]), key=len, reverse=True)))
_MIDDLES = frozenset(stem(word) for word in lexicon.words(_LISTS["asymmetric en"]))
_MIDDLES_ZH = frozenset(lexicon.words(_LISTS["asymmetric zh"]))
_JOINING = re.compile(r"\b(?:and|or|nor|vs\.?|versus)\b|[,，、/&+和与跟或同]|还是|以及|以?及")
_LONGEST_SPAN = 4
_DEEDS_ZH = frozenset(
    word for line in lexicon.sections("antonyms_zh.txt")["operations"] for word in line.split()
)
_ALIKE = 0.8
_PREPOSITIONS = frozenset(("in", "on", "at", "with", "by", "from", "to", "of", "for", "as", "into", "about"))


class Deed(NamedTuple):
    """A verb's stem with what stands where its doer and what it is done to belong."""

    verb: str
    doer: str
    done_to: str


def swapped(asked: Sequence[Token], stored: Sequence[Token]) -> tuple[Sequence[Token], ...] | None:
    """Spans X, M, Y with asked = X M Y and stored = Y M X (X and Y of at most four tokens), else None."""
    if len(asked) != len(stored) or len(asked) < 3:
        return None
    left, right = [t.stem for t in asked], [t.stem for t in stored]
    size = len(left)
    for x in range(1, _LONGEST_SPAN + 1):
        for y in range(1, _LONGEST_SPAN + 1):
            outer = x + y < size and left[:x] == right[size - x :] and left[size - y :] == right[:y]
            if outer and left[x : size - y] == right[y : size - x]:
                return asked[:x], asked[x : size - y], asked[size - y :]
    return None


def _swap_verdict(pair: Pair, spans: Sequence[Sequence[Token]]) -> Verdict:
    """Sure when what stands between has a direction and nothing around makes it mutual; a list may be reordered."""
    first, middle, last = spans
    between = pair.asked.text[first[-1].start + len(first[-1].text) : last[0].start].strip()
    if _JOINING.search(between):
        return "pass" if len(middle) <= 2 else "unsure"
    if any(token.kind == "han" for token in middle):
        return "veto" if _has_direction(between) and not _SYMMETRIC_ZH.search(pair.asked.text) else "unsure"
    stems = {token.stem for token in middle}
    if _SYMMETRIC.intersection(pair.asked.stems):
        return "unsure"
    names = all(token.text[0].isupper() for span in (first, last) for token in span)
    return "veto" if stems & _MIDDLES or (names and stems - STOP_STEMS) else "unsure"


def _has_direction(between: str) -> bool:
    """A verb of one character must be all that stands between, for it may be part of another word."""
    return between in _MIDDLES_ZH or (
        len(between) <= _LONGEST_SPAN and any(verb in between for verb in _MIDDLES_ZH if len(verb) > 1)
    )


def deeds(reading: Reading) -> tuple[Deed, ...]:
    """English clauses X verb Y and, of the passive, Y was verbed by X; the nearest content words stand for both."""
    return tuple(islice(_deeds(reading.tokens), 3 * MOST))


def _deeds(tokens: Sequence[Token]) -> Iterator[Deed]:
    for at, token in enumerate(tokens):
        if token.kind != "word" or not 0 < at < len(tokens) - 1 or token.stem in STOP_STEMS:
            continue
        if _is_passive(tokens, at):
            doer, done_to = _nearest(tokens[at + 2 :]), _nearest(tokens[:at][::-1])
        elif tokens[at + 1].stem in _PREPOSITIONS:
            continue
        else:
            doer, done_to = _nearest(tokens[:at][::-1]), _nearest(tokens[at + 1 :])
        if doer and done_to:
            yield Deed(token.stem, doer, done_to)


def _is_passive(tokens: Sequence[Token], at: int) -> bool:
    """A participle before "by": "is owned by", "owned by"; "an album by" is none, for album is no inflected form."""
    by = at + 2 if at + 2 < len(tokens) and tokens[at + 1].text.endswith("ly") else at + 1
    return tokens[by].stem == "by" and tokens[at].text.lower() not in (
        tokens[at].stem,
        f"{tokens[at].stem}s",
    )


def _nearest(tokens: Sequence[Token]) -> str:
    for token in tokens[:4]:
        if token.kind == "mark" or token.stem in ("and", "or"):
            return ""
        if token.stem not in STOP_STEMS and not token.text.endswith("ly"):
            return token.stem if token.kind != "number" else ""
    return ""


def _passives(reading: Reading) -> frozenset[str]:
    tokens = reading.tokens
    return frozenset(token.stem for at, token in enumerate(tokens[:-1]) if _is_passive(tokens, at))


def _twice(pair: Pair, verb: str) -> bool:
    """Then which of its clauses answers to which is not told."""
    return pair.asked.stems.count(verb) > 1 or pair.stored.stems.count(verb) > 1


def _passive_finding(pair: Pair) -> list[Finding]:
    """A deed told in the passive on one side at least; the plain active order is left to ``swapped``."""
    verbs = pair.asked.fact(_passives) | pair.stored.fact(_passives)
    if not verbs:
        return []
    for one in pair.asked.fact(deeds):
        for other in pair.stored.fact(deeds):
            if one.verb != other.verb or one.verb not in verbs or _twice(pair, one.verb):
                continue
            if (one.doer, one.done_to) == (other.doer, other.done_to):
                return [Finding("roles", "pass", f"{one.doer} {one.verb} {one.done_to}")]
            if (one.doer, one.done_to) == (other.done_to, other.doer) and pair.likeness() >= _ALIKE:
                return [
                    Finding(
                        "roles",
                        "veto",
                        f"{one.doer} {one.verb} {one.done_to} / {other.doer} {one.verb} {other.done_to}",
                    )
                ]
    return []


_HAN_NAME = r"[^\s,，。?？!！被把让给将的]{1,6}?"
_BEI = re.compile(
    rf"(?P<done_to>{_HAN_NAME})(?:会|要|是|已经|为什么|怎么)*被(?P<doer>{_HAN_NAME})(?:给)?(?P<verb>[^\s,，。?？!！被把]{{1,2}})(?=[了吗怎么办过?？，,。\s的]|$)"
)
_BA = re.compile(
    rf"(?P<doer>{_HAN_NAME})(?:会|要|是|已经|为什么|怎么|能)*把(?P<done_to>{_HAN_NAME})(?:给)?(?P<verb>[^\s,，。?？!！被把]{{1,2}})(?=[了吗怎么办过?？，,。\s的]|$)"
)


def han_deeds(reading: Reading) -> tuple[Deed, ...]:
    """Y被X打了 and X把Y打了; what is done is compared by its first character."""
    if not reading.has_han:
        return ()
    found = (match for pattern in (_BEI, _BA) for match in pattern.finditer(reading.text))
    found = (match for match in found if match["doer"] not in _DEEDS_ZH)
    told = (Deed(match["verb"][0], match["doer"], match["done_to"]) for match in found)
    return tuple(islice(told, MOST))


def _han_finding(pair: Pair) -> list[Finding]:
    asked, stored = pair.asked.fact(han_deeds), pair.stored.fact(han_deeds)
    for one in asked:
        for other in stored:
            if one.verb == other.verb and {one.doer, one.done_to} == {other.doer, other.done_to}:
                return [_told(one, other.doer)]
    found = [_told_actively(one, pair.stored) for one in asked] + [
        _told_actively(one, pair.asked) for one in stored
    ]
    return [finding for finding in found if finding][:1]


def _told(deed: Deed, doer: str) -> Finding:
    verdict: Verdict = "pass" if doer == deed.doer else "veto"
    return Finding(
        "roles",
        verdict,
        f"{deed.doer} → {deed.done_to} / {doer} → {deed.done_to if doer == deed.doer else deed.doer}",
    )


def _told_actively(deed: Deed, other: Reading) -> Finding | None:
    """The same deed in a text without 把 or 被: who stands before the verb does it."""
    if "被" in other.text or "把" in other.text:
        return None
    doer, done_to, verb = map(re.escape, (deed.doer, deed.done_to, deed.verb))
    if re.search(f"{done_to}.{{0,2}}{verb}.{{0,3}}{doer}", other.text):
        return _told(deed, deed.done_to)
    return _told(deed, deed.doer) if re.search(f"{doer}.{{0,2}}{verb}.{{0,3}}{done_to}", other.text) else None


def check(pair: Pair) -> list[Finding]:
    """Veto for an exchange whose verb has a direction, pass for a passive that says the same."""
    told = _han_finding(pair) or _passive_finding(pair)
    if told or comparison.check(pair) or direction.check(pair):
        return told
    spans = swapped(*pair.substituted)
    if spans is None:
        return []
    left, middle, right = ("".join if t and t[0].kind == "han" else " ".join for t in spans)
    shown = (
        left(t.text for t in spans[0]),
        middle(t.text for t in spans[1]),
        right(t.text for t in spans[2]),
    )
    return [
        Finding("roles", _swap_verdict(pair, spans), f"{shown[0]} … {shown[2]} / {shown[2]} … {shown[0]}")
    ]
