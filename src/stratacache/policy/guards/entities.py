"""Guard: names. Two members of one class of look-alikes (Java, JavaScript) tell two questions apart.

A name that no list has shows by its capital letter, in English: on one side only it is a doubt, and as the only
difference of two questions it is decisive unless one name may be short for the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from stratacache.policy.guards import lexicon
from stratacache.policy.guards.finding import Finding
from stratacache.policy.guards.pair import Pair
from stratacache.policy.guards.reading import Reading, Token

_ALIKE = 0.6
"""Likeness of the rest from which on members of an "aligned" class tell questions apart."""
_LOOSE = 0.3
"""The same for the others: below it a name may be a mere circumstance."""


class Name(NamedTuple):
    """A member of a class; ``spelling`` is set when only that spelling counts."""

    group: str
    member: str
    spelling: str


Table = dict[str, tuple[Name, ...]]
Found = dict[str, dict[str, tuple[str, ...]]]


def _load() -> tuple[Table, Table, frozenset[str]]:
    """Names of words (by their tokens' stems), names in ideographs, and the classes that need alignment."""
    spaced: dict[str, list[Name]] = defaultdict(list)
    han: dict[str, list[Name]] = defaultdict(list)
    aligned = set()
    for header, lines in lexicon.sections("gazetteer.txt").items():
        group, _, flag = (part.strip() for part in header.partition("|"))
        if flag == "aligned":
            aligned.add(group)
        for member in (part.strip() for line in lines for part in line.split(",") if part.strip()):
            aliases = member.split("=")
            for alias in aliases:
                name = Name(group, aliases[0], alias if alias != alias.lower() else "")
                if alias.isascii():
                    spaced[_key(Reading(alias).tokens)].append(name)
                else:
                    han[alias.lower()].append(name)
    return _fixed(spaced), _fixed(han), frozenset(aligned)


def _fixed(table: dict[str, list[Name]]) -> Table:
    return {key: tuple(names) for key, names in table.items()}


def _key(tokens: Sequence[Token]) -> str:
    return " ".join(token.stem for token in tokens)


_SPACED, _HAN, _ALIGNED = _load()
_MOST_TOKENS = max(key.count(" ") for key in _SPACED) + 1
_MOST_CHARS = max(map(len, _HAN))
_FIRST_TOKENS = frozenset(key.partition(" ")[0] for key in _SPACED)
_FIRST_CHARS = frozenset(key[0] for key in _HAN)


def _spaced_names(reading: Reading) -> Iterator[tuple[Name, tuple[str, ...]]]:
    tokens, at = reading.tokens, 0
    while at < len(tokens):
        step = 1
        if tokens[at].stem in _FIRST_TOKENS:
            for size in range(min(_MOST_TOKENS, len(tokens) - at), 0, -1):
                named = [
                    n for n in _SPACED.get(_key(tokens[at : at + size]), ()) if _spelt(n, reading, tokens[at])
                ]
                if named:
                    units = tuple(token.stem for token in tokens[at : at + size])
                    yield from ((name, units) for name in named)
                    step = size
                    break
        at += step


def _spelt(name: Name, reading: Reading, first: Token) -> bool:
    return not name.spelling or reading.text.startswith(name.spelling, first.start)


def _han_names(reading: Reading) -> Iterator[tuple[Name, tuple[str, ...]]]:
    text, at = reading.lower, 0
    while at < len(text):
        step = 1
        if text[at] in _FIRST_CHARS:
            for size in range(_MOST_CHARS, 0, -1):
                named = _HAN.get(text[at : at + size])
                if named:
                    units = tuple(text[at : at + size])
                    yield from ((name, units) for name in named)
                    step = size
                    break
        at += step


def names(reading: Reading) -> Found:
    """The members that a text names, by class, with the units that name them; the longest name wins.

    So "New York Times" is not New York, and 大众点评 is no car.
    """
    found: Found = defaultdict(dict)
    for name, units in _spaced_names(reading):
        found[name.group][name.member] = units
    if reading.has_han:
        for name, units in _han_names(reading):
            found[name.group].setdefault(name.member, units)
    return dict(found)


def check(pair: Pair) -> list[Finding]:
    """Veto for two members of one class, each on one side only; unsure for a name that only one side has."""
    asked, stored = pair.asked.fact(names), pair.stored.fact(names)
    findings = []
    for group in sorted(asked.keys() | stored.keys()):
        left, right = asked.get(group, {}), stored.get(group, {})
        only_left, only_right = sorted(left.keys() - right.keys()), sorted(right.keys() - left.keys())
        detail = f"{', '.join(only_left) or 'none'} / {', '.join(only_right) or 'none'}"
        if only_left and only_right:
            drop = (
                [u for name in only_left for u in left[name]],
                [u for name in only_right for u in right[name]],
            )
            enough = pair.likeness(*drop) >= (_ALIKE if group in _ALIGNED else _LOOSE)
            findings.append(Finding("entities", "veto" if enough else "unsure", detail))
        elif (only_left or only_right) and group not in _ALIGNED:
            findings.append(Finding("entities", "unsure", detail))
    return findings or _capitals(pair)


def _named(reading: Reading) -> frozenset[str]:
    """The stems of all names that the lists have."""
    return frozenset(
        unit for members in reading.fact(names).values() for units in members.values() for unit in units
    )


def capitals(reading: Reading) -> frozenset[str]:
    """Stems of words with a capital that no sentence's beginning explains; none where most words have one."""
    found, words, begins = set(), 0, True
    for token in reading.tokens:
        if token.kind == "mark":
            begins = begins or token.text in ".?!:\"'"
            continue
        words += 1
        if token.kind == "word" and not begins and token.text[0].isupper() and token.text != "I":
            found.add(token.stem)
        begins = False
    return frozenset(found) if len(found) * 3 <= words * 2 else frozenset()


def _capitals(pair: Pair) -> list[Finding]:
    asked, stored = pair.asked.fact(capitals), pair.stored.fact(capitals)
    left = asked - pair.asked.fact(_named) - frozenset(pair.stored.stems)
    right = stored - pair.stored.fact(_named) - frozenset(pair.asked.stems)
    if not left and not right:
        return []
    detail = f"{', '.join(sorted(left)) or 'none'} / {', '.join(sorted(right)) or 'none'}"
    return [Finding("entities", "veto" if _only_difference(pair, left, right) else "unsure", detail)]


def _only_difference(pair: Pair, left: frozenset[str], right: frozenset[str]) -> bool:
    """True when one name stands exactly where the other stands, and neither may be another word for it."""
    spans = pair.substituted
    if not all(spans) or max(map(len, spans)) > 4:
        return False
    whole = all(token.stem in side for span, side in zip(spans, (left, right), strict=True) for token in span)
    common = len(pair.asked.stems) - len(spans[0])
    return whole and common >= 4 and not _may_be_one(*spans)


def _may_be_one(one: Sequence[Token], other: Sequence[Token]) -> bool:
    """Initials (NZ, New Zealand), a beginning (Insta, Instagram) or a slip of the pen (Virat, Viraat)."""
    left, right = "".join(t.stem for t in one), "".join(t.stem for t in other)
    initials = "".join(t.stem[0] for t in one), "".join(t.stem[0] for t in other)
    if left == initials[1] or right == initials[0] or left[:3] == right[:3]:
        return True
    shared = len(
        {left[i : i + 2] for i in range(len(left) - 1)} & {right[i : i + 2] for i in range(len(right) - 1)}
    )
    return shared * 2 >= min(len(left), len(right)) - 1
