"""Labelled pairs of questions: where they come from, how they are split, and how far each set is trusted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

Language = Literal["en", "zh"]

DEV_SHARE = 0.08
GIANT = 2000  # a component of more pairs stays on the training side whole: it would be most of the other


class Pair(msgspec.Struct, frozen=True):
    """Two questions and whether one answer serves both; ``kind`` is the rule or slice, "" for natural pairs."""

    q1: str
    q2: str
    label: int
    language: Language
    source: str
    kind: str = ""
    weight: float = 1.0


class Source(msgspec.Struct, frozen=True):
    """A set of the manifest: a JSONL file with q1, q2, label. ``domain``: sets that are left out together.

    ``weight`` in the loss says how far its labels are trusted.
    """

    path: str
    language: Language
    domain: str
    weight: float = 1.0
    licence: str = "unknown"
    role: Literal["train", "evaluate"] = "train"  # the pairs of the latter are never trained on

    @property
    def name(self) -> str:
        return self.path.split("/")[0]


def read_manifest(path: Path) -> list[Source]:
    """The sets of a manifest: a JSON list of objects with the fields of :class:`Source`.

    Raises:
        msgspec.ValidationError: an entry is not of that form.
    """
    return msgspec.json.decode(path.read_bytes(), type=list[Source])


def read_pairs(source: Source, root: Path) -> list[Pair]:
    """The pairs of one set that have a label."""
    pairs = []
    for line in (root / source.path).read_text().splitlines():
        row = json.loads(line)
        if row["label"] in (0, 1):
            kind = row.get("slice") or row.get("kind") or ""
            pairs.append(
                Pair(row["q1"], row["q2"], row["label"], source.language, source.name, kind, source.weight)
            )
    return pairs


def plain(text: str) -> str:
    """What makes two questions the same node of the graph: letters and digits, lower case."""
    return "".join(c for c in text.lower() if c.isalnum())


def pair_id(pair: Pair) -> tuple[str, ...]:
    return tuple(sorted((plain(pair.q1), plain(pair.q2))))


def components(pairs: Sequence[Pair]) -> list[str]:
    """For each pair the name of its connected component: pairs that share a question, directly or by others."""
    parent: dict[str, str] = {}

    def root(node: str) -> str:
        parent.setdefault(node, node)
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for pair in pairs:
        one, other = root(plain(pair.q1)), root(plain(pair.q2))
        if one != other:
            parent[max(one, other)] = min(one, other)
    return [root(plain(pair.q1)) for pair in pairs]


class Split(msgspec.Struct, frozen=True):
    """The two parts share no question; components of more than ``GIANT`` pairs are in ``train`` whole."""

    train: list[Pair]
    dev: list[Pair]


def split(pairs: Sequence[Pair], excluded: Iterable[Pair] = ()) -> Split:
    """Divide by connected component; pairs that are in ``excluded`` are in neither part."""
    barred = {pair_id(pair) for pair in excluded}
    names = components(pairs)
    sizes: dict[str, int] = {}
    for name in names:
        sizes[name] = sizes.get(name, 0) + 1
    parts = Split([], [])
    for pair, name in zip(pairs, names, strict=True):
        if pair_id(pair) not in barred:
            part = parts.dev if sizes[name] <= GIANT and _fraction(name) < DEV_SHARE else parts.train
            part.append(pair)
    return parts


def _fraction(name: str) -> float:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big") / (1 << 48)
