"""Lexicons of the guards: readable text files beside the code, read once at import.

A file holds lines; ``#`` begins a comment and ``[name]`` a section. What a line means is the reader's business:
each guard's module says it of its own file.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources


def sections(name: str) -> dict[str, list[str]]:
    """The lines of ``data/<name>`` by section, comments and blank lines left out; "" holds what precedes any."""
    text = resources.files(__package__).joinpath("data", name).read_text(encoding="utf-8")
    found: dict[str, list[str]] = {}
    lines = found.setdefault("", [])
    for raw in text.splitlines():
        line = raw.partition("#")[0].strip()
        if line.startswith("[") and line.endswith("]"):
            lines = found.setdefault(line[1:-1].strip(), [])
        elif line:
            lines.append(line)
    return found


def words(lines: Iterable[str]) -> frozenset[str]:
    """The words of lines, ``_`` standing for a space within one."""
    return frozenset(word.replace("_", " ") for line in lines for word in line.split())
