"""Requests, answers and streams that are turned into the other dialect and back are what they were."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from stratacache.dialects import anthropic_assemble, chat_to_messages, messages_to_chat, openai_assemble
from stratacache.dialects.anthropic_messages import completeness
from stratacache.dialects.anthropic_replay import replay as replay_message
from stratacache.dialects.base import Assembler
from stratacache.dialects.convert_answers import chat_answer, message_answer
from stratacache.dialects.openai_chat import completeness as chat_completeness
from stratacache.dialects.openai_replay import replay as replay_chat
from stratacache.dialects.sse import SSEParser
from stratacache.dialects.voices import voice
from stratacache.pipeline.flight import Chunk
from stratacache.policy.fields import CHAT, MESSAGES
from stratacache.testing.anthropic import events_of

CREATED = 1_700_000_000
texts = st.text(min_size=1, max_size=60).filter(lambda t: t.strip() != "" and t.isprintable())
words = st.text("abcdefghij_", min_size=1, max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
inputs = st.dictionaries(words, values, max_size=3)
counts = st.integers(0, 10_000)


def call(number: int, name: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": value}


calls = st.lists(st.tuples(words, inputs), max_size=3).map(
    lambda many: [call(i, *one) for i, one in enumerate(many)]
)
thoughts = st.lists(
    st.fixed_dictionaries({"type": st.just("thinking"), "thinking": texts, "signature": words})
    | st.fixed_dictionaries({"type": st.just("redacted_thinking"), "data": words}),
    max_size=2,
)


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    """Whole answers of the kind that both dialects have a form for."""
    said = [{"type": "text", "text": draw(texts)}] if draw(st.booleans()) else []
    used = draw(calls)
    if not said and not used:
        said = [{"type": "text", "text": "x"}]
    usage = {"input_tokens": draw(counts), "output_tokens": draw(counts)}
    if draw(st.booleans()):
        usage |= {"cache_read_input_tokens": draw(counts), "cache_creation_input_tokens": draw(counts)}
    sequence = draw(st.none() | words) if not used else None
    stop = "tool_use" if used else "end_turn" if sequence is None else "stop_sequence"
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [*draw(thoughts), *said, *used],
        "stop_reason": stop, "stop_sequence": sequence, "usage": usage,
    }  # fmt: skip


@given(messages())
def test_a_message_survives_the_way_to_chat_and_back(message: dict[str, Any]) -> None:
    assert completeness(message) is None
    answer = chat_answer(message, CREATED)
    assert chat_completeness(answer) is None
    assert message_answer(answer) == message
    assert chat_answer(message_answer(answer), CREATED) == answer


def assembled(stream: bytes, assembler: Assembler) -> dict[str, Any] | None:
    for event in SSEParser().feed(stream):
        assembler.take(event, strip_usage=False)
    return assembler.result()


def live(client: str, kept: str, payloads: list[bytes], size: int) -> bytes:
    """What a client hears of a stream that arrives in batches of ``size`` events."""
    speaker = voice(client, kept).live(CREATED, include_usage=True)
    batches = [payloads[i : i + size] for i in range(0, len(payloads), size)]
    return b"".join(speaker.take([Chunk(p, p) for p in batch]) for batch in batches) + speaker.end()


@given(messages(), st.integers(1, 7))
def test_a_message_s_events_become_the_chunks_of_its_chat_answer(message: dict[str, Any], size: int) -> None:
    for payloads in (replay_message(message), [msgspec.json.encode(event) for event in events_of(message)]):
        stream = live(CHAT, MESSAGES, payloads[:-1], size)
        assert _comparable(assembled(stream, openai_assemble.Assembler())) == _comparable(
            chat_answer(message, CREATED)
        )


@given(messages(), st.integers(1, 7))
def test_a_chat_answer_s_chunks_become_the_events_of_its_message(message: dict[str, Any], size: int) -> None:
    answer = chat_answer(message, CREATED)
    said = answer["choices"][0]["message"]
    said.pop("thinking_blocks", None)  # no OpenAI server has them
    if not said.get("reasoning_content"):
        said.pop("reasoning_content", None)
    stream = live(MESSAGES, CHAT, replay_chat(answer, include_usage=True), size)
    assert assembled(stream, anthropic_assemble.Assembler()) == message_answer(answer)


def _comparable(answer: dict[str, Any] | None) -> dict[str, Any] | None:
    """Arguments by their value: a stream's have the spaces of who wrote them."""
    if answer is not None:
        for one in answer["choices"][0]["message"].get("tool_calls") or ():
            one["function"]["arguments"] = msgspec.json.decode(one["function"]["arguments"])
        if not answer["choices"][0]["message"].get("content"):
            answer["choices"][0]["message"]["content"] = None
        if not answer["choices"][0]["message"].get("reasoning_content"):
            answer["choices"][0]["message"].pop("reasoning_content", None)
    return answer


PDF = {"type": "base64", "media_type": "application/pdf", "data": "bbbb"}
SCHEMA = {"type": "json_schema", "schema": {"a": 1}}
images = st.sampled_from(
    [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa"}},
        {"type": "image", "source": {"type": "url", "url": "https://images.example/a.png"}},
        {"type": "document", "source": PDF, "title": "T"},
    ]
)  # fmt: skip
blocks = st.lists(texts.map(lambda t: {"type": "text", "text": t}) | images, min_size=2, max_size=4)


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    """Message requests in the shortest form, of what chat has a form for."""
    turns: list[dict[str, Any]] = [{"role": "user", "content": draw(texts | blocks)}]
    for _ in range(draw(st.integers(0, 2))):
        used = draw(calls)
        if used:
            said = [{"type": "text", "text": draw(texts)}] if draw(st.booleans()) else []
            results = [{"type": "tool_result", "tool_use_id": c["id"], "content": draw(texts)} for c in used]
            turns += [{"role": "assistant", "content": [*said, *used]}, {"role": "user", "content": results}]
        else:
            turns += [{"role": "assistant", "content": draw(texts)}, {"role": "user", "content": draw(texts)}]
    body: dict[str, Any] = {"model": "m", "max_tokens": draw(st.integers(1, 9999)), "messages": turns}
    if draw(st.booleans()):
        body["system"] = draw(
            texts | st.lists(texts.map(lambda t: {"type": "text", "text": t}), min_size=2, max_size=3)
        )
    names = draw(st.lists(words, max_size=2, unique=True))
    if names:
        body["tools"] = [
            {"name": n, "input_schema": {"type": "object", "properties": draw(inputs)}} for n in names
        ]
        chosen = {"type": "tool", "name": names[0]}
        choice = draw(st.sampled_from([None, *({"type": kind} for kind in ("auto", "any", "none")), chosen]))
        if choice is not None:
            if choice["type"] != "none" and draw(st.booleans()):
                choice = {**choice, "disable_parallel_tool_use": True}
            body["tool_choice"] = choice
    for name, value in (
        ("temperature", st.floats(0, 1)), ("top_p", st.floats(0, 1)), ("top_k", st.integers(1, 99)),
        ("stop_sequences", st.lists(words, min_size=1, max_size=3)),
        ("metadata", words.map(lambda w: {"user_id": w})),
        ("output_config", st.sampled_from([{"effort": "low"}, {"format": SCHEMA}])),
    ):  # fmt: skip
        if draw(st.booleans()):
            body[name] = draw(value)
    return body


@given(requests())
def test_a_request_survives_the_way_to_chat_and_back(body: dict[str, Any]) -> None:
    before = msgspec.json.encode(body)
    chat = messages_to_chat.request(body, resolved_model="m")
    assert chat_to_messages.request(chat, max_tokens=1) == body
    assert messages_to_chat.request(chat_to_messages.request(chat, max_tokens=1), resolved_model="m") == chat
    assert msgspec.json.encode(body) == before
