"""Every field of OpenAI's chat request is honoured, refused by name, or proved irrelevant; bad input is clear."""

from __future__ import annotations

import json
from typing import Any, get_type_hints

import pytest

from stratacache.engine.errors import InvalidRequest, RequestError, UnsupportedFeature
from stratacache.engine.protocol import HONOURED, IRRELEVANT, ONLY_NEUTRAL, ChatRequest, parse_chat
from stratacache.engine.sequence import Sampling

BASE: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def parse(**fields: Any) -> ChatRequest:
    return parse_chat(json.dumps(BASE | fields).encode())


def test_every_field_that_the_openai_sdk_can_send_is_classed_once() -> None:
    from openai.types.chat import completion_create_params as params

    fields = set(get_type_hints(params.CompletionCreateParamsBase)) | {"stream"}
    classes = [HONOURED, IRRELEVANT, frozenset(ONLY_NEUTRAL)]
    for name in fields:
        assert sum(name in kind for kind in classes) == 1, f"{name} is not classed, or twice"


def test_defaults_are_openais() -> None:
    request = parse()
    assert request.sampling == Sampling(temperature=1.0, top_p=1.0, top_k=0, seed=None)
    assert (request.stream, request.include_usage, request.max_tokens, request.stops) == (
        False,
        False,
        None,
        (),
    )
    assert request.salt is None


def test_what_is_honoured() -> None:
    request = parse(
        temperature=0,
        top_p=0.5,
        top_k=3,
        seed=-4,
        stop="\n",
        max_tokens=5,
        cache_salt="t",
        stream=True,
        stream_options={"include_usage": True},
    )
    assert request.sampling == Sampling(0.0, 0.5, 3, -4)
    assert (request.stops, request.max_tokens, request.salt) == (("\n",), 5, "t")
    assert (request.stream, request.include_usage) == (True, True)


def test_what_else_is_honoured() -> None:
    request = parse(n=3, logprobs=True, top_logprobs=4, priority=-2, conversation="c", topic="t", timeout=2.5)
    assert (request.n, request.sampling.top_logprobs, request.priority) == (3, 4, -2)
    assert (request.conversation, request.topic, request.timeout) == ("c", "t", 2.5)
    assert parse(logprobs=True).sampling.top_logprobs == 0
    assert parse(logprobs=False, top_logprobs=0).sampling.top_logprobs is None
    assert parse(n=1).n == parse().n == 1


@pytest.mark.parametrize(
    ("wanted", "schema"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, {"type": "object"}),
        (
            {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "array"}}},
            {"type": "array"},
        ),
        ({"type": "json_schema", "json_schema": {"name": "x", "strict": True}}, {"type": "object"}),
    ],
)
def test_response_formats(wanted: dict[str, Any], schema: dict[str, Any] | None) -> None:
    assert parse(response_format=wanted).schema == schema


@pytest.mark.parametrize("name", sorted(IRRELEVANT))
def test_what_cannot_change_the_answer_is_accepted(name: str) -> None:
    assert parse(**{name: "anything"}) == parse()


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": "function"}]},
        {"tool_choice": "required"},
        {"functions": [{}]},
        {"presence_penalty": 0.5},
        {"frequency_penalty": -1},
        {"logit_bias": {"5": 1}},
        {"reasoning_effort": "high"},
        {"verbosity": "low"},
        {"audio": {}},
        {"modalities": ["audio"]},
        {"web_search_options": {}},
        {"min_p": 0.1},
        {"no_such_field": 1},
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(fields: dict[str, Any]) -> None:
    (name,) = fields
    with pytest.raises(UnsupportedFeature, match=name) as caught:
        parse(**fields)
    assert caught.value.param == name


@pytest.mark.parametrize("name", sorted(ONLY_NEUTRAL))
def test_neutral_values_and_null_are_accepted(name: str) -> None:
    assert parse(**{name: None}) == parse()
    for value in ONLY_NEUTRAL[name]:
        assert parse(**{name: value}) == parse()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": 5}, "model"),
        ({"model": None}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": ["user"], "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [5]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": "x", "name": "Bob"}]}, "messages[0].name"),
        ({"messages": [{"role": "assistant", "content": "x", "tool_calls": [{}]}]}, "messages[0].tool_calls"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": -0.1}, "top_p"),
        ({"top_k": 1.5}, "top_k"),
        ({"seed": 1 << 64}, "seed"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens"),
        ({"stop": 5}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"else": 1}}, "stream_options"),
        ({"stream": True, "stream_options": []}, "stream_options"),
        ({"cache_salt": 5}, "cache_salt"),
        ({"n": 0}, "n"),
        ({"n": 17}, "n"),
        ({"n": True}, "n"),
        ({"logprobs": 5}, "logprobs"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"priority": 1.5}, "priority"),
        ({"conversation": ""}, "conversation"),
        ({"conversation": "x" * 257}, "conversation"),
        ({"topic": 5}, "topic"),
        ({"timeout": 0}, "timeout"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": True}}},
            "response_format.json_schema",
        ),
    ],
)
def test_wrong_values_are_refused_with_their_place(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse(**fields)
    assert (caught.value.status, caught.value.param) == (400, param)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"5",
        b"null",
        b'{"model": NaN}',
        b'"\xff"',
        b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=["empty", "cut", "list", "number", "null", "nan", "bytes", "deep"],
)
def test_what_is_no_request_at_all(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        parse_chat(body)


def test_text_parts_are_joined_and_developer_means_system() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    request = parse(messages=[{"role": "developer", "content": "x"}, {"role": "user", "content": parts}])
    assert request.messages == ({"role": "system", "content": "x"}, {"role": "user", "content": "a\nb"})


def test_an_answer_can_be_sent_back_as_the_sdk_dumps_it() -> None:
    echo = {
        "role": "assistant",
        "content": "x",
        "refusal": None,
        "annotations": [],
        "audio": None,
        "tool_calls": None,
    }
    assert parse(messages=[echo]).messages == ({"role": "assistant", "content": "x"},)
