"""The load test's questions: their mix, their families, what a cache could answer of them."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from stratacache.errors import StrataError
from stratacache.lab.labelled import LabelledPair
from stratacache.lab.load import Hits, Load, Objective, Price, Saved, Step, Times, summed
from stratacache.lab.load_report import hit_rows, html_report, milliseconds, saved_words, step_rows, tier_rows
from stratacache.lab.load_traffic import (
    Ask,
    Bank,
    Mix,
    answerable,
    asks,
    bank_of,
    built_in_bank,
    read_questions,
)


def test_the_mix_is_kept_and_repeats_for_a_seed() -> None:
    asked = list(islice(asks(built_in_bank(), Mix()), 5000))
    counts = Counter(ask.kind for ask in asked)
    assert counts["repeated"] / 5000 == pytest.approx(0.7, abs=0.03)
    assert counts["similar"] / 5000 == pytest.approx(0.2, abs=0.03)
    assert asked == list(islice(asks(built_in_bank(), Mix()), 5000))
    assert asked != list(islice(asks(built_in_bank(), Mix(seed=2)), 5000))
    fresh = [ask.text for ask in asked if ask.kind == "new"]
    assert len(set(fresh)) == len(fresh)
    popular = Counter(ask.family for ask in asked if ask.kind == "repeated").most_common()
    assert popular[0][1] > 5 * popular[50][1]


def test_similar_questions_are_of_the_family_and_other_words() -> None:
    bank = built_in_bank()
    for ask in islice(asks(bank, Mix(repeated=0, similar=1)), 300):
        assert ask.kind == "similar"
        assert ask.text != ask.family
        assert bank.family_of(ask.text) == ask.family


def test_every_text_of_the_built_in_bank_is_of_one_family_in_both_languages() -> None:
    texts = [text for family in built_in_bank().families for text in family]
    assert len(texts) == len(set(texts)) > 300
    assert sum(not text.isascii() for text in texts) > 50


def test_pairs_are_joined_over_several() -> None:
    pairs = [
        LabelledPair("a", "b", True), LabelledPair("c", "b", True),
        LabelledPair("a", "x", False), LabelledPair("y", "x", True),
    ]  # fmt: skip
    assert sorted(tuple(sorted(family)) for family in bank_of(pairs).families) == [
        ("a", "b", "c"),
        ("x", "y"),
    ]


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(StrataError, match="empty"):
        Bank([])
    with pytest.raises(StrataError, match="more than 1"):
        next(asks(built_in_bank(), Mix(repeated=0.8, similar=0.3)))
    only = islice(asks(Bank([("one",)]), Mix(repeated=0, similar=1)), 5)
    assert {ask.kind for ask in only} == {"new"}  # there is nothing similar to ask


def test_what_a_cache_could_answer() -> None:
    asked = [Ask("new", "a", "a"), Ask("similar", "a", "A"), Ask("new", "b", "b"), Ask("repeated", "a", "a")]
    assert answerable(asked) == [False, True, False, True]


def step(rate: float, broke: str | None = None, judged: int = 8) -> Step:
    times = Times(10, 0.001, 0.01, 0.1)
    hits = Hits(10, 8, 9, judged, 1 if judged else 0)
    return Step(
        rate, rate, 0, times, 0.0, {"exact": times, "model": times}, hits, Saved(1_000_000, 50), broke
    )


def test_the_report_tells_hits_beside_wrong_answers_and_the_bound() -> None:
    load = summed(
        "http://<x>/v1", Objective(0.5), (step(10), step(15), step(22, "p99 700 ms")), Times(5, 1, 1, 1)
    )
    assert load.sustained == 15
    assert load.total == Hits(30, 24, 27, 24, 3)
    assert hit_rows(load.total) == [
        ("answered from cache", "80.0%", "30 requests"),
        ("could have been", "90.0%", "30 requests"),
        ("wrong answers", "12.50%", "24 hits that an echo model answered"),
    ]
    assert [row[0] for row in tier_rows(load)] == ["exact", "model", "without cache"]
    assert step_rows(load)[2][-1] == "p99 700 ms"
    page = html_report(load)
    assert "&lt;x&gt;" in page
    assert "<x>" not in page
    assert "//" not in page.replace("http://&lt;", "")  # nothing is fetched
    assert page.count("<tr>") == page.count("</tr>")


def test_without_an_echo_wrong_answers_are_not_known() -> None:
    load: Load = summed("u", Objective(), (step(10, "late", judged=0),), None)
    assert load.sustained == 0
    assert hit_rows(load.total)[2] == ("wrong answers", "-", "0 hits that an echo model answered")
    assert [row[0] for row in tier_rows(load)] == ["exact", "model"]
    assert html_report(summed("u", Objective(), (), None))


def test_what_was_saved_in_money() -> None:
    load = summed("u", Objective(), (step(10), step(20)), None, Price(0.5, 100.0))
    assert load.saved == Saved(2_000_000, 100)
    assert saved_words(load) == "2,000,000 prompt and 100 answer tokens, 1.01 at the given price"
    assert saved_words(summed("u", Objective(), ())) == "0 prompt and 0 answer tokens"


def test_a_trace_of_questions(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text('{"timestamp": 3000, "input": "B"}\n\n{"timestamp": 1000, "input": "x"}\n')
    assert read_questions(path, Bank([("b", "B")]), 1e3) == [
        (0.0, Ask("repeated", "x", "x")), (2.0, Ask("repeated", "b", "B")),
    ]  # fmt: skip
    for text, words in (
        ("", "no questions"),
        ("{}", "line 1"),
        ('{"timestamp": "x", "input": ""}', "line 1"),
    ):
        path.write_text(text)
        with pytest.raises(StrataError, match=words):
            read_questions(path, built_in_bank(), 1)
    with pytest.raises(StrataError, match="cannot read"):
        read_questions(tmp_path / "none", built_in_bank(), 1)


def test_times_are_worded() -> None:
    assert [milliseconds(s) for s in (0.00084, 0.0073, 0.24, 2.4)] == [
        "0.84 ms",
        "7.3 ms",
        "240 ms",
        "2,400 ms",
    ]
