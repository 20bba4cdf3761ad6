"""Streams joined to answers and answers cut into streams: servers' habits and rivals' faults, one test each."""

import copy
import unicodedata
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from stratacache.dialects.openai_chat import Assembler, completeness, replay
from stratacache.dialects.openai_replay import pieces
from stratacache.dialects.sse import DONE

EN = "The quick brown fox jumps over the lazy dog, and the dog does not mind at all. " * 5
ZH = "缓存网关位于应用与模型之间，它会记住完整的答案，并在相同的问题再次出现时立即返回。" * 5
USAGE = {
    "prompt_tokens": 5,
    "completion_tokens": 7,
    "total_tokens": 12,
    "prompt_tokens_details": {"cached_tokens": 4},
}


def chunk(delta: Any = None, finish: Any = None, index: int = 0, **fields: Any) -> dict[str, Any]:
    choice = {"index": index, "delta": delta or {}, "finish_reason": finish}
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return {**head, "choices": [choice], **fields}


def assembler(*chunks: Any) -> Assembler:
    made = Assembler()
    for item in chunks:
        made.add_payload(item if type(item) is bytes else msgspec.json.encode(item))
    return made


def joined(*chunks: Any) -> dict[str, Any]:
    made = assembler(*chunks, DONE)
    assert made.problem is None
    result = made.result()
    assert result is not None
    ChatCompletion.model_validate(result)
    return result


def message(*deltas: dict[str, Any], finish: str = "stop") -> dict[str, Any]:
    return joined(*map(chunk, deltas), chunk(finish=finish))["choices"][0]["message"]


def tool_delta(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"tool_calls": list(calls)}


def answer(finish: str = "stop", **members: Any) -> dict[str, Any]:
    body = {"role": "assistant", "content": EN, "refusal": None, **members}
    choice = {"index": 0, "message": body, "logprobs": None, "finish_reason": finish}
    head = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m"}
    return {
        **head,
        "choices": [choice],
        "usage": USAGE,
        "system_fingerprint": "fp",
        "service_tier": "default",
    }


def call(
    arguments: str = '{"city": "Paris", "unit": "celsius", "days": [1, 2, 3]}', **fields: Any
) -> dict[str, Any]:
    return {"id": "t1", "type": "function", "function": {"name": "weather", "arguments": arguments}, **fields}


def replayed(whole: dict[str, Any], include_usage: bool = True) -> list[dict[str, Any]]:
    """The chunks, checked: the input untouched, the SDK content, and the same answer when joined again."""
    before = copy.deepcopy(whole)
    payloads = replay(whole, include_usage=include_usage)
    assert whole == before
    chunks = [msgspec.json.decode(payload) for payload in payloads]
    for item in chunks:
        ChatCompletionChunk.model_validate(item)
    expected = whole if include_usage else {k: v for k, v in whole.items() if k != "usage"}
    assert joined(*payloads) == expected
    return chunks


def deltas(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [item["choices"][0]["delta"] for item in chunks if item["choices"]]


class TestAssembler:
    def test_an_openai_stream(self) -> None:
        same = {"service_tier": "default", "system_fingerprint": "fp", "usage": None, "obfuscation": "x8Qz"}
        whole = joined(
            chunk({"role": "assistant", "content": "", "refusal": None}, **same),
            chunk({"content": "Par"}, **same),
            chunk({"content": "is."}, **same),
            chunk(finish="stop", **same),
            {**chunk(), "choices": [], "usage": USAGE},
        )
        assert whole == {
            "id": "c1",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "service_tier": "default",
            "system_fingerprint": "fp",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "Paris.", "refusal": None},
                    "finish_reason": "stop",
                }
            ],
            "usage": USAGE,
        }

    def test_role_only_first_chunk_does_not_block_caching(self) -> None:
        whole = joined(chunk({"role": "assistant"}), chunk({"content": "x"}), chunk(finish="stop"))
        assert completeness(whole) is None

    def test_several_choices_may_interleave_and_come_out_of_order(self) -> None:
        whole = joined(
            chunk({"content": "b1"}, index=1),
            chunk({"content": "a1"}),
            chunk({"content": "b2"}, finish="stop", index=1),
            chunk({"content": "a2"}, finish="stop"),
        )
        assert [(c["index"], c["message"]["content"]) for c in whole["choices"]] == [(0, "a1a2"), (1, "b1b2")]

    def test_reasoning_is_kept_apart_from_content(self) -> None:
        parts = [
            {"reasoning_content": "Let "},
            {"reasoning_content": "me."},
            {"content": "Hi", "reasoning": "r"},
        ]
        made = message(*parts)
        assert (made["content"], made["reasoning_content"], made["reasoning"]) == ("Hi", "Let me.", "r")

    def test_tool_calls_are_joined_by_index(self) -> None:
        made = message(
            {"role": "assistant", "content": None},
            tool_delta(
                {"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": ""}}
            ),
            tool_delta(
                {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}
            ),
            tool_delta(
                {"index": 0, "function": {"arguments": '{"x"'}}, {"index": 1, "function": {"arguments": "{"}}
            ),
            tool_delta(
                {"index": 1, "function": {"arguments": "}"}}, {"index": 0, "function": {"arguments": ":1}"}}
            ),
            finish="tool_calls",
        )
        assert made["content"] is None
        assert made["tool_calls"] == [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
            {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
        ]

    def test_tool_calls_without_index_are_joined_by_id_or_continue_the_last(self) -> None:
        made = message(
            tool_delta({"id": "a", "function": {"name": "f", "arguments": "{"}}),
            tool_delta({"function": {"arguments": "}"}}),
            tool_delta({"id": "b", "function": {"name": "f", "arguments": '{"y":'}}),
            tool_delta({"id": "b", "function": {"arguments": "1}"}}),
            finish="tool_calls",
        )
        assert [(c["id"], c["function"]["arguments"]) for c in made["tool_calls"]] == [
            ("a", "{}"),
            ("b", '{"y":1}'),
        ]

    def test_parallel_whole_calls_that_share_one_index_stay_apart(self) -> None:
        whole_calls = [{**call("{}"), "index": 0, "id": name} for name in ("a", "b")]
        made = message(tool_delta(whole_calls[0]), tool_delta(whole_calls[1]), finish="tool_calls")
        assert [c["id"] for c in made["tool_calls"]] == ["a", "b"]

    def test_a_server_that_invents_an_id_per_delta_makes_one_call(self) -> None:
        made = message(
            tool_delta({"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}),
            tool_delta({"index": 0, "id": "x1", "function": {"arguments": "{"}}),
            tool_delta({"index": 0, "id": "x2", "function": {"name": None, "arguments": "}"}}),
            finish="tool_calls",
        )
        assert made["tool_calls"] == [call("{}", id="a", function={"name": "f", "arguments": "{}"})]

    def test_a_server_that_repeats_the_name_makes_one_name(self) -> None:
        made = message(
            tool_delta({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{"}}),
            tool_delta({"index": 0, "id": "a", "function": {"name": "f", "arguments": "}"}}),
            finish="tool_calls",
        )
        assert made["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}

    def test_a_name_in_pieces_is_joined(self) -> None:
        made = message(
            tool_delta({"index": 0, "id": "a", "function": {"name": "get_"}}),
            tool_delta({"index": 0, "function": {"name": "weather", "arguments": ""}}),
            tool_delta({"index": 0, "function": {"arguments": "{}"}}),
            finish="tool_calls",
        )
        assert made["tool_calls"][0]["function"] == {"name": "get_weather", "arguments": "{}"}

    def test_the_old_function_call_is_joined(self) -> None:
        made = message(
            {"function_call": {"name": "f", "arguments": ""}},
            {"function_call": {"arguments": "{"}},
            {"function_call": {"arguments": "}"}},
            finish="function_call",
        )
        assert made["function_call"] == {"name": "f", "arguments": "{}"}

    def test_logprobs_are_extended(self) -> None:
        def with_logprobs(word: str) -> dict[str, Any]:
            made = chunk({"content": word})
            token = {"token": word, "logprob": -0.5, "bytes": None, "top_logprobs": []}
            made["choices"][0]["logprobs"] = {"content": [token], "refusal": None}
            return made

        end = chunk(finish="stop")
        end["choices"][0]["logprobs"] = None
        first = with_logprobs("a")
        before = copy.deepcopy(first)
        made = Assembler()
        for item in (first, with_logprobs("b"), end):
            made.add(item)
        made.add_payload(DONE)
        result = made.result()
        assert result is not None
        logprobs = result["choices"][0]["logprobs"]
        assert [token["token"] for token in logprobs["content"]] == ["a", "b"]
        assert logprobs["refusal"] is None
        assert first == before  # chunks handed in are not changed

    def test_the_last_usage_counts_also_when_every_chunk_has_one(self) -> None:
        running = [{"prompt_tokens": 5, "completion_tokens": n, "total_tokens": 5 + n} for n in (1, 2)]
        whole = joined(
            chunk({"content": "a"}, usage=running[0]), chunk({"content": "b"}, "stop", usage=running[1])
        )
        assert whole["usage"] == running[1]

    def test_usage_that_is_only_null_stays_unknown(self) -> None:
        assert "usage" not in joined(chunk({"content": "a"}, "stop", usage=None))

    def test_azures_empty_first_chunk_does_not_blank_id_and_model(self) -> None:
        first = {
            "id": "",
            "object": "",
            "created": 0,
            "model": "",
            "choices": [],
            "prompt_filter_results": [1],
        }
        whole = joined(first, chunk({"content": "a"}, "stop"), {**first, "prompt_filter_results": None})
        assert (whole["id"], whole["model"], whole["prompt_filter_results"]) == ("c1", "m", [1])
        assert whole["object"] == "chat.completion"

    def test_unknown_fields_follow_the_rules(self) -> None:
        first = chunk(
            {"content": "a", "details": [{"index": 0, "type": "t", "text": "x"}], "notes": [1]}, new=1
        )
        first["choices"][0] |= {
            "token_ids": [1],
            "filter": {"hate": {"severity": "safe"}},
            "stop_reason": None,
        }
        last = chunk(
            {"details": [{"index": 0, "type": "t", "text": "y"}, {"index": 1}], "notes": [2]}, "stop"
        )
        last["choices"][0] |= {"token_ids": [2], "filter": {"hate": {"severity": "safe"}}, "stop_reason": 7}
        made, before = Assembler(), copy.deepcopy(first)
        for item in (first, {**last, "new": 2}):
            made.add(item)
        made.add_payload(DONE)
        assert first == before
        whole = made.result()
        assert whole is not None
        choice = whole["choices"][0]
        assert whole["new"] == 2
        assert choice["token_ids"] == [1, 2]
        assert choice["filter"] == {"hate": {"severity": "safe"}}
        assert choice["stop_reason"] == 7
        assert choice["message"]["details"] == [{"index": 0, "type": "t", "text": "xy"}, {"index": 1}]
        assert choice["message"]["notes"] == [1, 2]

    def test_a_repeated_or_emptied_role_is_one_role(self) -> None:
        made = message(
            {"role": "assistant", "content": "a"}, {"role": "assistant"}, {"role": "", "content": "b"}
        )
        assert (made["role"], made["content"]) == ("assistant", "ab")
        assert message({"role": None, "content": "a"})["role"] == "assistant"

    def test_structured_content_sent_whole_is_kept(self) -> None:
        parts = [{"type": "text", "text": "a"}]
        made = assembler(chunk({"content": parts}), chunk(finish="stop"), DONE).result()
        assert made is not None
        assert made["choices"][0]["message"]["content"] == parts

    @pytest.mark.parametrize(
        "chunks",
        [
            pytest.param([chunk({"content": "a"}), chunk(finish="stop")], id="no [DONE]"),
            pytest.param([chunk({"content": "a"}), DONE], id="no finish reason"),
            pytest.param([chunk({"content": "a"}), chunk(finish=""), DONE], id="empty finish reason"),
            pytest.param(
                [chunk({"content": "a"}, "stop"), chunk({"content": "b"}, index=1), DONE], id="n of 2"
            ),
            pytest.param([chunk({"content": "b"}, "stop", index=1), DONE], id="choice 0 never came"),
            pytest.param([DONE], id="no chunk"),
            pytest.param([{**chunk(), "choices": []}, DONE], id="no choice"),
            pytest.param([], id="nothing"),
        ],
    )
    def test_a_cut_stream_is_no_answer(self, chunks: list[Any]) -> None:
        made = assembler(*chunks)
        assert made.problem is None
        assert not made.complete
        assert made.result() is None

    @pytest.mark.parametrize(
        "bad",
        [
            b"not json",
            b"",
            b"[" * 1000,
            [chunk()],
            {"error": {"message": "overloaded"}},
            chunk(error="out of memory"),
            {"choices": {}},
            {"choices": ["x"]},
            {"choices": [{"index": "0", "delta": {}}]},
            {"choices": [{"index": -1, "delta": {}}]},
            {"choices": [{"index": True, "delta": {}}]},
            {"choices": [{"index": 0, "delta": "x"}]},
            {"choices": [{"index": 0, "message": {"content": "whole"}, "finish_reason": "stop"}]},
            {"choices": [{"index": 0, "delta": {}, "error": {"code": 502}}]},
            {"choices": [{"index": 0, "delta": {}, "logprobs": 3}]},
            chunk(finish=3),
            chunk(finish="length"),
            chunk({"content": [{"type": "text", "text": "after text"}]}),
            chunk({"tool_calls": {}}),
            chunk({"tool_calls": ["x"]}),
            chunk(tool_delta({"index": "0"})),
            chunk(tool_delta({"index": 0, "function": {"arguments": {}}})),
            chunk(tool_delta({"index": 0, "function": {"name": 5}})),
            chunk(tool_delta({"function": {"name": "f"}}, {"function": {"name": "g"}})),
            chunk(
                tool_delta(
                    {"index": 0, "function": {"name": "f", "arguments": "{"}},
                    {"index": 0, "function": {"name": "g"}},
                )
            ),
            chunk(
                tool_delta({"index": 0, "function": {"name": "f"}}, {"index": 0, "function": {"name": "f"}})
            ),
        ],
    )
    def test_an_odd_chunk_is_a_problem_not_an_exception(self, bad: Any) -> None:
        made = assembler(chunk({"content": "a"}, "stop"), bad, DONE)
        assert made.problem
        assert made.result() is None

    def test_the_first_problem_stays(self) -> None:
        made = assembler(chunk(error="first"), b"second")
        assert made.problem == "the stream carries an error"

    def test_nothing_may_follow_done(self) -> None:
        assert assembler(chunk({"content": "a"}, "stop"), DONE, chunk({"content": "b"})).result() is None

    def test_a_chunk_too_deep_to_merge_is_a_problem(self) -> None:
        def deep() -> Any:
            value: Any = {}
            for _ in range(20_000):
                value = {"a": value}
            return chunk({"extra": value})

        made = Assembler()
        made.add(deep())
        made.add(deep())
        assert made.problem == "a chunk is nested too deeply"

    def test_payloads_are_handed_back_decoded(self) -> None:
        made = Assembler()
        assert made.add_payload(msgspec.json.encode(chunk())) == chunk()
        assert made.add_payload(b"[1]") is None
        assert made.add_payload(DONE) is None
        assert made.done

    def test_truncated_streams_join_but_are_not_stored(self) -> None:
        whole = joined(chunk({"content": "a"}), chunk(finish="length"))
        assert completeness(whole) == "truncated"


class TestReplay:
    def test_the_chunks_are_the_providers(self) -> None:
        chunks = replayed(answer())
        head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        for item in chunks:
            assert {key: item[key] for key in head} == head
            assert (item["system_fingerprint"], item["service_tier"]) == ("fp", "default")
        first, *middle, last = [item["choices"][0] for item in chunks if item["choices"]]
        assert first["delta"] == {"role": "assistant", "content": "", "refusal": None}
        assert all(set(choice["delta"]) == {"content"} for choice in middle)
        assert all(
            choice["finish_reason"] is None and choice["logprobs"] is None for choice in (first, *middle)
        )
        assert last == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}

    @pytest.mark.parametrize("text", [EN, ZH, EN + ZH])
    def test_not_one_aggregated_chunk(self, text: str) -> None:
        words = [delta["content"] for delta in deltas(replayed(answer(content=text)))[1:-1]]
        assert len(words) >= len(text) // 40
        assert all(20 <= len(word) <= 40 for word in words[:-1])

    def test_usage_comes_last_and_only_when_asked_for(self) -> None:
        chunks = replayed(answer())
        assert chunks[-1]["choices"] == []
        assert chunks[-1]["usage"] == USAGE
        assert all(item["usage"] is None for item in chunks[:-1])
        assert all(
            "usage" not in item and item["choices"] for item in replayed(answer(), include_usage=False)
        )

    def test_without_a_usage_there_is_no_usage_chunk(self) -> None:
        whole = {key: value for key, value in answer().items() if key != "usage"}
        assert all("usage" not in item and item["choices"] for item in replayed(whole))

    def test_reasoning_comes_before_content(self) -> None:
        chunks = replayed(answer(reasoning_content=EN, reasoning=ZH))
        keys = [next(iter(delta)) for delta in deltas(chunks)[1:-1]]
        assert keys == sorted(keys, key=["reasoning_content", "reasoning", "content"].index)
        assert set(keys) == {"reasoning_content", "reasoning", "content"}

    def test_tool_calls_start_with_id_and_name_then_send_their_arguments(self) -> None:
        whole = answer(
            "tool_calls", content=None, tool_calls=[call(), call("", id="t2"), call("{}", id="t3")]
        )
        first, *rest = deltas(replayed(whole))
        assert first == {"role": "assistant", "content": None, "refusal": None}
        flat = [delta["tool_calls"][0] for delta in rest[:-1]]
        assert flat[0] == {**call(""), "index": 0}
        assert set(flat[1]) == {"index", "function"}
        assert [item["index"] for item in flat] == [0, 0, 0, 0, 1, 2, 2]

    def test_custom_tools_and_the_old_function_call_are_replayed(self) -> None:
        custom = {"id": "t", "type": "custom", "custom": {"name": "shell", "input": "ls -l"}}
        payloads = replay(answer("tool_calls", content=None, tool_calls=[custom]), include_usage=False)
        made = assembler(*payloads, DONE).result()
        assert made is not None
        assert made["choices"][0]["message"]["tool_calls"] == [custom]
        replayed(
            answer("function_call", content=None, function_call={"name": "f", "arguments": '{"a": 1}' * 9})
        )

    def test_a_call_that_carries_the_wires_index_loses_only_that(self) -> None:
        whole = answer("tool_calls", content=None, tool_calls=[call(index=3)])
        made = assembler(*replay(whole, include_usage=False), DONE).result()
        assert made is not None
        assert made["choices"][0]["message"]["tool_calls"] == [call()]

    def test_refusals_and_annotations_are_replayed(self) -> None:
        replayed(answer(content=None, refusal=EN, annotations=[]))

    def test_structured_content_is_not_lost(self) -> None:
        whole = answer(content=[{"type": "text", "text": "a"}])
        assert assembler(*replay(whole, include_usage=True), DONE).result() == whole

    def test_logprobs_travel_with_their_text(self) -> None:
        words = [word + " " for word in EN.split()]
        tokens = [{"token": w, "logprob": -0.1, "bytes": list(w.encode()), "top_logprobs": []} for w in words]
        whole = answer(content="".join(words))
        whole["choices"][0]["logprobs"] = {"content": tokens, "refusal": None}
        first, *middle, last = [item["choices"][0] for item in replayed(whole) if item["choices"]]
        assert first["logprobs"] is None
        assert last["logprobs"] is None
        assert len(middle) > 5
        for choice in middle:
            spelled = "".join(token["token"] for token in choice["logprobs"]["content"])
            assert choice["delta"]["content"] == spelled

    def test_a_token_that_is_only_a_mark_stays_with_its_base(self) -> None:
        words = ["x" * 19 + "e", "\u0301", " next"]
        whole = answer(content="".join(words))
        whole["choices"][0]["logprobs"] = {
            "content": [{"token": w, "logprob": -0.1, "top_logprobs": []} for w in words]
        }
        assert [delta["content"] for delta in deltas(replayed(whole))[1:-1]] == [
            words[0] + words[1],
            words[2],
        ]

    def test_an_answer_without_logprobs_has_chunks_without(self) -> None:
        whole = answer()
        del whole["choices"][0]["logprobs"]
        assert all("logprobs" not in item["choices"][0] for item in replayed(whole) if item["choices"])

    @pytest.mark.parametrize(
        "logprobs",
        [
            {"content": None, "refusal": None},
            {"content": [], "refusal": []},
            {"content": [{"token": "x", "logprob": 0.0, "bytes": None, "top_logprobs": []}], "refusal": None},
            {"content": [{"token": "x", "logprob": 0.0, "bytes": None, "top_logprobs": []}], "extra": 1},
            {},
        ],
    )
    def test_logprobs_that_fit_no_text_are_kept(self, logprobs: dict[str, Any]) -> None:
        whole = answer()
        whole["choices"][0]["logprobs"] = logprobs
        assert assembler(*replay(whole, include_usage=True), DONE).result() == whole

    def test_several_choices_and_unknown_fields_are_kept(self) -> None:
        whole = answer(mood="calm", parts=[{"index": 0}])
        second = copy.deepcopy(whole["choices"][0]) | {"index": 1, "stop_reason": 7, "filter": {"hate": "no"}}
        whole["choices"].append(second)
        whole["citations"] = ["https://example.org"]
        chunks = replayed(whole)
        assert {item["choices"][0]["index"] for item in chunks if item["choices"]} == {0, 1}
        assert sum("citations" in item for item in chunks) == 1


@pytest.mark.parametrize(
    "cluster",
    [
        "👩‍👩‍👧",
        "e\u0301",
        "👍🏽",
        "🇫🇷",
        "❤️",
        "1️⃣",
        "กำ",
        "नि",
        "\u1112\u1161\u11ab",
        "🏴󠁧󠁢󠁥󠁮󠁧󠁿",
        "a" + "\u0300" * 50,
    ],
)
def test_no_character_is_cut(cluster: str) -> None:
    for lead in range(45):
        parts = pieces("x" * lead + cluster * 30 + EN)
        assert "".join(parts) == "x" * lead + cluster * 30 + EN
        for left, right in pairwise(parts):
            assert not unicodedata.category(right[0]).startswith("M")
            assert "\u200d" not in (left[-1], right[0])
            assert right[0] not in "🏽ᅡᆫ"  # a skin tone, a Hangul vowel and final
            assert right[0] != "\U000e007f"
            assert left[-1] != "🇫"


def test_a_text_of_marks_alone_is_one_piece() -> None:
    assert pieces("\u0300" * 100_000) == ["\u0300" * 100_000]
    assert pieces("") == []
