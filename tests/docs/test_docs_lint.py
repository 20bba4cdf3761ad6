"""The page on lint shows what lint says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.docs.doc_pages import Block, blocks

from stratacache.cli import main


def block(kind: str, marked: str) -> Block:
    (found,) = blocks(kind, marked=marked)
    return found


@pytest.mark.parametrize(("shown", "args"), [("before", []), ("after", ["--stabilised"])])
def test_the_example_s_output(
    shown: str, args: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block("python", "lint").text, "the example", "exec"), {})
    assert main(["lint", "agent.jsonl", *args]) == (1 if shown == "before" else 0)
    assert capsys.readouterr().out == block("text", shown).text
