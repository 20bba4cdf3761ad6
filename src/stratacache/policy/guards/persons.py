"""Guard: who of the two. "Can I sue my landlord" is not "can my landlord sue me"; 我撞了他 is not 他撞了我."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from stratacache.policy.guards.finding import Finding
from stratacache.policy.guards.pair import Pair
from stratacache.policy.guards.reading import STOP_STEMS, Reading, Token
from stratacache.policy.guards.relations import MOST

_SELF = frozenset(("i", "me"))
_OTHERS = frozenset(("someone", "somebody", "people", "they", "them", "he", "him", "she", "her"))
_TAKES_NO_OBJECT = frozenset(
    ("in", "on", "at", "with", "by", "from", "to", "of", "for", "as", "into", "about", "if", "that")
)
_ALIKE = 0.8
_OTHER = r"(?P<other>别人|他人|对方|他|她|(?:(?![了过到的我被把])[\u4e00-\u9fff]){2})"
_VERB = r"(?P<verb>[\u4e00-\u9fff]{1,2}?)(?:了|过|到)?"
_I_DO = re.compile(f"我{_VERB}{_OTHER}")
_TO_ME = (re.compile(f"{_OTHER}{_VERB}我"), re.compile(f"我被{_OTHER}{_VERB}(?=[了过怎吗?？]|$)"))


class Act(NamedTuple):
    """``verb`` between the asker and somebody else; ``mine``: the asker does it."""

    verb: str
    other: str
    mine: bool


def acts(reading: Reading) -> tuple[Act, ...]:
    """What the asker does to others and they to the asker, in English clauses X verb Y."""
    return tuple(islice(_acts(reading.tokens), MOST))


def _acts(tokens: Sequence[Token]) -> Iterator[Act]:
    for at, token in enumerate(tokens):
        if token.kind != "word" or token.stem in STOP_STEMS or token.stem in _OTHERS:
            continue
        doer, done_to = _party(tokens[:at][::-1]), _party(tokens[at + 1 :])
        if doer == "self" and done_to not in ("", "self"):
            yield Act(token.stem, done_to, True)
        elif done_to == "self" and doer not in ("", "self"):
            yield Act(token.stem, doer, False)


def _party(tokens: Sequence[Token]) -> str:
    """The nearest doer or object: "self", another's stem, "" when there is none near."""
    for token in tokens[:3]:
        if token.kind == "mark" or token.stem in _TAKES_NO_OBJECT:
            return ""
        if token.stem in _SELF:
            return "self"
        if token.stem in _OTHERS:
            return token.stem
        if token.stem not in STOP_STEMS:
            return token.stem
    return ""


def check(pair: Pair) -> list[Finding]:
    """Veto when the same is done the other way round and the rest is alike."""
    if pair.likeness() < _ALIKE:
        return []
    for one in pair.asked.fact(acts):
        for other in pair.stored.fact(acts):
            if one[:2] == other[:2] and one.mine != other.mine:
                return [_finding(one, other)]
    return _han(pair) if pair.asked.has_han and pair.stored.has_han else []


def _han(pair: Pair) -> list[Finding]:
    for mine, theirs in ((pair.asked, pair.stored), (pair.stored, pair.asked)):
        back = {(m["verb"], m["other"]) for rule in _TO_ME for m in rule.finditer(theirs.text)}
        for match in _I_DO.finditer(mine.text):
            if (match["verb"], match["other"]) in back:
                acts = Act(match["verb"], match["other"], True), Act(match["verb"], match["other"], False)
                return [_finding(*(acts if mine is pair.asked else acts[::-1]))]
    return []


def _finding(one: Act, other: Act) -> Finding:
    shown = [f"I {a.verb} {a.other}" if a.mine else f"{a.other} {a.verb} me" for a in (one, other)]
    return Finding("persons", "veto", " / ".join(shown))
