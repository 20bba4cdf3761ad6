"""What two requests must have in common before one may be answered with the other's answer."""

from __future__ import annotations

from typing import Any

import pytest

from stratacache.policy.key import exact_key
from stratacache.policy.partition import MAX_QUESTION, Scoped, Unfit, has_history, question_of, scope_of
from stratacache.types import CacheControl, Request, Scope

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi."},
]


def request(*messages: Any, scope: Scope | None = None, model: str = "m", **fields: Any) -> Request:
    said = [{"role": "user", "content": m} if isinstance(m, str | list) else m for m in messages]
    return Request(
        endpoint="chat.completions",
        model=model,
        resolved_model=model,
        upstream="u",
        body={"model": model, "messages": said, **fields},
        scope=scope or Scope(),
        control=CacheControl(),
    )


def scoped(asked: Request, *, alone: bool = False) -> Scoped:
    found = scope_of(exact_key(asked).form, alone=alone)
    assert found is not None
    return found


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def test_only_the_words_of_the_last_question_may_differ() -> None:
    one, other = scoped(request("What is a cache?")), scoped(request("Why is the sky blue?"))
    assert one.form == other.form
    assert one.partition("en") == other.partition("en")
    assert (one.text, other.text) == ("what is a cache", "why is the sky blue")


@pytest.mark.parametrize(
    "other",
    [
        request("Q?", scope=Scope(tenant="other")),
        request("Q?", scope=Scope(namespace="n")),
        request("Q?", scope=Scope(profile="gold")),
        request("Q?", scope=Scope(credential="c")),
        request("Q?", model="m2"),
        request({"role": "system", "content": "Be rude."}, "Q?"),
        request("Q?", temperature=0.5),
        request("Q?", seed=2**63),
        request("Q?", seed=2**63 + 1),
        request("Q?", tools=[{"type": "function", "function": {"name": "f"}}]),
        request("Q?", response_format={"type": "json_object"}),
        request("Q?", unheard_of=""),
        request([text("Q?"), IMAGE]),
        request([IMAGE, text("Q?")]),
        request([text("Q?")]),
        request({"role": "user", "content": "Q?", "name": "eve"}),
        request(*CHAT, "Q?"),
        request(*CHAT[1:], "Q?"),
    ],
)
def test_whatever_else_differs_makes_another_partition(other: Request) -> None:
    plain = scoped(request("Q?"))
    assert scoped(other).form != plain.form
    assert scoped(other).partition("en") != plain.partition("en")


def test_numbers_beyond_a_double_are_told_apart() -> None:
    forms = {scoped(request("Q?", seed=2**63 + n)).form for n in range(3)}
    assert len(forms) == 3


def test_languages_are_apart() -> None:
    here = scoped(request("Q?"))
    assert here.partition("en") != here.partition("zh")
    assert len(here.partition("en")) == 16


def test_a_question_that_stands_alone_is_filed_with_those_asked_at_first() -> None:
    first = scoped(request(CHAT[0], "What is a cache?"))
    later = request(*CHAT, "What is a heap?")
    assert scoped(later).form != first.form
    assert scoped(later, alone=True).form == first.form
    assert scoped(request(*CHAT[1:], "What is a heap?"), alone=True).form != first.form


def test_what_looks_like_the_question_elsewhere_stays() -> None:
    asked = request("stop here", stop="stop here", prediction={"type": "content", "content": "stop here"})
    assert scoped(asked).form.count(b"stop here") == 2
    assert (
        scoped(asked).form
        != scoped(request("stop here", stop="", prediction={"type": "content", "content": ""})).form
    )


def test_a_blank_scope_is_the_form_of_a_blank_question() -> None:
    asked = request([text("What is on it?"), IMAGE], temperature=0)
    blank = request([text(""), IMAGE], temperature=0)
    assert scoped(asked).form == exact_key(blank).form


@pytest.mark.parametrize(
    "form", [b"", b"{}", b"[1,2]", b"not json", b"[" * 2000, exact_key(request(*CHAT)).form]
)
def test_a_form_without_a_last_question_has_no_scope(form: bytes) -> None:
    assert scope_of(form) is None


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (request(*CHAT), "no_question"),
        (request("  "), "no_question"),
        (request([IMAGE]), "no_question"),
        (request("Q?", {"role": "tool", "content": "42", "tool_call_id": "c"}, "And?"), "tool_results"),
        (request([text("a"), text("b")]), "several_texts"),
        (request("x" * (MAX_QUESTION + 1)), "question_too_long"),
        (request({"role": "system", "content": "You translate into German."}, "Q?"), "works_on_text"),
        (request({"role": "developer", "content": "你是翻译"}, "Q?"), "works_on_text"),
        (request("Q?", logprobs=True), "shows_question"),
        (request("Q?", n=2), "shows_question"),
        (request("Q?", echo=True), "shows_question"),
    ],
)
def test_what_the_tier_must_leave_alone(asked: Request, reason: str) -> None:
    assert question_of(asked) == Unfit(reason)


def test_the_question_is_as_it_was_asked() -> None:
    assert question_of(request(*CHAT, " What is a Cache? \n")) == "What is a Cache?"
    assert question_of(request([IMAGE, text("What is it?")], n=1, logprobs=False)) == "What is it?"
    assert question_of(request("x" * MAX_QUESTION)) == "x" * MAX_QUESTION


def test_history_is_what_was_said_before_by_either() -> None:
    assert has_history(request(*CHAT, "Q?"))
    assert not has_history(request(CHAT[0], "Q?"))
