"""Checking chat requests, wording errors, and judging answers."""

import copy
from typing import Any

import msgspec
import pytest
from openai.types.chat import ChatCompletion

from stratacache.dialects.openai_chat import (
    completeness,
    error_body,
    parse,
    upstream_body,
    usage_of,
    without_usage,
)
from stratacache.errors import RequestError, StoreError, StrataError, UpstreamError
from stratacache.types import Usage

HELLO = {"role": "user", "content": "hello"}


def request(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [HELLO], **fields}


def answer(finish: Any = "stop", **message: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": "Paris.", **message}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def call(**fields: Any) -> dict[str, Any]:
    return {"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{}"}, **fields}


class TestParse:
    def test_a_plain_request(self) -> None:
        body = request()
        parsed = parse(body)
        assert (parsed.model, parsed.stream, parsed.include_usage, parsed.cache) == ("m", False, False, None)
        assert parsed.body is body

    def test_usage_is_included_only_in_a_stream_that_asks_for_it(self) -> None:
        options = {"include_usage": True}
        assert parse(request(stream=True, stream_options=options)).include_usage
        assert not parse(request(stream=True, stream_options={"include_usage": False})).include_usage
        assert not parse(request(stream=True, stream_options={})).include_usage
        assert not parse(request(stream=False, stream_options=options)).include_usage

    def test_litellms_cache_control_is_taken_out_and_the_input_left_alone(self) -> None:
        body = request(cache={"no-cache": True, "ttl": 60})
        before = copy.deepcopy(body)
        parsed = parse(body)
        assert parsed.cache == {"no-cache": True, "ttl": 60}
        assert parsed.body == request()
        assert body == before
        assert parse(request(cache=None)).body == request()

    @pytest.mark.parametrize(
        "fields",
        [
            {"stream": None, "stream_options": None},
            {"temperature": "warm", "n": -1, "a_field_of_next_year": [{}]},
            {"messages": [{"role": "oracle", "content": "a role nobody knows", "name": 3}]},
            {"messages": [{"role": "assistant"}, {"role": "assistant", "content": None, "tool_calls": 5}]},
            {"messages": [{"role": "user", "content": []}, {"role": "user", "content": ""}]},
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            {"model": "组织/模型:7b q4"},
        ],
    )
    def test_what_the_gateway_does_not_rely_on_is_the_upstreams_to_judge(
        self, fields: dict[str, Any]
    ) -> None:
        assert parse(request(**fields)).body == request(**fields)

    @pytest.mark.parametrize(
        ("fields", "param", "code"),
        [
            ({"model": None}, "model", "invalid_type"),
            ({"model": 4}, "model", "invalid_type"),
            ({"model": ""}, "model", "invalid_value"),
            ({"model": "  "}, "model", "invalid_value"),
            ({"model": "a\nb"}, "model", "invalid_value"),
            ({"model": "a" * 257}, "model", "invalid_value"),
            ({"messages": None}, "messages", "invalid_type"),
            ({"messages": "hello"}, "messages", "invalid_type"),
            ({"messages": {}}, "messages", "invalid_type"),
            ({"messages": []}, "messages", "empty_array"),
            ({"messages": [HELLO, "x"]}, "messages[1]", "invalid_type"),
            ({"messages": [{"content": "x"}]}, "messages[0].role", "missing_required_parameter"),
            ({"messages": [{"role": None}]}, "messages[0].role", "invalid_type"),
            (
                {"messages": [HELLO, HELLO, {"role": "user", "content": 5}]},
                "messages[2].content",
                "invalid_type",
            ),
            ({"messages": [{"role": "user", "content": {}}]}, "messages[0].content", "invalid_type"),
            ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]", "invalid_type"),
            (
                {"messages": [{"role": "user", "content": [{"text": "x"}]}]},
                "messages[0].content[0].type",
                "missing_required_parameter",
            ),
            (
                {"messages": [{"role": "user", "content": [{"type": "text"}, {"type": 1}]}]},
                "messages[0].content[1].type",
                "invalid_type",
            ),
            ({"stream": "true"}, "stream", "invalid_type"),
            ({"stream": 1}, "stream", "invalid_type"),
            ({"stream_options": True}, "stream_options", "invalid_type"),
            ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage", "invalid_type"),
            ({"cache": "no-store"}, "cache", "invalid_type"),
        ],
    )
    def test_a_wrong_field_is_named_by_its_path(self, fields: dict[str, Any], param: str, code: str) -> None:
        with pytest.raises(RequestError) as caught:
            parse(request(**fields))
        assert (caught.value.status, caught.value.param, caught.value.code) == (400, param, code)
        assert f"'{param}'" in caught.value.message

    @pytest.mark.parametrize("missing", ["model", "messages"])
    def test_a_missing_field_is_named(self, missing: str) -> None:
        with pytest.raises(RequestError, match=f"Missing required parameter: '{missing}'"):
            parse({key: value for key, value in request().items() if key != missing})

    def test_the_message_says_what_was_there_instead(self) -> None:
        with pytest.raises(
            RequestError, match="expected a string or an array of objects, but got an object inst"
        ):
            parse(request(messages=[{"role": "user", "content": {}}]))


class TestUpstreamBody:
    def test_usage_is_asked_for_beside_the_clients_other_options(self) -> None:
        body = request(stream=True, stream_options={"include_obfuscation": False}, seed=1)
        before = copy.deepcopy(body)
        assert upstream_body(body, "real", ask_usage=True) == request(
            model="real",
            stream=True,
            stream_options={"include_usage": True, "include_obfuscation": False},
            seed=1,
        )
        assert body == before

    def test_otherwise_only_the_model_changes(self) -> None:
        body = request(stream=True, stream_options={"include_usage": False})
        assert upstream_body(body, "real", ask_usage=False) == {**body, "model": "real"}

    def test_null_options_are_no_options(self) -> None:
        sent = upstream_body(request(stream_options=None), "real", ask_usage=True)
        assert sent["stream_options"] == {"include_usage": True}


class TestErrorBody:
    @pytest.mark.parametrize(
        ("error", "kind", "param", "code"),
        [
            (RequestError("x", param="messages", code="c"), "invalid_request_error", "messages", "c"),
            (
                RequestError("x", status=401, code="invalid_api_key"),
                "authentication_error",
                None,
                "invalid_api_key",
            ),
            (RequestError("x", status=403, code="c"), "permission_error", None, "c"),
            (
                RequestError("x", status=404, code="unknown_path"),
                "invalid_request_error",
                None,
                "unknown_path",
            ),
            (RequestError("x", status=413, code="c"), "invalid_request_error", None, "c"),
            (RequestError("x", status=429, code="c"), "rate_limit_error", None, "c"),
            (RequestError("x", status=504, code="only_if_cached"), "server_error", None, "only_if_cached"),
            (UpstreamError("x", code="upstream_timeout"), "api_error", None, "upstream_timeout"),
        ],
    )
    def test_the_type_follows_the_status(
        self, error: StrataError, kind: str, param: str | None, code: str
    ) -> None:
        body = msgspec.json.decode(error_body(error))
        assert body == {"error": {"message": "x", "type": kind, "param": param, "code": code}}

    def test_other_errors_keep_their_detail_to_themselves(self) -> None:
        body = msgspec.json.decode(error_body(StoreError("/var/secret.db is locked")))
        assert body["error"] == {
            "message": "Internal error.",
            "type": "server_error",
            "param": None,
            "code": "internal_error",
        }


class TestUsage:
    def test_null_is_not_zero(self) -> None:
        assert usage_of({}) == usage_of({"usage": None}) == usage_of({"usage": 3}) == Usage()
        zero = {"prompt_tokens": 0, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 0}}
        assert usage_of({"usage": zero}) == Usage(0, 0, 0)
        partial = {"prompt_tokens": 7, "completion_tokens": None, "prompt_tokens_details": None}
        assert usage_of({"usage": partial}) == Usage(7, None, None)

    def test_what_is_not_a_count_is_not_reported(self) -> None:
        odd = {
            "prompt_tokens": True,
            "completion_tokens": -1,
            "prompt_tokens_details": {"cached_tokens": "3"},
        }
        assert usage_of({"usage": odd}) == Usage()

    def test_the_usage_only_chunk_is_dropped_for_a_client_that_did_not_ask(self) -> None:
        chunk = {"id": "c", "choices": [], "usage": {"prompt_tokens": 1}}
        assert without_usage(chunk, msgspec.json.encode(chunk)) is None

    @pytest.mark.parametrize(
        "payload",
        [
            b'{"id":"c","choices":[{"index":0,"delta":{"content":",\\"usage\\":null}"}}],"usage":null}',
            b'{"id": "c", "choices": [{"index": 0, "delta": {}}], "usage": null}',
            b'{"usage":{"prompt_tokens":1},"choices":[{"index":0,"delta":{"content":"x"}}]}',
            b'{"choices":[],"prompt_filter_results":[],"usage":null}',
        ],
    )
    def test_usage_is_removed_from_other_chunks(self, payload: bytes) -> None:
        chunk = msgspec.json.decode(payload)
        seen = without_usage(chunk, payload)
        assert seen is not None
        assert msgspec.json.decode(seen) == {key: value for key, value in chunk.items() if key != "usage"}
        assert chunk == msgspec.json.decode(payload)

    def test_a_payload_without_usage_is_passed_on_untouched(self) -> None:
        payload = b'{ "choices" : [{"index":0,"delta":{"usage":null}}] }'
        assert without_usage(msgspec.json.decode(payload), payload) is payload


class TestCompleteness:
    @pytest.mark.parametrize(
        "whole",
        [
            answer(),
            answer(refusal=None, tool_calls=None, function_call=None),
            answer(refusal="", tool_calls=[]),
            answer("tool_calls", content=None, tool_calls=[call(), call(id="t2")]),
            answer("tool_calls", content="Let me look.", tool_calls=[call()]),
            answer("stop", content=None, tool_calls=[call()]),
            answer("tool_calls", content=None, tool_calls=[call(function={"name": "f", "arguments": ""})]),
            answer("function_call", content=None, function_call={"name": "f", "arguments": '{"a": 1}'}),
            answer(content=[{"type": "text", "text": "structured"}]),
            answer(content="<think>x</think> y", reasoning_content="x"),
            {**answer(), "object": "something.else", "error": None},
            {"choices": answer()["choices"]},
            {"choices": [{**answer()["choices"][0], "index": i} for i in (1, 0)]},
        ],
    )
    def test_whole_answers_may_be_stored(self, whole: dict[str, Any]) -> None:
        assert completeness(whole) is None

    def test_a_custom_tool_call_is_whole(self) -> None:
        custom = {"id": "t", "type": "custom", "custom": {"name": "shell", "input": "ls -l"}}
        assert completeness(answer("tool_calls", content=None, tool_calls=[custom])) is None
        del custom["custom"]["input"]
        assert completeness(answer("tool_calls", content=None, tool_calls=[custom])) == "malformed"

    @pytest.mark.parametrize(
        ("reason", "bad"),
        [
            ("truncated", answer("length")),
            ("truncated", answer("max_tokens")),
            ("truncated", answer("length", content=None, tool_calls=[call()])),
            ("refused", answer("content_filter")),
            ("refused", answer("refusal")),
            ("refused", answer(content=None, refusal="I cannot help with that.")),
            ("empty", answer(content=None)),
            ("empty", answer(content="")),
            ("empty", answer(content=" \n")),
            ("empty", answer(content=[])),
            ("empty", answer(content=None, tool_calls=[])),
            ("empty", answer(content="", reasoning_content="thought, but said nothing")),
            ("empty", answer(content=None, audio={"id": "a", "expires_at": 1})),
            ("unfinished", answer(None)),
            ("unfinished", answer("")),
            ("unfinished", answer("eos")),
            ("unfinished", {"choices": []}),
            ("malformed", answer(7)),
            ("malformed", None),
            ("malformed", [answer()]),
            ("malformed", {}),
            ("malformed", {"choices": {}}),
            ("malformed", {"choices": [None]}),
            ("malformed", {"choices": [{"index": 0, "finish_reason": "stop"}]}),
            ("malformed", {"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}]}),
            ("malformed", {"choices": answer()["choices"] * 2}),
            ("malformed", {"choices": [{**answer()["choices"][0], "index": "0"}]}),
            ("malformed", answer(content=5)),
            ("malformed", answer(content=["x"])),
            ("malformed", answer(tool_calls={})),
            ("malformed", answer("tool_calls")),
            ("malformed", answer("tool_calls", tool_calls=[])),
            ("malformed", answer("function_call")),
            ("malformed", answer("tool_calls", tool_calls=[None])),
            ("malformed", answer("tool_calls", tool_calls=[call(id=None)])),
            ("malformed", answer("tool_calls", tool_calls=[call(type=None)])),
            ("malformed", answer("tool_calls", tool_calls=[call(function=None)])),
            ("malformed", answer("tool_calls", tool_calls=[call(function={"name": "", "arguments": "{}"})])),
            ("malformed", answer("tool_calls", tool_calls=[call(function={"name": "f"})])),
            (
                "malformed",
                answer("tool_calls", tool_calls=[call(function={"name": "f", "arguments": '{"a":'})]),
            ),
            ("malformed", answer("tool_calls", tool_calls=[call(function={"name": "f", "arguments": "[]"})])),
            ("error", {**answer(), "error": {"message": "overloaded"}}),
            ("error", answer("error")),
            ("error", {"choices": [{**answer()["choices"][0], "error": {"code": 502}}]}),
        ],
    )
    def test_others_may_not_and_say_why(self, reason: str, bad: Any) -> None:
        assert completeness(bad) == reason

    def test_one_bad_choice_of_several_is_enough(self) -> None:
        good, cut = answer()["choices"][0], answer("length")["choices"][0]
        assert completeness({"choices": [good, {**cut, "index": 1}]}) == "truncated"

    def test_the_fixtures_are_what_the_sdk_takes_for_answers(self) -> None:
        ChatCompletion.model_validate(answer())
        ChatCompletion.model_validate(answer("tool_calls", content=None, tool_calls=[call()]))
