"""Streaming loses nothing: answer → chunks → answer is the identity, however the text is cut."""

from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from stratacache.dialects.openai_chat import Assembler, completeness, replay, without_usage
from stratacache.dialects.openai_replay import pieces
from stratacache.dialects.sse import DONE, SSEParser, encode_stream

TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=150),
    st.text('ab \n"\\{缓存，é\u0301\u200d👩🏽🇫🇷\ufe0f', max_size=150),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXT,
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
UNKNOWN = st.dictionaries(
    st.sampled_from(["x_new", "mood", "citations", "extra_content"]), VALUES, max_size=2
)
ARGUMENTS = st.just("") | st.dictionaries(TEXT, SCALARS, max_size=4).map(
    lambda value: msgspec.json.encode(value).decode()
)


@st.composite
def tool_calls(draw: st.DrawFn) -> list[dict[str, Any]]:
    made = []
    for number in range(draw(st.integers(1, 3))):
        function = {"name": draw(st.sampled_from(["f", "get_weather"])), "arguments": draw(ARGUMENTS)}
        made.append({"id": f"t{number}", "type": "function", "function": function, **draw(UNKNOWN)})
    return made


@st.composite
def logprobs_of(draw: st.DrawFn, text: str | None) -> dict[str, Any] | None:
    if draw(st.booleans()):
        return None
    places = sorted({0, len(text or ""), *draw(st.lists(st.integers(0, len(text or "")), max_size=30))})
    words = [(text or "")[a:b] for a, b in pairwise(places)]
    if draw(st.integers(0, 3)) == 0:
        words.append("?")  # tokens that do not spell the text
    tokens = [{"token": w, "logprob": -0.5, "bytes": None, "top_logprobs": []} for w in words]
    return {"content": tokens, "refusal": draw(st.sampled_from([None, []]))}


@st.composite
def choices(draw: st.DrawFn, index: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": draw(TEXT), **draw(UNKNOWN)}
    finish = "stop"
    if draw(st.booleans()):
        message["tool_calls"] = draw(tool_calls())
        message["content"] = draw(st.none() | TEXT)
        finish = "tool_calls"
    for key in ("reasoning_content", "reasoning", "refusal"):
        if draw(st.integers(0, 2)) == 0:
            message[key] = draw(st.none() | TEXT)
    choice: dict[str, Any] = {"index": index, "message": message, "finish_reason": finish}
    if draw(st.booleans()):
        choice["logprobs"] = draw(logprobs_of(message["content"]))
    return {**choice, **draw(UNKNOWN)}


@st.composite
def answers(draw: st.DrawFn) -> dict[str, Any]:
    made = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": draw(st.sampled_from(["m", "组织/模型"])),
        "choices": [draw(choices(index)) for index in range(draw(st.integers(1, 3)))],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
        **draw(UNKNOWN),
    }
    if draw(st.booleans()):
        made |= {"system_fingerprint": draw(st.none() | st.just("fp")), "service_tier": "default"}
    return made


def joined(chunks: list[dict[str, Any]]) -> dict[str, Any] | None:
    assembler = Assembler()
    for chunk in chunks:
        assembler.add(chunk)
    assembler.add_payload(DONE)
    assert assembler.problem is None
    return assembler.result()


@given(answers(), st.booleans())
def test_a_replayed_answer_joins_to_itself(answer: dict[str, Any], include_usage: bool) -> None:
    payloads = replay(answer, include_usage=include_usage)
    assert [event.data for event in SSEParser().feed(encode_stream(payloads))] == [*payloads, DONE]
    chunks = [msgspec.json.decode(payload) for payload in payloads]
    expected = answer if include_usage else {key: value for key, value in answer.items() if key != "usage"}
    assert joined(chunks) == expected
    ChatCompletionChunk.model_validate(chunks[0])
    ChatCompletion.model_validate(answer)
    assert completeness(joined(chunks)) == completeness(answer)


@given(answers())
def test_without_usage_gives_the_stream_that_did_not_ask_for_it(answer: dict[str, Any]) -> None:
    asked = replay(answer, include_usage=True)
    seen = [without_usage(msgspec.json.decode(payload), payload) for payload in asked]
    assert [payload for payload in seen if payload is not None] == replay(answer, include_usage=False)


@given(answers(), st.data())
def test_how_the_text_is_cut_does_not_matter(answer: dict[str, Any], data: st.DataObject) -> None:
    """Cut every text and every call's arguments at random places, and interleave the choices at random."""
    streams: list[list[dict[str, Any]]] = []
    for choice in answer["choices"]:
        message = dict(choice["message"])
        calls = message.pop("tool_calls", [])
        deltas: list[dict[str, Any]] = []
        for key in ("content", "reasoning", "reasoning_content", "refusal"):
            if type(message.get(key)) is str:
                deltas += [{key: part} for part in cut(message.pop(key), data)]
        for index, call in enumerate(calls):
            head = {**call, "index": index, "function": {"name": call["function"]["name"]}}
            deltas.append({"tool_calls": [head]})
            for part in cut(call["function"]["arguments"], data):
                deltas.append({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
        rest = {key: value for key, value in choice.items() if key not in ("message", "finish_reason")}
        head_chunks = [{**rest, "delta": message}, *({"index": choice["index"], "delta": d} for d in deltas)]
        streams.append(
            [*head_chunks, {"index": choice["index"], "delta": {}, "finish_reason": choice["finish_reason"]}]
        )
    top = {key: value for key, value in answer.items() if key not in ("choices", "usage")}
    chunks = [{**top, "choices": []}]
    while streams := [stream for stream in streams if stream]:
        chunks.append({"id": top["id"], "choices": [data.draw(st.sampled_from(streams)).pop(0)]})
    assert joined([*chunks, {"choices": [], "usage": answer["usage"]}]) == answer


def cut(text: str, data: st.DataObject) -> list[str]:
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=5))
    return [text[a:b] for a, b in pairwise([0, *sorted(places), len(text)])]


@given(TEXT)
def test_pieces_spell_the_text(text: str) -> None:
    assert "".join(pieces(text)) == text


KEYS = st.sampled_from(
    [
        "choices",
        "delta",
        "index",
        "finish_reason",
        "tool_calls",
        "function",
        "name",
        "arguments",
        "id",
        "logprobs",
        "content",
        "usage",
        "error",
        "object",
        "message",
        "x",
    ]
)
WORDS = st.none() | st.booleans() | st.integers(-1, 2) | st.sampled_from(["", "a", "stop"])
ODD = st.recursive(
    WORDS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=20
)
ODD_CHUNKS = ODD | st.fixed_dictionaries(
    {
        "choices": st.lists(
            st.fixed_dictionaries(
                {"delta": st.dictionaries(KEYS, ODD, max_size=4)},
                optional={"index": WORDS, "logprobs": ODD, "finish_reason": WORDS},
            ),
            max_size=3,
        )
    }
)


@given(st.lists(ODD_CHUNKS, max_size=4))
def test_no_chunk_however_odd_raises(chunks: list[Any]) -> None:
    before = msgspec.json.encode(chunks)
    assembler = Assembler()
    for chunk in chunks:
        assembler.add(chunk)
    assembler.add_payload(DONE)
    result = assembler.result()
    completeness(result)
    assert (result is None) or assembler.problem is None
    assert msgspec.json.encode(chunks) == before


@given(ODD | st.fixed_dictionaries({"choices": st.lists(ODD, max_size=2)}))
def test_what_is_judged_complete_can_be_replayed(answer: Any) -> None:
    if completeness(answer) is None:
        assert replay(answer, include_usage=True)
