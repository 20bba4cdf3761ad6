"""Reads the generator's word lists: tab-separated files beside this module, ``#`` starting a comment line."""

from __future__ import annotations

from functools import cache
from itertools import combinations
from pathlib import Path

DATA = Path(__file__).parent / "data"


@cache
def rows(name: str) -> tuple[tuple[str, ...], ...]:
    """The rows of ``data/<name>.tsv``, as tuples of stripped cells, in file order."""
    lines = (DATA / f"{name}.tsv").read_text(encoding="utf-8").splitlines()
    return tuple(
        tuple(cell.strip() for cell in line.split("\t"))
        for line in lines
        if line.strip() and not line.startswith("#")
    )


@cache
def partners(name: str) -> tuple[tuple[str, ...], ...]:
    """The pairs of words of a list, with their options; a row ``*`` holds words that each replace any other."""
    found: list[tuple[str, ...]] = []
    for row in rows(name):
        found += combinations(row[1].split("|"), 2) if row[0] == "*" else [row]
    return tuple(found)


@cache
def groups(name: str) -> dict[str, tuple[str, ...]]:
    """The rows of a file whose first cell names a group and whose second lists its members between bars."""
    found: dict[str, tuple[str, ...]] = {}
    for group, members in (row[:2] for row in rows(name)):
        found[group] = found.get(group, ()) + tuple(word.strip() for word in members.split("|"))
    return found
