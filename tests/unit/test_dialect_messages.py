"""Anthropic's dialect: which requests are refused, which answers are whole, and streams that break the rules."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stratacache.dialects.anthropic_assemble import Assembler
from stratacache.dialects.anthropic_messages import completeness, error_body, parse, usage_of
from stratacache.dialects.anthropic_replay import replay
from stratacache.dialects.sse import Event, SSEParser
from stratacache.dialects.typed_events import encode_event
from stratacache.errors import RequestError, SettingsError, UpstreamError
from stratacache.testing.anthropic import events_of
from stratacache.types import Usage

TEXT = {"type": "text", "text": "Paris."}
CALL = {"type": "tool_use", "id": "t", "name": "f", "input": {"a": [1, {"b": "ü"}]}}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
USAGE = {
    "input_tokens": 5,
    "cache_read_input_tokens": 7,
    "cache_creation_input_tokens": 11,
    "output_tokens": 3,
}


def message(*content: Any, stop: Any = "end_turn", **more: Any) -> dict[str, Any]:
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": list(content or [TEXT]),
        "stop_reason": stop, "stop_sequence": None, "usage": USAGE, **more,
    }  # fmt: skip


def assembled(events: list[dict[str, Any]]) -> Assembler:
    assembler = Assembler()
    for event in events:
        assembler.take(Event(msgspec.json.encode(event)), strip_usage=False)
    return assembler


SAYS = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "model"),
        ({"model": "m"}, "messages"),
        ({"model": "m", "messages": SAYS}, "max_tokens"),
        ({"model": "m", "messages": SAYS, "max_tokens": "9"}, "max_tokens"),
        ({"model": "m", "messages": [], "max_tokens": 9}, "messages"),
        ({"model": "m", "messages": [{"content": "x"}], "max_tokens": 9}, "messages[0].role"),
        ({"model": "m", "messages": SAYS, "max_tokens": 9, "system": 1}, "system"),
        ({"model": "m", "messages": SAYS, "max_tokens": 9, "system": ["x"]}, "system[0]"),
        ({"model": "m", "messages": SAYS, "max_tokens": 9, "stream": "yes"}, "stream"),
    ],
)
def test_what_is_refused(body: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as told:
        parse(body)
    assert (told.value.status, told.value.param) == (400, param)


def test_counting_tokens_needs_no_limit() -> None:
    assert parse({"model": "m", "messages": SAYS}, counting=True).model == "m"


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (message(), None),
        (message(THOUGHT, TEXT), None),
        (message(TEXT, CALL, stop="tool_use"), None),
        (message(stop="stop_sequence", stop_sequence="x"), None),
        (message(stop="max_tokens"), "truncated"),
        (message(stop="model_context_window_exceeded"), "truncated"),
        (message(stop="refusal"), "refused"),
        (message(stop="pause_turn"), "unfinished"),
        (message(stop=None), "unfinished"),
        (message(stop="a_reason_of_next_year"), "unfinished"),
        (message(stop="tool_use"), "malformed"),
        (message({"type": "text", "text": " \n"}), "empty"),
        (message(THOUGHT), "empty"),
        ({**message(), "content": []}, "empty"),
        ({**message(), "content": None}, "malformed"),
        (message({**CALL, "input": "{}"}, stop="tool_use"), "malformed"),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "x"}}, "error"),
        (None, "malformed"),
    ],
)
def test_only_whole_answers_are_complete(answer: Any, fault: str | None) -> None:
    assert completeness(answer) == fault


def test_the_prompt_s_tokens_include_those_of_the_prompt_cache() -> None:
    assert usage_of(message()) == Usage(prompt=23, completion=3, cached_prompt=7, written_5m=11)
    assert usage_of({"usage": {"output_tokens": 1}}) == Usage(None, 1, None)
    assert usage_of({}) == Usage()


@pytest.mark.parametrize(
    "answer",
    [
        message(),
        message(THOUGHT, {"type": "redacted_thinking", "data": "x"}, TEXT, CALL, stop="tool_use"),
        message({**TEXT, "citations": [{"type": "char_location", "cited_text": "x"}]}),
        message({**TEXT, "citations": None}),
        message({**CALL, "input": {}}, stop="tool_use"),
        message(container=None, diagnostics={"cache_miss_reason": None}),
    ],
)
def test_a_provider_s_events_and_our_replay_give_the_same_message(answer: dict[str, Any]) -> None:
    assert assembled(list(events_of(answer))).result() == answer
    assert assembled([msgspec.json.decode(p) for p in replay(answer)]).result() == answer


START = {"type": "message_start", "message": message(stop=None, content=[])}
OPEN = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
GROW = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}}
CLOSE = {"type": "content_block_stop", "index": 0}
END = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}
STOP = {"type": "message_stop"}
PING = {"type": "ping"}


@pytest.mark.parametrize(
    "events",
    [
        [OPEN, CLOSE, END, STOP],
        [START, START, OPEN, CLOSE, END, STOP],
        [START, OPEN, GROW, END, STOP],
        [START, GROW, END, STOP],
        [START, OPEN, {**GROW, "index": 1}, CLOSE, END, STOP],
        [START, OPEN, {**GROW, "delta": {"type": "delta_of_next_year"}}, CLOSE, END, STOP],
        [START, OPEN, CLOSE, {"type": "event_of_next_year"}, END, STOP],
        [START, OPEN, CLOSE, {"type": "error", "error": {"type": "overloaded_error"}}],
        [START, OPEN, GROW, CLOSE, STOP],
        [START, OPEN, GROW, CLOSE, END],
        [START, {**OPEN, "content_block": CALL}, {**GROW, "delta": {"type": "input_json_delta", "partial_json": "{"}},
         CLOSE, END, STOP],
    ],
)  # fmt: skip
def test_a_stream_that_breaks_the_rules_is_no_answer(events: list[dict[str, Any]]) -> None:
    assert assembled(events).result() is None


def test_pings_are_passed_on_and_change_nothing() -> None:
    assembler = assembled([START, PING, OPEN, GROW, PING, CLOSE, END, PING, STOP])
    answer = assembler.result()
    assert answer is not None
    assert answer["content"] == [{"type": "text", "text": "a"}]
    assert answer["usage"] == {**USAGE, "output_tokens": 2}


@pytest.mark.parametrize("payload", [b'{"type":"ping"}', b'{"x":1,"type":"ping"}', b' { "type" : "ping"}'])
def test_events_are_named_after_their_type(payload: bytes) -> None:
    [event] = SSEParser().feed(encode_event(payload))
    assert (event.event, event.data) == ("ping", payload)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RequestError("x"), "invalid_request_error"),
        (RequestError("x", status=401), "authentication_error"),
        (RequestError("x", status=403), "permission_error"),
        (RequestError("x", status=404), "not_found_error"),
        (RequestError("x", status=413), "request_too_large"),
        (RequestError("x", status=429), "rate_limit_error"),
        (RequestError("x", status=500), "api_error"),
        (UpstreamError("x"), "api_error"),
        (UpstreamError("x", status=503), "overloaded_error"),
        (UpstreamError("x", status=504), "timeout_error"),
    ],
)
def test_errors_are_of_the_api_s_kinds(error: RequestError | UpstreamError, kind: str) -> None:
    assert msgspec.json.decode(error_body(error)) == {
        "type": "error",
        "error": {"type": kind, "message": "x"},
    }


def test_other_errors_show_no_detail() -> None:
    assert b"secret" not in error_body(SettingsError("secret"))
