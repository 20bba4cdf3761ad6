"""``stratacache calibrate`` with the packaged verifier: from labelled pairs to a file that the gateway loads."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.upstream import FakeUpstream, Reply
from tests.gateway_process import run
from tests.harness import question, running_gateway
from tests.semantic_kit import FixedBound, Verifier, models

from stratacache.models.calibration import read_calibration
from stratacache.models.use import default_fingerprint
from stratacache.models.verifier import WEIGHTS, fingerprint_of

STORED, ASKED = "What is the way to bake bread?", "how do you bake bread at home"
DISHES = ("bread", "soup", "rice", "tea", "jam", "pasta", "cake", "pizza", "salad", "coffee", "beans", "fish")
TOOLS = ("a pan", "an oven", "a pot", "a stove", "a grill", "a kettle")


def pairs(folder: Path) -> Path:
    """72 pairs of either kind: politeness changes nothing, another dish does."""
    lines: list[dict[str, Any]] = []
    for number, dish in enumerate(DISHES):
        other = DISHES[(number + 5) % len(DISHES)]
        for tool in TOOLS:
            asked = f"How do I make {dish} with {tool}?"
            lines.append({"q1": asked, "q2": f"Please tell me how to make {dish} with {tool}.", "label": 1})
            lines.append({"q1": asked, "q2": f"How do I store {other} after {tool}?", "label": 0})
    file = folder / "pairs.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    return file


def test_it_measures_and_writes_what_the_gateway_loads(tmp_path: Path) -> None:
    pairs(tmp_path)
    done = run("calibrate", "pairs.jsonl", cwd=tmp_path)
    assert done.code == 0, done.err
    for shown in ("AUC", "hits", "wrong answers", "proposed", "scene default, max_error 0.01"):
        assert shown in done.out
    assert "tiers: {semantic: {calibration: .stratacache/calibration.json}}" in done.out
    written = read_calibration(tmp_path / ".stratacache" / "calibration.json")
    assert written.verifier == fingerprint_of(WEIGHTS)
    assert written.pairs == {"en": 144}
    assert set(written.languages) == {"*", "en", "zh"}  # what has no pairs stays as it was
    assert set(written.embedders) <= {default_fingerprint()}


def test_a_dry_run_writes_nothing_and_json_has_it_all(tmp_path: Path) -> None:
    pairs(tmp_path)
    done = run("calibrate", "pairs.jsonl", "--dry-run", "--json", cwd=tmp_path)
    told = json.loads(done.out)
    assert (done.code, told["written"]) == (0, None)
    assert told["languages"][0]["name"] == "en"
    assert {"recall", "wrong", "accepted"} <= told["languages"][0].keys()
    assert not (tmp_path / ".stratacache").exists()


@pytest.mark.parametrize(
    ("content", "code", "complaint"),
    [
        ('{"q1": "a", "q2": "b", "label": 1}\n{"q1": "a", "label": 0}', 1, "pairs.jsonl, line 2: q2 must be"),
        (None, 1, "cannot read pairs.jsonl"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, content: str | None, code: int, complaint: str) -> None:
    if content is not None:
        (tmp_path / "pairs.jsonl").write_text(content)
    done = run("calibrate", "pairs.jsonl", cwd=tmp_path)
    assert (done.code, done.out, done.err.count("\n")) == (code, "", 1)
    assert complaint in done.err


def test_too_few_pairs_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text(json.dumps({"q1": STORED, "q2": ASKED, "label": 1}))
    done = run("calibrate", "pairs.jsonl", cwd=tmp_path)
    assert (done.code, "Nothing to write" in done.out) == (1, True)


async def test_labels_that_a_gateway_gathered_can_be_used(fake: FakeUpstream, tmp_path: Path) -> None:
    verifier = Verifier()
    verifier.table[ASKED, STORED] = 0.6  # explored: the fresh answer is compared
    fake.default = Reply(text="Knead, wait, bake.")
    async with running_gateway(fake, models=models(None, verifier, FixedBound())) as gateway:

        def calibrate() -> Any:
            return run("calibrate", "--url", gateway.root, "--json", cwd=tmp_path)

        none = await asyncio.to_thread(calibrate)
        assert (none.code, "no labels yet" in none.err) == (1, True)
        await gateway.ask(question(STORED))
        await gateway.stored()
        await gateway.ask(question(ASKED))
        await gateway.labelled()
        async with gateway.http.get(f"{gateway.root}/admin/labels") as answer:
            assert (await answer.json())["labels"] == [
                {
                    "asked": ASKED,
                    "stored": STORED,
                    "right": True,
                    "scene": "default",
                    "source": "explored",
                    "probability": 0.6,
                }
            ]
        told = json.loads((await asyncio.to_thread(calibrate)).out)
        assert [(one["name"], one["pairs"]) for one in told["languages"]] == [("en", 1)]


def test_a_calibration_that_is_not_there_is_said_at_start(tmp_path: Path) -> None:
    (tmp_path / "stratacache.yaml").write_text(
        "tiers: {semantic: {calibration: gone.json}}\nserver: {port: 0}\n"
    )
    done = run("serve", cwd=tmp_path)
    assert (done.code, done.err) == (
        2,
        "stratacache: tiers.semantic.calibration: gone.json: No such file or directory\n",
    )
