"""Cut a stored OpenAI chat answer into the chunks that the same call gives streamed.

The order is a provider's: per choice the role, reasoning, content, refusal, tool calls, the finish reason; last
the usage. ``openai_assemble`` joins the chunks to the same answer again. The envelope that all chunks share is
encoded once and the pieces are spliced in: a hit's cost is one small ``encode`` per piece.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final

from stratacache.dialects import wire
from stratacache.types import JSON

# message members that are streamed in pieces, in this order
_TEXTS: Final = ("reasoning_content", "reasoning", "content", "refusal")
_ON_EVERY_CHUNK: Final = ("id", "object", "created", "model", "service_tier", "system_fingerprint")
# 20 characters, then up to 20 more to the end of the word: words stay whole, Chinese is cut at 40
_PIECE: Final = re.compile(r".{1,20}\S{0,20}", re.DOTALL)
_ZWJ: Final = "\u200d"
_MARKS: Final = frozenset({"Mn", "Mc", "Me"})  # combining marks and variation selectors


def replay(answer: Mapping[str, JSON], *, include_usage: bool) -> list[bytes]:
    """The payloads of the stream, without the final ``[DONE]``.

    Args:
        answer: a ``chat.completion`` that ``openai_chat.completeness`` let pass; not changed.
        include_usage: what the client asked for: a last chunk without choices carries the usage, the others
            ``"usage": null``, as OpenAI does. Without a usage in ``answer`` there is neither.
    """
    usage = answer.get("usage") if include_usage else None
    shared = {key: answer[key] for key in _ON_EVERY_CHUNK if key in answer}
    shared["object"] = "chat.completion.chunk"
    once = {k: v for k, v in answer.items() if k not in shared and k not in ("choices", "usage")}
    head = wire.encode(shared)[:-1] + b',"choices":['
    tail = b"]}" if usage is None else b'],"usage":null}'
    payloads: list[bytes] = []
    for position, choice in enumerate(answer["choices"]):
        payloads += _choice(choice, choice.get("index", position), head, tail)
    if once and payloads:
        payloads[0] = payloads[0][:-1] + b"," + wire.encode(once)[1:]
    if usage is not None:
        payloads.append(head + b'],"usage":' + wire.encode(usage) + b"}")
    return payloads


def _choice(choice: Mapping[str, JSON], index: int, head: bytes, tail: bytes) -> Iterator[bytes]:
    message, logprobs = choice["message"], choice.get("logprobs")
    before = head + b'{"index":%d,"delta":' % index
    tail = b',"finish_reason":null}' + tail
    after = (b',"logprobs":null' if "logprobs" in choice else b"") + tail
    yield before + wire.encode(_first_delta(message)) + after
    spread: set[str] = set()  # the lists of logprobs that go out with their text
    for key in _TEXTS:
        text = message.get(key)
        if type(text) is not str or not text:
            continue
        start, end = before + b'{"%s":' % key.encode(), b"}" + after
        if type(logprobs) is dict and type(logprobs.get(key)) is list and logprobs[key]:
            spread.add(key)
            for piece, own in _with_logprobs(text, key, logprobs):
                yield start + wire.encode(piece) + b'},"logprobs":' + wire.encode(own) + tail
        else:
            for piece in pieces(text):
                yield start + wire.encode(piece) + end
    for delta in _call_deltas(message):
        yield before + wire.encode(delta) + after
    last = wire.encode(_last_members(choice, spread))
    yield before + b"{}," + last[1:] + tail.removeprefix(b',"finish_reason":null}')


def _first_delta(message: Mapping[str, JSON]) -> dict[str, JSON]:
    """The role, "" for a content that follows in pieces, and whole whatever does not come in pieces."""
    delta: dict[str, JSON] = {"role": message.get("role", "assistant")}
    for key, value in message.items():
        if key in _TEXTS and type(value) is str and value:
            if key == "content":
                delta[key] = ""
        elif not (value and key in ("tool_calls", "function_call")):
            delta[key] = value
    return delta


def _call_deltas(message: Mapping[str, JSON]) -> Iterator[dict[str, JSON]]:
    for index, call in enumerate(message.get("tool_calls") or ()):
        function = call.get("function")
        if type(function) is not dict:
            yield {"tool_calls": [{**call, "index": index}]}
            continue
        yield {"tool_calls": [{**call, "index": index, "function": {**function, "arguments": ""}}]}
        for piece in pieces(function["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
    if function := message.get("function_call"):
        yield {"function_call": {**function, "arguments": ""}}
        for piece in pieces(function["arguments"]):
            yield {"function_call": {"arguments": piece}}


def _last_members(choice: Mapping[str, JSON], spread: set[str]) -> dict[str, JSON]:
    """The last chunk's choice beside its delta: finish reason, fields nobody knows, logprobs not sent yet."""
    last = {key: value for key, value in choice.items() if key not in ("index", "message")}
    if spread:
        logprobs = choice["logprobs"]
        last["logprobs"] = {
            k: v for k, v in logprobs.items() if k not in {*spread, *_nulls(logprobs)}
        } or None
    return last


def _nulls(logprobs: Mapping[str, JSON]) -> dict[str, None]:
    """OpenAI's two lists where they are null: they are so on every chunk that has logprobs."""
    return {key: None for key in ("content", "refusal") if key in logprobs and logprobs[key] is None}


def _with_logprobs(
    text: str, key: str, logprobs: Mapping[str, JSON]
) -> Iterator[tuple[str, dict[str, JSON]]]:
    """``text`` in pieces, each with the log probabilities of its own tokens.

    All in one piece when the tokens do not spell the text (they may hold parts of a character).
    """
    nulls, tokens = _nulls(logprobs), logprobs[key]
    words = [str(token.get("token")) if type(token) is dict else "" for token in tokens]
    if "".join(words) != text:
        yield text, {**nulls, key: tokens}
        return
    begin, size = 0, 0
    for end, (word, following) in enumerate(pairwise([*words, ""]), start=1):
        size += len(word)
        if end == len(words) or (size >= 20 and word and following and not _joined(word[-1], following[0])):
            yield "".join(words[begin:end]), {**nulls, key: tokens[begin:end]}
            begin, size = end, 0


def pieces(text: str) -> list[str]:
    """``text`` in pieces of about 20 to 40 characters, cut at word ends where there are words.

    A character is never cut off from its combining marks, variation selectors, emoji modifiers or from what a
    zero-width joiner or a regional indicator ties it to (Unicode Standard Annex 29, rules GB9, GB9a, GB11,
    GB12; pieces grow longer where those abound).
    """
    parts = _PIECE.findall(text)
    if text.isascii():
        return parts
    whole: list[str] = []
    run: list[str] = []
    for part in parts:
        if run and not _joined(run[-1][-1], part[0]):
            whole.append("".join(run))
            run.clear()
        run.append(part)
    return [*whole, "".join(run)]


def _joined(left: str, right: str) -> bool:
    """Whether ``left`` and ``right`` show as one character; errs on the side of yes."""
    if right < "\u0300":
        return left == _ZWJ
    if left == _ZWJ or right == _ZWJ or unicodedata.category(right) in _MARKS:
        return True
    if "\u1160" <= right <= "\u11ff" or "\U0001f3fb" <= right <= "\U0001f3ff":
        return True  # Hangul vowels and finals, skin tones
    if "\U000e0020" <= right <= "\U000e007f":
        return True  # tags: the flags of England, Scotland and Wales
    return "\U0001f1e6" <= right <= "\U0001f1ff" and "\U0001f1e6" <= left <= "\U0001f1ff"
