"""The OpenAI completions dialect, which continues a text: check requests, judge answers, join and cut streams. Pure.

A chunk is a chat chunk with ``text`` in place of ``delta``, so ``openai_assemble`` joins these streams too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stratacache.dialects import openai_assemble, wire
from stratacache.dialects.base import Parsed
from stratacache.dialects.checks import model_name, required, streaming, without_cache_control, wrong_type
from stratacache.dialects.openai_chat import fault_of_choices, upstream_body
from stratacache.dialects.openai_replay import pieces
from stratacache.dialects.usage import usage_of
from stratacache.errors import RequestError
from stratacache.types import JSON

__all__ = [
    "USAGE_ON_REQUEST",
    "Assembler",
    "assembler",
    "completeness",
    "fixed_answer",
    "parse",
    "replay",
    "texts_of",
    "upstream_body",
    "usage_of",
]

USAGE_ON_REQUEST: Final = True
_FAILED: Final = {"length": "truncated", "content_filter": "refused", "error": "error"}
_SHARED: Final = ("id", "object", "created", "model", "system_fingerprint")
_PROMPT: Final = "a string, or an array of strings, of token numbers, or of arrays of these"


def parse(body: dict[str, JSON]) -> Parsed:
    """Check the fields that the gateway itself relies on, and the prompt's shape. Never changes ``body``.

    Raises:
        RequestError: status 400, ``param`` is the path of the first wrong field.
    """
    model = model_name(required(body, "model", "model"))
    _check_prompt(required(body, "prompt", "prompt"))
    stream, include_usage = streaming(body)
    cache, body = without_cache_control(body)
    return Parsed(model, stream, include_usage, cache, body)


def _check_prompt(prompt: JSON) -> None:
    if type(prompt) is str:
        return
    if type(prompt) is not list:
        raise wrong_type("prompt", _PROMPT, prompt)
    if not prompt:
        raise RequestError("'prompt' is an empty array.", param="prompt", code="empty_array")
    kind = type(prompt[0])
    for place, one in enumerate(prompt):
        if type(one) is not kind or kind not in (str, int, list):
            raise wrong_type(f"prompt[{place}]", _PROMPT, one)
        if kind is list and not all(type(token) is int for token in one):
            raise wrong_type(f"prompt[{place}]", "an array of token numbers", one)


def completeness(answer: JSON) -> str | None:
    """None when ``answer`` (a ``text_completion``) may be stored, else one word why not; as for chat."""
    return fault_of_choices(answer, _choice_fault)


def _choice_fault(choice: dict[str, JSON]) -> str | None:
    text, finish = choice.get("text"), choice.get("finish_reason")
    if choice.get("error") is not None:
        return "error"
    if type(text) is not str or not (finish is None or type(finish) is str):
        return "malformed"
    if finish in _FAILED:
        return _FAILED[finish]
    if finish != "stop":
        return "unfinished"
    return None if text.strip() else "empty"


def texts_of(answer: Mapping[str, JSON]) -> list[str]:
    """What each choice of a complete answer says."""
    return [choice["text"] for choice in answer["choices"]]


def fixed_answer(text: str, model: str, created: float) -> dict[str, JSON]:
    """A ``text_completion`` that says ``text`` and cost nothing; ``created`` in seconds since the epoch."""
    return {
        "id": "cmpl-stratacache-default",
        "object": "text_completion",
        "created": int(created),
        "model": model,
        "choices": [{"text": text, "index": 0, "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }


def replay(answer: Mapping[str, JSON], *, include_usage: bool) -> list[bytes]:
    """The payloads of the stream, without the final ``[DONE]``; as ``openai_replay.replay`` for chat.

    A text with log probabilities goes out in one piece with them.
    """
    usage = answer.get("usage") if include_usage else None
    shared = {name: answer[name] for name in _SHARED if name in answer}
    once = {name: value for name, value in answer.items() if name not in (*_SHARED, "choices", "usage")}
    tail = {} if usage is None else {"usage": None}
    payloads = []
    for place, choice in enumerate(answer["choices"]):
        for part in _parts(choice, choice.get("index", place)):
            payloads.append(wire.encode({**shared, "choices": [part], **once, **tail}))
            once = {}
    if usage is not None:
        payloads.append(wire.encode({**shared, "choices": [], "usage": usage}))
    return payloads


def _parts(choice: Mapping[str, JSON], index: int) -> list[dict[str, JSON]]:
    bare = {"index": index, **({"logprobs": None} if "logprobs" in choice else {}), "finish_reason": None}
    text, logprobs = choice["text"], choice.get("logprobs")
    if logprobs is not None:
        parts = [{"text": text, **bare, "logprobs": logprobs}]
    else:
        parts = [{"text": piece, **bare} for piece in pieces(text)]
    rest = {name: value for name, value in choice.items() if name not in ("text", "logprobs")}
    return [*parts, {"text": "", **bare, **rest}]


class Assembler(openai_assemble.Assembler):
    """As for chat, to whose chunks these are turned."""

    __slots__ = ()

    def add(self, chunk: JSON) -> None:
        """Take a decoded chunk of a ``text_completion``. Never raises."""
        super().add(_as_chat(chunk))

    def result(self) -> dict[str, JSON] | None:
        """The whole ``text_completion``, None while (or because) the stream is not complete."""
        answer = super().result()
        if answer is None:
            return None
        choices = [_as_completion(choice) for choice in answer["choices"]]
        return {**answer, "object": "text_completion", "choices": choices}


def assembler() -> Assembler:
    """See ``base.Answers``."""
    return Assembler()


def _as_chat(chunk: JSON) -> JSON:
    choices = chunk.get("choices") if type(chunk) is dict else None
    if type(choices) is not list:
        return chunk
    return {**chunk, "choices": [_with_delta(choice) for choice in choices]}


def _with_delta(choice: JSON) -> JSON:
    if type(choice) is not dict:
        return choice
    rest = {name: value for name, value in choice.items() if name not in ("text", "delta")}
    return {**rest, "delta": {"content": choice["text"]} if "text" in choice else choice.get("delta")}


def _as_completion(choice: Mapping[str, JSON]) -> dict[str, JSON]:
    rest = {name: value for name, value in choice.items() if name != "message"}
    return {"text": choice["message"]["content"] or "", **rest}
