"""Streams of questions whose right answers are known, built from labelled pairs or from intents."""

from __future__ import annotations

import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stratacache.policy.normalise import normalise_all

Labelled = tuple[str, str, bool]  # two questions, and whether one answer serves both

_PUNCTUATION = re.compile(r"[\s.,;:?!'\"()\[\]{}<>~…。，、；：？！‘’“”（）【】《》～]+")

LARGEST = 8
"""Paraphrases of one answer: longer chains of "the same as" lead to questions that are not the same."""


@dataclass(frozen=True)
class Pool:
    """Questions, no two of them equal for the exact tier; equal ``answers`` mean that one answer serves both."""

    name: str
    texts: Sequence[str]
    answers: Sequence[int]

    @property
    def repeats(self) -> float:
        """The share of requests that a perfect cache would serve."""
        return 1 - len(set(self.answers)) / len(self.texts)


def from_pairs(name: str, pairs: Iterable[Labelled], count: int, seed: int) -> Pool:
    """About ``count`` questions: paraphrases, what was labelled as different from them, and unrelated questions.

    Answers are the components that are connected by label 1, or by being equal but for spaces and punctuation. (Others
    that ask the same remain apart where nobody labelled them, and a hit on one counts as wrong.) A component in which a
    pair was labelled 0 is left out: there "the same" is not transitive. So is one of more than ``LARGEST`` questions.
    """
    same: list[tuple[str, str]] = []
    different: list[tuple[str, str]] = []
    for q1, q2, label in pairs:
        (same if label else different).append((q1, q2))
    texts_of: dict[str, list[str]] = defaultdict(list)
    for text in sorted({text for pair in [*same, *different] for text in pair}):
        texts_of[_PUNCTUATION.sub("", text.lower())].append(text)
    alike = [(group[0], text) for group in texts_of.values() for text in group[1:]]
    component = _components([*same, *alike], [text for group in texts_of.values() for text in group])
    sizes = Counter(component.values())
    unsound = {component[a] for a, b in different if component[a] == component[b]}
    unsound |= {root for root, size in sizes.items() if size > LARGEST}
    members: dict[str, list[str]] = defaultdict(list)
    for text, root in component.items():
        if root not in unsound:
            members[root].append(text)
    near: dict[str, list[str]] = defaultdict(list)
    for a, b in different:
        near[component[a]].append(component[b])
        near[component[b]].append(component[a])
    roots = sorted(members)
    random.Random(seed).shuffle(roots)
    roots.sort(key=lambda root: len(members[root]) == 1)  # paraphrases first, each with its near misses
    chosen: dict[str, int] = {}
    texts: list[str] = []
    answers: list[int] = []
    for root in roots:
        for other in (root, *near[root]):
            if other in members and other not in chosen and len(texts) < count:
                chosen[other] = len(chosen)
                texts += members[other]
                answers += [chosen[other]] * len(members[other])
    return _distinct(name, texts, answers)


def from_intents(name: str, file: Path, count: int, seed: int) -> Pool:
    """``count`` questions of a set in which all questions of an intent have one answer."""
    rows = list(_rows(file))
    random.Random(seed).shuffle(rows)
    intents = {intent: at for at, intent in enumerate(sorted({row["intent"] for row in rows}))}
    return _distinct(
        name, [row["text"] for row in rows[:count]], [intents[row["intent"]] for row in rows[:count]]
    )


def read_pairs(files: Iterable[Path]) -> Iterator[Labelled]:
    """The labelled pairs of files in JSON lines with ``q1``, ``q2`` and ``label``."""
    for file in files:
        for row in _rows(file):
            if row.get("label") in (0, 1):
                yield str(row["q1"]), str(row["q2"]), bool(row["label"])


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _components(same: Iterable[tuple[str, str]], texts: Iterable[str]) -> dict[str, str]:
    parent = {text: text for text in sorted(texts)}

    def find(text: str) -> str:
        while parent[text] != text:
            parent[text] = parent[parent[text]]
            text = parent[text]
        return text

    for a, b in same:
        parent[find(a)] = find(b)
    return {text: find(text) for text in parent}


def _distinct(name: str, texts: Sequence[str], answers: Sequence[int]) -> Pool:
    """Without questions that the exact tier takes for one."""
    kept: dict[str, tuple[str, int]] = {}
    for text, answer in zip(texts, answers, strict=True):
        (form,) = normalise_all([text])
        kept.setdefault(form, (text, answer))
    return Pool(name, [text for text, _ in kept.values()], [answer for _, answer in kept.values()])
