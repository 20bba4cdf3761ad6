"""The paraphrase grammar: intents with several surfaces and shared slots, grouped so that siblings share most words.

``data/grammar_<language>/*.txt``: ``# domain``, then blocks. A block starts with ``== name``, may define slots
(``city = York | Leeds ~ Leeds city``; ``~`` gives another name of the same value; ``@kind`` takes a list of the
entities), and holds intents, ``- name``, each with its surfaces, one a line, slots in braces. Intents of a block
are siblings: no two have the same answer. Slots that stand in no surface of an intent do not matter to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from random import Random

from .lexicon import DATA, groups
from .pair import Language, Pair, Part, is_held_out, normalised

_SLOT = re.compile(r"\{(\w+)\}")
_TRIES = 12


@dataclass(slots=True)
class Intent:
    """One question's meaning: ``name`` is domain.block.intent, ``surfaces`` its wordings."""

    name: str
    surfaces: list[str] = field(default_factory=list)

    @property
    def slots(self) -> tuple[str, ...]:
        """The slots that its wordings hold, in order."""
        return tuple(sorted({slot for surface in self.surfaces for slot in _SLOT.findall(surface)}))


@dataclass(slots=True)
class Block:
    """Sibling intents and the slots they share; a slot's values are tuples of names of one thing."""

    slots: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)
    intents: list[Intent] = field(default_factory=list)


def held_out(intent: str) -> bool:
    """Whether the intent (``domain.block.intent``, with or without ``grammar:``) is kept for evaluation."""
    return is_held_out("intent " + intent.removeprefix("grammar:").rsplit(".", 1)[0])


@cache
def blocks(language: Language) -> tuple[Block, ...]:
    """Every block of a language's grammar, in file order."""
    found: list[Block] = []
    for path in sorted((DATA / f"grammar_{language}").glob("*.txt")):
        found += _parsed(path.read_text(encoding="utf-8"), language)
    return tuple(found)


def _parsed(text: str, language: Language) -> list[Block]:
    found: list[Block] = []
    domain = name = ""
    for line in (raw.strip() for raw in text.splitlines()):
        if line.startswith("# "):
            domain = line[2:]
        elif line.startswith("== "):
            name = line[3:]
            found.append(Block())
        elif line.startswith("- "):
            found[-1].intents.append(Intent(f"{domain}.{name}.{line[2:]}"))
        elif re.match(r"\w+ = ", line):
            slot, values = line.split(" = ", 1)
            found[-1].slots[slot] = _values(values, language)
        elif line:
            found[-1].intents[-1].surfaces.append(line)
    return found


def _values(text: str, language: Language) -> list[tuple[str, ...]]:
    if text.startswith("@"):
        return [(member,) for member in groups(f"{language}_entities")[text[1:]]]
    return [tuple(name.strip() for name in value.split("~")) for value in text.split("|")]


def grammar_pairs(seed: int, per_intent: int, part: Part) -> Iterator[Pair]:
    """``per_intent`` pairs of every intent of the part, about half of each label, without repeats."""
    languages: tuple[Language, ...] = ("en", "zh")
    for language in languages:
        for block in blocks(language):
            for intent in block.intents:
                if held_out(intent.name) == (part == "eval"):
                    rng = Random(f"{seed} {part} {intent.name}")
                    yield from _pairs_of(intent, block, language, per_intent, rng)


def _pairs_of(intent: Intent, block: Block, language: Language, count: int, rng: Random) -> Iterator[Pair]:
    seen: set[tuple[str, str]] = set()
    for turn in range(count):
        for _ in range(_TRIES):
            label = turn % 2
            q1, q2 = _positive(intent, block, rng) if label else _negative(intent, block, rng)
            same = normalised(q1) == normalised(q2)
            if same or (q1, q2) in seen:
                continue
            seen |= {(q1, q2), (q2, q1)}
            yield Pair(q1, q2, label, language, f"grammar:{intent.name}", "grammar")
            break


Filling = dict[str, tuple[str, ...]]


def _filling(intent: Intent, block: Block, rng: Random) -> Filling:
    chosen: Filling = {}
    for slot in intent.slots:
        free = [value for value in block.slots[slot] if value not in chosen.values()]
        chosen[slot] = rng.choice(free)
    return chosen


def _said(surface: str, filling: Filling, rng: Random) -> str:
    text = _SLOT.sub(lambda m: rng.choice(filling[m[1]]), surface)
    text = re.sub(r"\b([Aa]) (?=[aeioAEIO])", r"\1n ", text)
    kind = rng.random()
    if kind < 0.35:
        return text[:1].upper() + text[1:] + ("" if text[-1] in "?？.。" else "?")
    return text + rng.choice(["", "", "?"]) if text[-1] not in "?？.。" else text


def _positive(intent: Intent, block: Block, rng: Random) -> tuple[str, str]:
    filling = _filling(intent, block, rng)
    usable = [s for s in intent.surfaces if set(_SLOT.findall(s)) == set(intent.slots)]
    first, second = rng.sample(usable, 2)
    return _said(first, filling, rng), _said(second, filling, rng)


def _negative(intent: Intent, block: Block, rng: Random) -> tuple[str, str]:
    """Another value of a slot, two values exchanged, or a sibling intent with the same values."""
    filling = _filling(intent, block, rng)
    usable = [s for s in intent.surfaces if set(_SLOT.findall(s)) == set(intent.slots)]
    first = rng.choice(usable)
    siblings = [
        other
        for other in block.intents
        if other is not intent and held_out(other.name) == held_out(intent.name)
    ]
    if siblings and (not filling or rng.random() < 0.55):
        sibling = rng.choice(siblings)
        other = _filling(sibling, block, rng) | {
            slot: filling[slot] for slot in sibling.slots if slot in filling
        }
        surfaces = [s for s in sibling.surfaces if set(_SLOT.findall(s)) == set(sibling.slots)]
        return _said(first, filling, rng), _said(_nearest(first, surfaces, rng), other, rng)
    second = first if rng.random() < 0.5 else rng.choice(usable)
    return _said(first, filling, rng), _said(second, _otherwise(filling, block, rng), rng)


def _otherwise(filling: Filling, block: Block, rng: Random) -> Filling:
    slot = rng.choice(sorted(filling))
    twins = [other for other in filling if other != slot and block.slots[other] == block.slots[slot]]
    if twins and rng.random() < 0.6:
        return filling | {slot: filling[twins[0]], twins[0]: filling[slot]}
    free = [value for value in block.slots[slot] if value not in filling.values()]
    return filling | {slot: rng.choice(free)}


def _nearest(model: str, surfaces: list[str], rng: Random) -> str:
    """Mostly the surface that shares most with the model: those are the hard ones."""
    if rng.random() < 0.4:
        return rng.choice(surfaces)
    letters = set(model.split()) | set(model)
    return max(surfaces, key=lambda s: (len(letters & (set(s.split()) | set(s))), rng.random()))
