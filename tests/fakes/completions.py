"""What an OpenAI server says at ``/v1/completions``, as a ``FakeUpstream.dispatch``: whole, or in chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from tests.fakes.upstream import Call, Reply

PATH = "/v1/completions"
LOGPROBS = {
    "tokens": [" two", " three"], "token_logprobs": [-0.5, -1.0], "top_logprobs": None, "text_offset": [3, 7],
}  # fmt: skip


def said(texts: Sequence[str], **more: Any) -> dict[str, Any]:
    choices = [
        {"text": text, "index": n, "logprobs": None, "finish_reason": "stop", **more}
        for n, text in enumerate(texts)
    ]
    return {
        "id": "cmpl-1", "object": "text_completion", "created": 1_700_000_000, "model": "fake-model",
        "choices": choices, "usage": {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8},
    }  # fmt: skip


def chunks(answer: dict[str, Any], *, usage: bool) -> list[bytes]:
    """As OpenAI cuts it: word by word, all choices interleaved, the finish reason in the last of each."""
    shared = {name: answer[name] for name in ("id", "object", "created", "model")}
    words = [choice["text"].split(" ") for choice in answer["choices"]]
    made: list[Any] = []
    for place in range(max(map(len, words))):
        for choice, own in zip(answer["choices"], words, strict=True):
            if place < len(own):
                text = own[place] if place == 0 else f" {own[place]}"
                made.append({"text": text, "index": choice["index"], "logprobs": None, "finish_reason": None})
    made += [{**choice, "text": ""} for choice in answer["choices"]]
    payloads = [msgspec.json.encode({**shared, "choices": [one]}) for one in made]
    if usage:
        payloads.append(msgspec.json.encode({**shared, "choices": [], "usage": answer["usage"]}))
    return [b"data: " + payload + b"\n\n" for payload in (*payloads, b"[DONE]")]


def completing(answer: dict[str, Any]) -> Any:
    """A ``dispatch`` that gives ``answer`` to every call of the endpoint."""

    def dispatch(call: Call) -> Reply | None:
        if call.path != PATH:
            return None
        if not call.json.get("stream"):
            return Reply(body=answer)
        wanted = (call.json.get("stream_options") or {}).get("include_usage", False)
        return Reply(raw=chunks(answer, usage=wanted), content_type="text/event-stream")

    return dispatch
