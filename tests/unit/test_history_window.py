"""The history-window benchmark's own rules: what it calls a hit, a wrong one, and the right answer to a turn."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from benchmarks import history_window, support_traffic
from benchmarks.history_window import Call, foreign, kind_of, likeness, replay_generated, replay_recorded
from benchmarks.support_traffic import Turn, chinese_topics, conversations, english_topics

TOPICS = [["How do I get a card?", "Can I have a card?"], ["How do I close my account?"]]
POLICY = {"role": "system", "content": "You book flights."}


def said(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def tool_call(name: str, **arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "tool_calls": [{"id": f"call_{id(function)}", "function": function}]}


@pytest.mark.parametrize(
    ("served", "own", "expected"),
    [
        (said("assistant", "**Done**, thanks!"), said("assistant", "done thanks"), "same"),
        (tool_call("cancel", id="AB12CD"), tool_call("cancel", id="AB12CD"), "same"),
        (tool_call("cancel", id="AB12CD"), tool_call("cancel", id="ZZ99ZZ"), "different"),
        (tool_call("cancel", id="AB12CD"), said("assistant", "Shall I cancel it?"), "different"),
        (
            said("assistant", "Your booking AB12CD is cancelled and the money is on its way."),
            said("assistant", "Your booking AB12CD is cancelled and the money is on the way."),
            "near",
        ),
        (
            said("assistant", "Your booking AB12CD is cancelled and the money is on its way."),
            said("assistant", "Your booking ZZ99ZZ is cancelled and the money is on its way."),
            "different",
        ),
        (said("assistant", "You have to pay 50 dollars."), said("assistant", "It is free."), "different"),
    ],
)
def test_replies_are_the_same_near_or_different(served: Any, own: Any, expected: str) -> None:
    assert likeness(served, own) == expected
    assert likeness(own, served) == expected


def test_foreign_is_what_the_asker_never_named() -> None:
    call = Call([POLICY, said("user", "Cancel AB12CD")], said("assistant", "It costs $50, booked by user_7."))
    assert not foreign(said("assistant", "AB12CD is gone, user_7. 1. Nothing else."), call)
    assert foreign(said("assistant", "You pay $75."), call)
    assert foreign(tool_call("cancel_booking", id="ZZ99ZZ"), call)


def test_kinds_of_recorded_turns() -> None:
    first = [POLICY, said("user", "A flight to Rome, please, on the first of May, for two.")]
    assert kind_of(first) == "first message"
    assert kind_of([*first, said("assistant", "Book it?"), said("user", "Yes, please.")]) == "short message"
    longer = said("user", "Yes please, but only if it does not leave before eleven.")
    assert kind_of([*first, said("assistant", "Book it?"), longer]) == "longer message"
    assert kind_of([*first, tool_call("search"), said("tool", "[]")]) == "after a tool"


def run_of(task: int, booking: str) -> dict[str, Any]:
    return {
        "task_id": task,
        "trial": 0,
        "system_ref": "p",
        "messages": [
            said("user", f"Please cancel {booking}."),
            said("assistant", f"Cancel {booking}?"),
            said("user", "Yes, please."),
            tool_call("cancel_booking", id=booking),
        ],
    }


@pytest.mark.parametrize(("window", "hits", "wrong"), [(1, 3, 1), (2, 2, 0), (None, 2, 0)])
def test_a_short_window_cancels_another_callers_booking(window: int | None, hits: int, wrong: int) -> None:
    runs = [run_of(1, "AB12CD"), run_of(2, "ZZ99ZZ"), run_of(3, "AB12CD")]
    calls = list(history_window.recorded_calls(runs, {"p": "You book flights."}))
    assert [call.messages[0]["role"] for call in calls] == ["system"] * 6
    counts = replay_recorded(calls, window, []).counts
    assert counts == +Counter(
        requests=6,
        hits=hits,
        wrong=wrong,
        foreign=wrong,
        foreign_writes=wrong,
        same=2,
        different=wrong,
    )


@pytest.mark.parametrize(("window", "hits", "wrong"), [(1, 2, 1), (2, 1, 0), (None, 1, 0)])
def test_a_follow_up_is_wrong_after_another_question(window: int | None, hits: int, wrong: int) -> None:
    card = Turn("question", "How do I get a card?", "card")
    loan = Turn("question", "How do I get a loan?", "loan")
    price = "How much is it?"
    traffic = [
        (card, Turn("about the topic", price, "card price")),
        (loan, Turn("about the topic", price, "loan price")),
        (card,),
    ]
    tally = replay_generated(traffic, "You are a bank's bot.", window)
    figures = tally.figures()
    assert (figures["requests"], figures["hits"], tally.counts["wrong"]) == (5, hits, wrong)
    assert figures["possible"] == 1
    assert (figures["conversations"], figures["misled"]) == (3, wrong)
    assert figures["wrong_per_hit"] == wrong / hits
    assert figures["by_kind"]["about the topic"].get("wrong", 0) == wrong


def test_the_whole_history_is_never_wrong() -> None:
    traffic = list(conversations(TOPICS, "en", 300, 0.3, seed=5))
    assert replay_generated(traffic, "", None).counts["wrong"] == 0
    assert replay_generated(traffic, "", 1).counts["wrong"] > 0


def test_a_seed_gives_one_traffic() -> None:
    assert list(conversations(TOPICS, "zh", 50, 0.2, 1)) == list(conversations(TOPICS, "zh", 50, 0.2, 1))
    assert list(conversations(TOPICS, "zh", 50, 0.2, 1)) != list(conversations(TOPICS, "zh", 50, 0.2, 2))


def test_truth_follows_topic_last_answer_and_fact() -> None:
    for turns in conversations(TOPICS, "en", 300, 0.5, seed=3):
        assert 1 <= len(turns) <= support_traffic.MOST_TURNS
        fact = turns[0].text if turns[0].kind == "about the caller" else ""
        topic, last = "", ""
        for turn in turns[bool(fact) :]:
            if turn.kind == "thanks":
                assert turn.truth == "thanks"
                continue
            if turn.kind == "question":
                topic = f"topic {[turn.text in texts for texts in TOPICS].index(True)}"
                assert turn.truth in (topic, f"{topic}, {fact}")
            elif turn.kind == "about the topic":
                assert turn.truth in (f"{topic} {turn.text}", f"{topic} {turn.text}, {fact}")
            else:
                assert turn.truth == f"{last} > {turn.text}"
            last = turn.truth


def test_facts_open_conversations_only_when_asked_for() -> None:
    kinds = {turn.kind for turns in conversations(TOPICS, "en", 200, 0.0, 1) for turn in turns}
    assert "about the caller" not in kinds
    assert all(turns[0].kind == "about the caller" for turns in conversations(TOPICS, "en", 50, 1.0, 1))


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), encoding="utf-8")


def test_topics_are_intents_and_share_no_text(tmp_path: Path) -> None:
    rows = [("Where is my card?", "a"), ("where is my card", "b"), ("What is a PIN?", "b"), ("Hi", "c")]
    write_rows(tmp_path / "queries/banking77/queries.jsonl", [{"text": t, "intent": i} for t, i in rows])
    topics = english_topics(tmp_path, 1)
    texts = [text.lower().strip("?") for topic in topics for text in topic]
    assert sorted(texts) == ["hi", "what is a pin", "where is my card"]


def test_chinese_topics_join_pairs_labelled_the_same(tmp_path: Path) -> None:
    same = [
        {"q1": "怎么还款", "q2": text, "label": 1}
        for text in ("如何还款", "怎样还", "还钱", "还贷", "怎么还")
    ]
    other = [{"q1": "怎么还款", "q2": "怎么借款", "label": 0}]
    write_rows(tmp_path / "pairs/bq_corpus/pairs.jsonl", same + other)
    assert [sorted(topic) for topic in chinese_topics(tmp_path, 1)] == [
        sorted(["怎么还款", *(row["q2"] for row in same)])
    ]


def test_without_data_nothing_is_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STRATACACHE_DATA", raising=False)
    history_window.main([])
    assert "not measured" in capsys.readouterr().out
