"""Names on the pages are names in the code: links, headers, metrics, targets, requirements and their proofs."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

import pytest
from tests.docs.doc_pages import ROOT, SOURCE, first_column, make_targets, name_of, pages, prose, section

from stratacache.cli import build_parser
from stratacache.observe.metrics import Metrics
from stratacache.observe.names import GAUGES
from stratacache.ports import Event
from stratacache.types import Call, Decision, Saving, Usage

GUIDE = ROOT / "docs" / "guide"
HEADER = re.compile(r"x-strata-[a-z]+(?:-[a-z]+)*")
NUMBERS = [
    f"{letter}{n}"
    for letter, count in (("A", 7), ("B", 10), ("C", 11), ("D", 5), ("E", 6), ("F", 2), ("G", 7), ("H", 5))
    for n in range(1, count + 1)
]


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        aim = (page.parent / path).resolve() if path else page
        assert aim.exists(), target
        assert not anchor or anchor in anchors(aim), target


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_pages_name_no_place_of_the_machine_they_were_written_on(page: Path) -> None:
    assert not re.search(r"/(?:work|root|home|tmp)/", page.read_text(encoding="utf-8"))


def headers_in_code() -> set[str]:
    """Whole string or bytes constants that are names of our headers."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
                text = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
                if HEADER.fullmatch(text):
                    found.add(text)
    return found


def test_headers_on_the_pages_are_those_of_the_code() -> None:
    in_code = headers_in_code()
    for page in pages():
        assert set(HEADER.findall(page.read_text(encoding="utf-8"))) <= in_code, name_of(page)
    explained = first_column((GUIDE / "cache-control.md").read_text(encoding="utf-8"))
    explained |= first_column((GUIDE / "observing.md").read_text(encoding="utf-8"))
    assert in_code <= explained


def exposed_metrics() -> set[str]:
    """What a gateway shows once everything has happened at least once."""
    metrics = Metrics()
    metrics.decided(Decision("chat.completions", "m", "default", "miss", "not_found", stages=(("key", 0.1),)))
    metrics.called(Call("local", "m", Usage(1, 1, 0)))
    metrics.saved(Saving("exact", "default", "m", 1, 1))
    metrics.wrote("stored")
    metrics.withheld("truncated")
    metrics.counted("follower")
    text = metrics.expose({name: {"": 1.0} for name in GAUGES}).decode()
    return set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))


def test_metrics_on_the_pages_are_those_of_the_code() -> None:
    exposed = exposed_metrics()
    assert first_column(section(GUIDE / "observing.md", "## Metrics")) == exposed
    engine = (SOURCE / "engine" / "app.py").read_text(encoding="utf-8")  # it has a /metrics of its own
    for page in pages():
        named = set(re.findall(r"`(stratacache_[a-z_]+)", page.read_text(encoding="utf-8")))
        assert all(name in exposed or name in engine for name in named), name_of(page)


def test_events_are_documented() -> None:
    assert first_column(section(GUIDE / "observing.md", "## Events")) == set(get_args(Event))


def test_commands_and_targets_in_running_text_exist() -> None:
    for page in pages():
        text = prose(page)
        assert set(re.findall(r"`make ([a-z-]+)`", text)) <= make_targets(), name_of(page)
        for name in re.findall(r"`stratacache ([a-z]+(?:-[a-z]+)*)", text):
            with pytest.raises(SystemExit) as ended:
                build_parser().parse_args([name, "--help"])
            assert ended.value.code == 0, f"{name_of(page)}: {name}"


def requirement_rows() -> list[list[str]]:
    text = (ROOT / "docs" / "requirements.md").read_text(encoding="utf-8")
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines()
            if re.match(r"\| [A-H]\d+ \|", line)]  # fmt: skip


def test_every_requirement_has_its_row_and_state() -> None:
    rows = requirement_rows()
    assert [row[0] for row in rows] == NUMBERS
    for row in rows:
        assert re.match(r"(done|partly|not yet)\b", row[2]), row[0]
        assert len(row) == 4, row[0]


PROOF = re.compile(r"`(\S+\.py)(?:::(\w+))?`")


def assert_exist(proofs: list[tuple[str, str]]) -> None:
    for file, name in proofs:
        path = ROOT / "tests" / file
        assert path.is_file(), file
        assert not name or f"def {name}(" in path.read_text(encoding="utf-8"), f"{file}::{name}"


def test_every_proof_of_a_requirement_exists() -> None:
    for number, _, state, proof in requirement_rows():
        proofs = PROOF.findall(proof)
        assert proofs or not state.startswith("done"), number
        assert_exist(proofs)


def test_every_known_fault_of_other_engines_has_a_test() -> None:
    rows = [
        line
        for line in section(GUIDE / "engine.md", "### Known faults of other engines").splitlines()
        if "|" in line
    ]
    proofs = [PROOF.findall(row) for row in rows[2:]]
    assert len(proofs) == 14
    for each in proofs:
        assert each
        assert_exist(each)
