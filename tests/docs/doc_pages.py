"""The project's pages as the tests of this folder read them: text, fenced blocks, tables, links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "stratacache"
_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True)
class Block:
    """A fenced block: where it begins, its info string in words, its text."""

    page: str
    line: int
    info: tuple[str, ...]
    text: str

    @property
    def language(self) -> str:
        return self.info[0] if self.info else ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """README, CHANGELOG and everything under docs/."""
    return [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(language: str, *, marked: str | None = None) -> list[Block]:
    """All blocks in ``language``, or only those with the word ``marked`` after it."""
    return [b for b in _blocks() if b.language == language and (marked is None or marked in b.info)]


def _blocks() -> Iterator[Block]:
    for page in pages():
        text = page.read_text(encoding="utf-8")
        for found in _FENCE.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            yield Block(name_of(page), line, tuple(found["info"].split()), found["text"])


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def section(page: Path, heading: str) -> str:
    """What stands under ``heading`` (with its marks, such as ``## Hits``), up to the next of its rank or higher."""
    text = page.read_text(encoding="utf-8")
    rank = heading.split(" ", 1)[0]
    start = text.index(f"\n{heading}\n") + len(heading) + 2
    end = re.compile(rf"^#{{1,{len(rank)}}} ", re.MULTILINE).search(text, start)
    return text[start : end.start() if end else len(text)]


def first_column(text: str) -> set[str]:
    """Every `word` in the first cell of the table rows of ``text``."""
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {word for row in rows for word in _CODE.findall(row)}


def make_targets() -> set[str]:
    """What ``make`` can be asked for."""
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
