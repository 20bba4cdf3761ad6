"""Reading labelled pairs, the figures of a verifier on them, and the calibration that is proposed."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stratacache.errors import SettingsError, StrataError
from stratacache.lab import calibration as lab
from stratacache.lab.calibration import Scored, Share, Step, assess, score_all, walk_down
from stratacache.lab.labelled import MAX_CHARS, LabelledPair, from_gateway, read_labelled
from stratacache.models.calibration import CalibrationFile, read_calibration, write_calibration
from stratacache.policy.calibration import Calibration, Sigmoid

PLAIN = Calibration({"*": Sigmoid(1.0, 0.0)})


def scored(
    count: int, *, a: float = 1.0, b: float = 0.0, seed: int = 1, language: str = "en", scene: str = "default"
) -> list[Scored]:
    """Pairs that are the same with the probability that ``a`` and ``b`` make of their logit."""
    draw = random.Random(seed)
    made = []
    for number in range(count):
        logit = draw.uniform(-6, 6)
        same = draw.random() < Sigmoid(a, b).probability(logit)
        pair = LabelledPair(f"{language} q {number}", f"{language} s {number}", same, scene)
        made.append(Scored(pair, language, vetoed=False, logit=logit))
    return made


def share(share: Share) -> tuple[int, int]:
    return share.count, share.total


def test_the_fit_is_what_the_labels_say() -> None:
    report = assess(scored(4000, a=0.5, b=-1.0), PLAIN, "use/1", lambda _: 0.01, 0.98)
    (found,) = report.languages
    assert found.proposed is not None
    assert (found.proposed.a, found.proposed.b) == pytest.approx((0.5, -1.0), abs=0.1)
    assert found.loss[1] < found.loss[0]
    assert report.calibration == {"*": Sigmoid(1.0, 0.0), "en": found.proposed}


def distant(count: int, c: float) -> list[Scored]:
    """Pairs of which those further apart than .8 are the same less often, by ``c``."""
    draw = random.Random(2)
    made = []
    for one in scored(count, a=1.0):
        cosine = draw.uniform(0.5, 1.0)
        same = draw.random() < Sigmoid(1.0, 0.0, c, 0.8).probability(one.logit or 0.0, cosine)
        pair = msgspec.structs.replace(one.pair, same=same)
        made.append(msgspec.structs.replace(one, pair=pair, cosine=cosine))
    return made


def test_the_cosine_is_fitted_where_it_tells_something() -> None:
    current = Calibration(
        PLAIN.languages, {"use/1": {"en": Sigmoid(1.0, 0.0, 1.0, 0.5), "zh": Sigmoid(1.0, 0.0)}}
    )
    report = assess(distant(4000, 10.0), current, "use/1", lambda _: 0.01, 0.98)
    (found,) = report.languages
    assert found.combined is not None
    assert found.combined.c > 5
    assert 0.5 < found.combined.near < 0.9
    assert report.combined == {"en": found.combined, "zh": Sigmoid(1.0, 0.0)}
    assert found.loss[1] < found.loss[0]


def test_what_was_fitted_with_a_cosine_goes_where_it_tells_nothing_now() -> None:
    current = Calibration(PLAIN.languages, {"use/1": {"en": Sigmoid(1.0, 0.0, 5.0, 0.8)}})
    report = assess(scored(2000), current, "use/1", lambda _: 0.01, 0.98)  # no embedder takes these
    assert report.languages[0].proposed is not None
    assert report.combined == {}


def test_figures_count_what_the_gateway_would_do() -> None:
    def one(same: bool, logit: float | None, *, vetoed: bool = False) -> Scored:
        return Scored(LabelledPair("q", "s", same), "en", vetoed, logit)

    pairs = [
        *[one(True, 4.0)] * 3, one(False, 3.0), one(True, 2.0), one(False, -2.0),
        one(True, 5.0, vetoed=True), one(False, 6.0, vetoed=True), one(True, None),
    ]  # fmt: skip
    (found,) = assess(pairs, PLAIN, "use/1", lambda _: 0.01, 0.98).languages
    assert (found.pairs, found.same, found.vetoed_same, found.vetoed_different, found.unread) == (
        9,
        6,
        1,
        1,
        1,
    )
    assert (share(found.recall), share(found.wrong), share(found.accepted)) == ((3, 6), (0, 3), (0, 3))
    assert found.proposed is None  # too few


def test_no_threshold_reaches_the_precision() -> None:
    pairs = [Scored(LabelledPair("q", "s", same), "en", False, 1.0) for same in (True, False)]
    (found,) = assess(pairs, PLAIN, "use/1", lambda _: 0.01, 0.98).languages
    assert (share(found.recall), share(found.wrong), share(found.accepted)) == ((0, 1), (0, 0), (0, 1))
    assert math.isnan(found.wrong.share)


def test_few_pairs_and_a_verifier_that_is_worse_than_none_change_nothing() -> None:
    few = scored(60)[: 2 * lab.LEAST - 1]
    inverted = [Scored(one.pair, "zh", False, -(one.logit or 0)) for one in scored(400)]
    report = assess([*few, *inverted], PLAIN, "use/1", lambda _: 0.01, 0.98)
    assert [one.proposed for one in report.languages] == [None, None]
    assert report.calibration == PLAIN.languages


def test_pairs_that_all_hang_together_judge_no_fit() -> None:
    pairs = [
        Scored(LabelledPair("one question", f"other {number}", one.pair.same), "en", False, one.logit)
        for number, one in enumerate(scored(4000, a=0.5, b=-1.0))
    ]
    (found,) = assess(pairs, PLAIN, "use/1", lambda _: 0.01, 0.98).languages
    assert found.proposed is None
    assert found.loss[0] == found.loss[1]


def test_languages_and_scenes_have_figures_of_their_own() -> None:
    pairs = [*scored(500, scene="support"), *scored(500, a=2.0, seed=2, language="zh")]
    report = assess(pairs, PLAIN, "use/1", {"support": 0.005, "default": 0.05}.__getitem__, 0.98)
    assert [one.name for one in report.languages] == ["en", "zh"]
    assert [(one.name, one.max_error) for one in report.scenes] == [("default", 0.05), ("support", 0.005)]
    for scene in report.scenes:
        hits = [step.hits.count for step in scene.steps]
        assert hits == sorted(hits)
        for step in scene.steps:  # no share of hits without one of wrong answers
            assert step.wrong.total == step.hits.count + step.wrong.count
            assert step.errors.count == step.wrong.count


@pytest.mark.parametrize(
    ("surely_within", "chosen"),
    [
        ((0.99, 0.97, 0.95, 0.92, 0.9, 0.85), 0.85),
        ((0.99, 0.97, 0.95, 0.92), 0.92),
        ((0.99, 0.97), 0.97),
        ((0.92, 0.9), 0.9),
        ((0.9, 0.85), None),
        ((), None),
    ],
)
def test_the_walk_begins_at_092(surely_within: tuple[float, ...], chosen: float | None) -> None:
    steps = [
        Step(at, Share(1, 2), Share(0, 1), Share(0 if at in surely_within else 500, 1000))
        for at in (0.99, 0.97, 0.95, 0.92, 0.9, 0.85)
    ]
    found = walk_down(steps, 0.01)
    assert (found.threshold if found else None) == chosen


def test_pairs_of_two_languages_are_none_for_the_gateway() -> None:
    pairs = [LabelledPair("capital of France", "法国的首都", same=True, language="en")]
    (one,) = score_all(
        pairs, [0.5], lambda a, b: 3.0, lambda a, b: False, lambda t: "en" if t.isascii() else "zh"
    )
    assert (one.language, one.vetoed) == ("*", True)
    assert assess([one], PLAIN, "use/1", lambda _: 0.01, 0.98).misnamed == 1


GOOD: dict[str, Any] = {"q1": "a", "q2": "b", "label": 1}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"{", "not JSON"),
        (b'{"q1": "\xff", "q2": "b", "label": 1}', "not JSON in UTF-8"),
        (b"[1]", "must be an object"),
        ({"q2": "b", "label": 1}, "q1 must be a question"),
        ({"q1": "a", "q2": " ", "label": 1}, "q2 must be a question"),
        ({"q1": 1, "q2": "b", "label": 1}, "q1 must be a question"),
        ({"asked": "a", "label": 1}, "stored must be a question"),
        ({"q1": "a" * (MAX_CHARS + 1), "q2": "b", "label": 1}, "more than 8192 characters"),
        ({"q1": "a", "q2": "b"}, "needs one of label, same, right"),
        ({**GOOD, "same": True}, "needs one of"),
        ({**GOOD, "label": 2}, "label must be 1 or 0"),
        ({**GOOD, "label": None}, "label must be"),
        ({**GOOD, "label": "maybe"}, "label must be"),
        ({**GOOD, "label": 0.5}, "label must be"),
        ({**GOOD, "label": [1]}, "label must be"),
        ({**GOOD, "scene": 1}, "must be texts"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: bytes | dict[str, Any], complaint: str) -> None:
    wrong = line if isinstance(line, bytes) else json.dumps(line).encode()
    file = tmp_path / "pairs.jsonl"
    file.write_bytes(json.dumps(GOOD).encode() + b"\n\n" + wrong + b"\n")
    with pytest.raises(StrataError) as refused:
        read_labelled(file)
    assert f"{file}, line 3: " in str(refused.value)
    assert complaint in str(refused.value)


def test_all_ways_to_say_it_are_read(tmp_path: Path) -> None:
    lines = [
        GOOD,
        {
            "asked": "a",
            "stored": "b",
            "right": False,
            "scene": "support",
            "language": "en",
            "probability": 0.9,
        },
        {"q1": "a", "q2": "b", "same": "yes"},
        {"q1": "a", "q2": "b", "label": 0},
    ]
    file = tmp_path / "pairs.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    assert [(one.same, one.scene) for one in read_labelled(file)] == [
        (True, "default"), (False, "support"), (True, "default"), (False, "default"),
    ]  # fmt: skip
    assert from_gateway(lines) == read_labelled(file)


@pytest.mark.parametrize("content", [b"", b"\n \n"])
def test_a_file_without_pairs_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "pairs").write_bytes(content)
    with pytest.raises(StrataError, match="holds no pair"):
        read_labelled(tmp_path / "pairs")
    with pytest.raises(StrataError, match="No such file"):
        read_labelled(tmp_path / "none")


def test_a_calibration_is_read_as_it_was_written(tmp_path: Path) -> None:
    fits = {"*": Sigmoid(1.0, 0.0), "en": Sigmoid(0.5, -1.0)}
    made = CalibrationFile(1, "abc", fits, {"en": 100}, {"use/1": {"en": Sigmoid(0.5, -1.0, 2.0, 0.8)}})
    write_calibration(tmp_path / "new" / "c.json", made)
    assert read_calibration(tmp_path / "new" / "c.json") == made
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["c.json"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "No such file"),
        (b"{", "no calibration"),
        (b'{"format": 2, "verifier": "v", "languages": {"*": {"a": 1, "b": 0}}}', "format 2"),
        (b'{"format": 1, "verifier": "v", "languages": {"en": {"a": 1, "b": 0}}}', "other languages"),
        (b'{"format": 1, "verifier": "v", "languages": {"*": {"a": -1, "b": 0}}}', "finite a above 0"),
        (
            b'{"format": 1, "verifier": "v", "languages": {"*": {"a": 1, "b": 0}}, '
            b'"embedders": {"e": {"en": {"a": 1, "b": 0, "c": -1}}}}',
            "finite c",
        ),
        (b'{"format": 1, "languages": {"*": {"a": 1, "b": 0}}}', "no calibration"),
    ],
)
def test_a_calibration_that_is_none_is_refused(tmp_path: Path, content: bytes | None, complaint: str) -> None:
    file = tmp_path / "c.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SettingsError) as refused:
        read_calibration(file)
    assert str(refused.value).startswith(f"tiers.semantic.calibration: {file}")
    assert complaint in str(refused.value)
